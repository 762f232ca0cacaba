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

// ComposeSubmodule is where make install installs the sub-module docker-compose.
const ComposeSubmodule = "/usr/share/mender/app-modules/v1/docker-compose"

// Device starts a device with the product and the Mender client installed. A release
// must stay healthy for one second instead of five, because most tests install
// several.
// Devices are independent of each other and mostly wait, so tests run in parallel.
func Device(t *testing.T) *bed.Device {
	t.Helper()
	d := DeviceAsShipped(t)
	ShortHealthWindow(t, d)
	return d
}

// ShortHealthWindow makes a release that stays healthy for a second a good one. As
// shipped it takes five seconds.
func ShortHealthWindow(t *testing.T, d *bed.Device) {
	t.Helper()
	d.MustRun(t, "bash", "-ec", "echo HEALTH_WINDOW=1s >>/etc/mender/mender-app-docker-compose.conf")
}

// DeviceAsShipped starts a device with the configuration that make install installs,
// for tests of what is healthy.
func DeviceAsShipped(t *testing.T) *bed.Device {
	t.Helper()
	t.Parallel()
	bed.Require(t, "mender-artifact")
	return bed.Start(t)
}

// OnEngines runs a test on a device of each of the engines chosen for the
// matrix (testdata/engines).
func OnEngines(t *testing.T, test func(t *testing.T, d *bed.Device)) {
	t.Parallel()
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			bed.Require(t, "mender-artifact")
			test(t, bed.StartWith(t, e))
		})
	}
}

// Web is the image of the shop's web service in a version, in a mode.
func Web(t *testing.T, version, mode string) bed.Image {
	t.Helper()
	return Build(t, bed.Shop{Ref: "shop/web:" + version, Version: version, Mode: mode, Base: 512, Winter: version != "1"})
}

// Stock is the image of the shop's other service, which does not change. It has no
// health check: the one of web is enough for most tests, and each costs processor time.
func Stock(t *testing.T) bed.Image {
	t.Helper()
	image := Build(t, bed.Shop{Ref: "shop/stock:1", Version: "1", Service: "stock", Base: 512, Count: "/var/shop/visits"})
	image.Health = nil
	return image
}

// Build makes the image of one of the shop's services.
func Build(t *testing.T, s bed.Shop) bed.Image {
	t.Helper()
	image, err := s.Image()
	require.NoError(t, err)
	return image
}

// Compose is the shop's compose file for a release of the web service.
func Compose(release string) string {
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

// WebURL is the address of the web service in the device. It answers with its version.
const WebURL = "http://127.0.0.1:8080/version"

// Coded is the option of a release whose images travel as deltas over nothing: app-gen's
// default.
const Coded = "--deep-delta"

// Release makes an artifact of a release of the shop with app-gen, whole. Many tests begin
// with the same one, so each without more options than coded is made once.
func Release(t *testing.T, d *bed.Device, version, mode string, options ...string) string {
	t.Helper()
	key := [3]string{version, mode}
	switch {
	case slices.Equal(options, []string{Coded}):
		key[2] = Coded
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
	images := []string{Archive(t, Web(t, version, mode)), Archive(t, Stock(t))}
	return Generate(t, d, "shop", "shop-"+version, version, Compose(version), append(options, images[0], images[1])...)
}

// Archive writes an image as a docker-archive and returns app-gen's option for it.
func Archive(t *testing.T, i bed.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, bed.WriteArchive(path, i))
	return "--image=docker-archive:" + path
}

// Delta is app-gen's option for an image that comes as a delta against old.
func Delta(t *testing.T, old, new bed.Image) string {
	t.Helper()
	_, from, _ := strings.Cut(Archive(t, old), "=")
	_, to, _ := strings.Cut(Archive(t, new), "=")
	return "--image=" + from + "," + to
}

// Generate runs app-gen for a Compose application. The artifact is written where the
// device can read it.
func Generate(t *testing.T, d *bed.Device, app, artifact, version, compose string, options ...string) string {
	t.Helper()
	manifests := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644))
	return AppGen(t, d, artifact, manifests, append([]string{
		"--application-name", app, "--software-version", version, "--orchestrator", "docker-compose",
	}, options...)...)
}

// AppGen runs app-gen, for this machine's platform if the options name none. Images
// without a base travel in gzip unless an option says how: to code them takes a processor
// ten seconds for each artifact.
func AppGen(t *testing.T, d *bed.Device, artifact, manifests string, options ...string) string {
	t.Helper()
	out := d.Share(artifact + ".mender")
	programs, err := bed.Programs()
	require.NoError(t, err)
	args := append([]string{
		"--artifact-name", artifact, "--device-type", bed.Type, "--manifests-dir", manifests, "--replace", "--output-path", out,
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

// Handmade writes an artifact that is put together by hand where the device can read
// it.
func Handmade(t *testing.T, d *bed.Device, h bed.Handmade) string {
	t.Helper()
	out := d.Share(h.Name + ".mender")
	require.NoError(t, h.Write(out))
	return out
}

// Provides is what the client must report as installed while the shop is at a
// release.
func Provides(version string) map[string]string {
	return map[string]string{"artifact_name": "shop-" + version, "data-partition.shop.version": version}
}

// Mender runs the Mender client and requires that it succeeds.
func Mender(t *testing.T, d *bed.Device, args ...string) {
	t.Helper()
	MenderSays(t, d, args...)
}

// MenderSays is Mender. It returns the client's output.
func MenderSays(t *testing.T, d *bed.Device, args ...string) string {
	t.Helper()
	r, err := d.Mender(args...)
	require.NoError(t, err)
	require.Zero(t, r.Code, "mender %s\n%s", strings.Join(args, " "), r.Output())
	return r.Output()
}

// MenderFails runs the Mender client, requires that it fails, and returns its
// output.
func MenderFails(t *testing.T, d *bed.Device, args ...string) string {
	t.Helper()
	r, err := d.Mender(args...)
	require.NoError(t, err)
	require.NotZero(t, r.Code, "mender %s succeeded\n%s", strings.Join(args, " "), r.Output())
	require.Positive(t, r.Code, "mender %s did not end by itself\n%s", strings.Join(args, " "), r.Output())
	return r.Output()
}

// Watch watches the web service until the test ends.
func Watch(t *testing.T, d *bed.Device) *bed.Watch {
	t.Helper()
	w, err := d.Watch(WebURL)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// Says waits until the web service answers with a text.
func Says(t *testing.T, w *bed.Watch, want string) {
	t.Helper()
	bed.Eventually(t, time.Minute, "the web service says "+want, func() bool { return w.Says() == want })
}

// InstallUpdateFailAndRollBack installs the shop on a device, updates it, lets an update
// fail, and rolls back.
func InstallUpdateFailAndRollBack(t *testing.T, d *bed.Device) {
	w := Watch(t, d)

	Mender(t, d, "install", Release(t, d, "1", "", Coded))
	Says(t, w, "web 1")
	Mender(t, d, "commit")
	d.MustProvide(t, Provides("1"))
	Visit(t, d, "1")
	one := d.MustState(t)

	two := Generate(t, d, "shop", "shop-2", "2", Compose("2"), "--deep-delta",
		Delta(t, Web(t, "1", ""), Web(t, "2", "")), Delta(t, Stock(t), Stock(t)))
	Mender(t, d, "install", two)
	Says(t, w, "web 2")
	Mender(t, d, "commit")
	d.MustProvide(t, Provides("2"))
	at2 := d.MustState(t)
	require.Equal(t, one.Service("shop", "stock"), at2.Service("shop", "stock"), "the unchanged service was touched")
	Visit(t, d, "2")
	at2 = d.MustState(t)

	// It is never healthy: back to 2, which the client reports too.
	said := MenderFails(t, d, "install", Release(t, d, "3", "unhealthy"))
	require.Contains(t, said, "web")
	Says(t, w, "web 2")
	d.MustProvide(t, Provides("2"))
	SameApplication(t, at2, d.MustState(t))

	// Good, and taken back before its commit.
	Mender(t, d, "install", Release(t, d, "4", ""))
	Says(t, w, "web 4")
	Mender(t, d, "rollback")
	Says(t, w, "web 2")
	d.MustProvide(t, Provides("2"))
	SameApplication(t, at2, d.MustState(t))
	Visit(t, d, "3") // the data is still that of the first release
}
