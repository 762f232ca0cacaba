// Package e2e tests the whole product on a device: artifacts made by app-gen or by
// the real mender-artifact are installed by the real Mender client on a device of
// its own with a real Docker engine (testdata/bed). It must not import the product's
// packages.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// device starts a device with the product and the Mender client installed. A release
// must stay healthy for one second instead of five, because most tests install
// several.
// Devices are independent of each other and mostly wait, so tests run in parallel.
func device(t *testing.T) *bed.Device {
	t.Helper()
	d := deviceAsShipped(t)
	shortHealthWindow(t, d)
	return d
}

// shortHealthWindow makes a release that stays healthy for a second a good one. As
// shipped it takes five seconds.
func shortHealthWindow(t *testing.T, d *bed.Device) {
	t.Helper()
	d.MustRun(t, "bash", "-ec", "echo HEALTH_WINDOW=1s >>/etc/mender/mender-app-docker-compose.conf")
}

// deviceAsShipped starts a device with the configuration that make install installs,
// for tests of what is healthy.
func deviceAsShipped(t *testing.T) *bed.Device {
	t.Helper()
	t.Parallel()
	bed.Require(t, "mender-artifact")
	return bed.Start(t)
}

// onEngines runs a test on a device of each of the engines chosen for the
// matrix (testdata/engines).
func onEngines(t *testing.T, test func(t *testing.T, d *bed.Device)) {
	t.Parallel()
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			bed.Require(t, "mender-artifact")
			test(t, bed.StartWith(t, e))
		})
	}
}

// web is the image of the shop's web service in a version, in a mode.
func web(t *testing.T, version, mode string) bed.Image {
	t.Helper()
	return build(t, bed.Shop{Ref: "shop/web:" + version, Version: version, Mode: mode, Base: 512, Winter: version != "1"})
}

// stock is the image of the shop's other service, which does not change. It has no
// health check: the one of web is enough for most tests, and each costs processor time.
func stock(t *testing.T) bed.Image {
	t.Helper()
	image := build(t, bed.Shop{Ref: "shop/stock:1", Version: "1", Service: "stock", Base: 512, Count: "/var/shop/visits"})
	image.Health = nil
	return image
}

func build(t *testing.T, s bed.Shop) bed.Image {
	t.Helper()
	image, err := s.Image()
	require.NoError(t, err)
	return image
}

// compose is the shop's compose file for a release of the web service.
func compose(release string) string {
	return fmt.Sprintf(`services:
  web:
    image: shop/web:%s
    ports: ["8080:8080"]
    stop_grace_period: 2s
  stock:
    image: shop/stock:1
    ports: ["8081:8080"]
    volumes: ["counts:/var/shop"]
volumes:
  counts:
`, release)
}

const webURL = "http://127.0.0.1:8080/version"

// coded is the option of a release whose images travel as deltas over nothing: app-gen's
// default.
const coded = "--deep-delta"

// release makes an artifact of a release of the shop with app-gen, whole. Many tests begin
// with the same one, so each without more options than coded is made once.
func release(t *testing.T, d *bed.Device, version, mode string, options ...string) string {
	t.Helper()
	key := [3]string{version, mode}
	switch {
	case slices.Equal(options, []string{coded}):
		key[2] = coded
	case len(options) > 0:
		return releaseAnew(t, d, version, mode, options...)
	}
	entry, _ := releases.LoadOrStore(key, &artifactOnce{})
	artifact := entry.(*artifactOnce)
	artifact.Lock()
	defer artifact.Unlock()
	if artifact.data == nil {
		data, err := os.ReadFile(releaseAnew(t, d, version, mode, options...))
		require.NoError(t, err)
		artifact.data = data
	}
	out := d.Share("shop-" + version + ".mender")
	require.NoError(t, os.WriteFile(out, artifact.data, 0o644))
	return out
}

// releases are the artifacts that release made, by version, mode and option.
var releases sync.Map // of *artifactOnce, by [3]string

// artifactOnce is an artifact that is made when it is first needed.
type artifactOnce struct {
	sync.Mutex
	data []byte
}

func releaseAnew(t *testing.T, d *bed.Device, version, mode string, options ...string) string {
	t.Helper()
	images := []string{archive(t, web(t, version, mode)), archive(t, stock(t))}
	return generate(t, d, "shop", "shop-"+version, version, compose(version), append(options, images[0], images[1])...)
}

// archive writes an image as a docker-archive and returns app-gen's option for it.
func archive(t *testing.T, i bed.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, bed.WriteArchive(path, i))
	return "--image=docker-archive:" + path
}

// delta is app-gen's option for an image that comes as a delta against old.
func delta(t *testing.T, old, new bed.Image) string {
	t.Helper()
	_, from, _ := strings.Cut(archive(t, old), "=")
	_, to, _ := strings.Cut(archive(t, new), "=")
	return "--image=" + from + "," + to
}

// generate runs app-gen for a Compose application. The artifact is written where the
// device can read it.
func generate(t *testing.T, d *bed.Device, app, artifact, version, compose string, options ...string) string {
	t.Helper()
	manifests := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644))
	return appGen(t, d, artifact, manifests, append([]string{
		"--application-name", app, "--software-version", version, "--orchestrator", "docker-compose",
	}, options...)...)
}

// appGen runs app-gen, for this machine's platform if the options name none. Images
// without a base travel in gzip unless an option says how: to code them takes a processor
// ten seconds for each artifact.
func appGen(t *testing.T, d *bed.Device, artifact, manifests string, options ...string) string {
	t.Helper()
	out := d.Share(artifact + ".mender")
	programs, err := bed.Programs()
	require.NoError(t, err)
	args := append([]string{
		"--artifact-name", artifact, "--device-type", bed.Type, "--manifests-dir", manifests, "--output-path", out,
	}, options...)
	if !slices.Contains(options, "--platform") {
		args = append(args, "--platform", bed.Platform())
	}
	if !slices.ContainsFunc(options, func(o string) bool { return o == "--for" || strings.HasPrefix(o, "--deep-delta") }) {
		args = append(args, "--deep-delta=false")
	}
	text, err := exec.Command(filepath.Join(programs, "app-gen"), args...).CombinedOutput()
	require.NoError(t, err, "app-gen %s\n%s", strings.Join(args, " "), text)
	return out
}

// handmade writes an artifact that is put together by hand where the device can read
// it.
func handmade(t *testing.T, d *bed.Device, h bed.Handmade) string {
	t.Helper()
	out := d.Share(h.Name + ".mender")
	require.NoError(t, h.Write(out))
	return out
}

// provides is what the client must report as installed while the shop is at a
// release.
func provides(version string) map[string]string {
	return map[string]string{"artifact_name": "shop-" + version, "data-partition.shop.version": version}
}

// mender runs the Mender client and requires that it succeeds.
func mender(t *testing.T, d *bed.Device, args ...string) {
	t.Helper()
	r, err := d.Mender(args...)
	require.NoError(t, err)
	require.Zero(t, r.Code, "mender %s\n%s", strings.Join(args, " "), r.Output())
}

// menderFails runs the Mender client, requires that it fails, and returns its
// output.
func menderFails(t *testing.T, d *bed.Device, args ...string) string {
	t.Helper()
	r, err := d.Mender(args...)
	require.NoError(t, err)
	require.NotZero(t, r.Code, "mender %s succeeded\n%s", strings.Join(args, " "), r.Output())
	require.Positive(t, r.Code, "mender %s did not end by itself\n%s", strings.Join(args, " "), r.Output())
	return r.Output()
}

// watch watches the web service until the test ends.
func watch(t *testing.T, d *bed.Device) *bed.Watch {
	t.Helper()
	w, err := d.Watch(webURL)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

func says(t *testing.T, w *bed.Watch, want string) {
	t.Helper()
	bed.Eventually(t, time.Minute, "the web service says "+want, func() bool { return w.Says() == want })
}
