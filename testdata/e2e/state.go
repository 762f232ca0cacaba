package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// RequireErrorLine asserts that one of the lines that report an error contains a
// text.
func RequireErrorLine(t *testing.T, want, said string) {
	t.Helper()
	pattern := regexp.MustCompile(want)
	for line := range strings.Lines(said) {
		_, reason, ok := strings.Cut(line, "error: ") // the module's
		if !ok {
			_, reason, ok = strings.Cut(line, "level=error") // the client's own
		}
		if ok && pattern.MatchString(reason) {
			return
		}
	}
	t.Errorf("no error line matches %q:\n%s", want, said)
}

// mayChange lists the files that may change although nothing else does: an attempted
// deployment is counted and recorded in the history. They alone do not say what is
// current: the link to the manifests does, too. What an engine on the same disk has is compared
// by what it says.
var mayChange = regexp.MustCompile(`^/data/(mender-app/(\.mender-app/.*|[^/]+/app\.json(\.copy)?)|docker/.*)$`)

// Unchanging is a state without the files of mayChange.
func Unchanging(s bed.State) bed.State {
	for name := range s.Files {
		if mayChange.MatchString(name) {
			delete(s.Files, name)
		}
	}
	s.Health = nil
	return s
}

// SameApplication asserts that the shop is as before: the same images, volumes and
// networks, the unchanged service untouched, the changed one recreated from the same
// image.
func SameApplication(t *testing.T, before, after bed.State) {
	t.Helper()
	require.Equal(t, before.Service("shop", "stock"), after.Service("shop", "stock"), "the unchanged service was touched")
	require.Equal(t, before.Service("shop", "web").Image, after.Service("shop", "web").Image)
	require.Equal(t, before.Service("shop", "web").Ref, after.Service("shop", "web").Ref)
	require.Len(t, after.Containers, len(before.Containers))
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Volumes, after.Volumes)
	require.Equal(t, before.Networks, after.Networks)
}

// Visit makes a request to the stock service, which counts the visits in its volume.
func Visit(t *testing.T, d *bed.Device, want string) {
	t.Helper()
	got := ""
	// Before the service listens, the engine's proxy takes a connection and closes it.
	bed.Eventually(t, time.Minute, "the service that counts visits answers", func() bool {
		r, err := d.Run("bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/8081; printf 'GET /visits HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3`)
		require.NoError(t, err)
		got = strings.TrimSpace(r.Stdout)
		return r.Code == 0 && got != ""
	})
	require.Equal(t, want, got, "the number of visits kept in the volume")
}

// MustProvides returns what the client reports as installed.
func MustProvides(t *testing.T, d *bed.Device) map[string]string {
	t.Helper()
	p, err := d.Provides()
	require.NoError(t, err)
	return p
}

// Settled asserts that one whole release of the shop runs, that the Mender client
// reports it, and that nothing is left open.
func Settled(t *testing.T, d *bed.Device, w *bed.Watch, version string) {
	t.Helper()
	Says(t, w, "web "+version)
	d.MustProvide(t, Provides(version))
	d.MustRun(t, "mender-app", "verify", "shop")
	s := d.MustState(t)
	for _, service := range []string{"web", "stock"} {
		require.NotNil(t, s.Service("shop", service))
		require.Equal(t, "running", s.Service("shop", service).Status)
	}
	require.Len(t, s.Containers, 2)
}
