package slow

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A service that takes its time is waited for, not failed.
func TestSlowServiceIsWaitedFor(t *testing.T) {
	d := e2e.DeviceAsShipped(t)
	start := time.Now()
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", "slow 1s"))
	require.Greater(t, time.Since(start), time.Second)
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("1"))
	require.Equal(t, "healthy", d.MustState(t).Health["shop-web-1"])
}

// Two applications on one device, and a person's own container.
func TestApplicationsDoNotDisturbEachOther(t *testing.T) {
	d := e2e.Device(t)
	kiosk := func(version, mode string) string {
		image := e2e.Build(t, bed.Shop{Ref: "kiosk/front:" + version, Version: version, Mode: mode, Service: "kiosk", Base: 512})
		return e2e.Generate(t, d, "kiosk", "kiosk-"+version, version, `services:
  web:
    image: kiosk/front:`+version+`
    stop_grace_period: 2s
`, e2e.Archive(t, image))
	}
	kioskProvides := func(p map[string]string, artifact, version string) map[string]string {
		p["artifact_name"], p["data-partition.kiosk.version"] = artifact, version
		return p
	}

	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	d.MustRun(t, "docker", "run", "-d", "--name", "mine", "shop/stock:1")
	e2e.Mender(t, d, "install", kiosk("1", ""))
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, kioskProvides(e2e.Provides("1"), "kiosk-1", "1"))
	before := d.MustState(t)

	same := func(other, service string) {
		t.Helper()
		after := d.MustState(t)
		require.Equal(t, before.Service(other, service), after.Service(other, service))
		require.Equal(t, before.Containers["mine"], after.Containers["mine"])
		require.Equal(t, before.Volumes, after.Volumes)
	}
	// One is updated, then fails, then is rolled back; the other is not affected.
	e2e.Mender(t, d, "install", kiosk("2", ""))
	e2e.Mender(t, d, "commit")
	same("shop", "web")
	e2e.MenderFails(t, d, "install", kiosk("3", "crash"))
	same("shop", "web")
	same("shop", "stock")
	d.MustProvide(t, kioskProvides(e2e.Provides("1"), "kiosk-2", "2"))

	e2e.Mender(t, d, "install", e2e.Release(t, d, "2", ""))
	e2e.Mender(t, d, "rollback")
	kioskNow := d.MustState(t).Service("kiosk", "web")
	require.Equal(t, "kiosk/front:2", kioskNow.Ref)
	require.Equal(t, "running", kioskNow.Status)
	same("shop", "stock")
	d.MustProvide(t, kioskProvides(e2e.Provides("1"), "kiosk-2", "2"))
}

// These are a person's actions between two updates: stop, which lasts over a restart
// of the engine, start, and purge without and with the data.
func TestStopStartPurge(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "1")
	require.Contains(t, d.MustRun(t, "mender-app", "health", "shop"), " healthy")

	d.MustRun(t, "mender-app", "stop", "shop")
	running := func() string { return strings.TrimSpace(d.MustRun(t, "docker", "ps", "--quiet")) }
	require.Empty(t, running())
	require.NoError(t, d.StopEngine())
	require.NoError(t, d.StartEngine())
	d.MustRun(t, "mender-app", "resume")
	require.Empty(t, running(), "it stays stopped")
	require.Contains(t, d.MustRun(t, "mender-app", "list"), " stopped")

	// An update that fails leaves it stopped.
	e2e.MenderFails(t, d, "install", e2e.Release(t, d, "3", "crash"))
	require.Empty(t, running())
	d.MustRun(t, "mender-app", "start", "shop")
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "2")

	// If something that should run does not, the exit code is 6.
	d.MustRun(t, "bash", "-ec", "docker stop -t 0 $(docker ps --quiet --filter label=com.docker.compose.service=web)")
	r, err := d.Run("mender-app", "health", "shop")
	require.NoError(t, err)
	require.Equal(t, 6, r.Code, r.Output())
	require.Contains(t, r.Output(), "down")
	d.MustRun(t, "mender-app", "start", "shop")
	e2e.Says(t, w, "web 1")

	r, err = d.Run("mender-app", "purge", "shop")
	require.NoError(t, err)
	require.Equal(t, 2, r.Code, r.Output())
	d.MustRun(t, "mender-app", "stop", "shop")
	said, err := d.Run("mender-app", "purge", "shop")
	require.NoError(t, err)
	require.Zero(t, said.Code, said.Output())
	require.Contains(t, said.Output(), "the Mender client does not learn of this")
	left := d.MustState(t)
	require.Empty(t, left.Containers)
	require.Empty(t, left.Images)
	require.NotEmpty(t, left.Volumes, "the data stays")
	require.NotContains(t, d.MustRun(t, "mender-app", "list"), "shop")
	require.Contains(t, d.MustRun(t, "mender-app", "history", "shop"), "purged")

	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	e2e.Visit(t, d, "3") // the data was kept
	d.MustRun(t, "mender-app", "purge", "shop", "--data", "--force")
	require.Empty(t, d.MustState(t).Volumes)
}
