package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// The main job: install, update, a failing update, an update taken back.
func TestInstallUpdateFailAndRollBack(t *testing.T) { onEngines(t, installUpdateFailAndRollBack) }

func installUpdateFailAndRollBack(t *testing.T, d *bed.Device) {
	w := watch(t, d)

	mender(t, d, "install", release(t, d, "1", "", coded))
	says(t, w, "web 1")
	mender(t, d, "commit")
	d.MustProvide(t, provides("1"))
	visit(t, d, "1")
	one := d.MustState(t)

	two := generate(t, d, "shop", "shop-2", "2", compose("2"), "--deep-delta",
		delta(t, web(t, "1", ""), web(t, "2", "")), delta(t, stock(t), stock(t)))
	mender(t, d, "install", two)
	says(t, w, "web 2")
	mender(t, d, "commit")
	d.MustProvide(t, provides("2"))
	at2 := d.MustState(t)
	require.Equal(t, one.Service("shop", "stock"), at2.Service("shop", "stock"), "the unchanged service was touched")
	visit(t, d, "2")
	at2 = d.MustState(t)

	// It is never healthy: back to 2, which the client reports too.
	said := menderFails(t, d, "install", release(t, d, "3", "unhealthy"))
	require.Contains(t, said, "web")
	says(t, w, "web 2")
	d.MustProvide(t, provides("2"))
	sameApplication(t, at2, d.MustState(t))

	// Good, and taken back before its commit.
	mender(t, d, "install", release(t, d, "4", ""))
	says(t, w, "web 4")
	mender(t, d, "rollback")
	says(t, w, "web 2")
	d.MustProvide(t, provides("2"))
	sameApplication(t, at2, d.MustState(t))
	visit(t, d, "3") // the data is still that of the first release
}

// sameApplication asserts that the shop is as before: the same images, volumes and
// networks, the unchanged service untouched, the changed one recreated from the same
// image.
func sameApplication(t *testing.T, before, after bed.State) {
	t.Helper()
	require.Equal(t, before.Service("shop", "stock"), after.Service("shop", "stock"), "the unchanged service was touched")
	require.Equal(t, before.Service("shop", "web").Image, after.Service("shop", "web").Image)
	require.Equal(t, before.Service("shop", "web").Ref, after.Service("shop", "web").Ref)
	require.Len(t, after.Containers, len(before.Containers))
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Volumes, after.Volumes)
	require.Equal(t, before.Networks, after.Networks)
}

// visit makes a request to the stock service, which counts the visits in its volume.
func visit(t *testing.T, d *bed.Device, want string) {
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

// Each way in which a release can be bad ends in the previous one, with the
// service's last words in the output.
func TestBadReleaseEndsInTheOldOne(t *testing.T) {
	d := deviceAsShipped(t)
	w := watch(t, d)
	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	says(t, w, "web 1")
	before := d.MustState(t)

	for _, mode := range []string{"crash", "unhealthy"} {
		t.Run(mode, func(t *testing.T) {
			// Install two in a row: the second must not be confused by what the
			// first left.
			for range 2 {
				said := menderFails(t, d, "install", release(t, d, "2", mode))
				if mode == "crash" {
					require.Contains(t, said, "the till is on fire")
				}
				says(t, w, "web 1")
				d.MustProvide(t, provides("1"))
				sameApplication(t, before, d.MustState(t))
			}
		})
	}
}

// The first release that fails leaves nothing behind.
func TestFirstInstallThatFailsLeavesNothing(t *testing.T) {
	d := deviceAsShipped(t)
	before := d.MustState(t)
	menderFails(t, d, "install", release(t, d, "1", "unhealthy"))
	after := d.MustState(t)
	require.Empty(t, after.Containers)
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Networks, after.Networks)
	d.MustProvide(t, before.Provides)
}

// A service that takes its time is waited for, not failed.
func TestSlowServiceIsWaitedFor(t *testing.T) {
	d := deviceAsShipped(t)
	start := time.Now()
	mender(t, d, "install", release(t, d, "1", "slow 1s"))
	require.Greater(t, time.Since(start), time.Second)
	mender(t, d, "commit")
	d.MustProvide(t, provides("1"))
	require.Equal(t, "healthy", d.MustState(t).Health["shop-web-1"])
}

// Two applications on one device, and a person's own container.
func TestApplicationsDoNotDisturbEachOther(t *testing.T) {
	d := device(t)
	kiosk := func(version, mode string) string {
		image := build(t, bed.Shop{Ref: "kiosk/front:" + version, Version: version, Mode: mode, Service: "kiosk", Base: 512})
		return generate(t, d, "kiosk", "kiosk-"+version, version, `services:
  web:
    image: kiosk/front:`+version+`
    stop_grace_period: 2s
`, archive(t, image))
	}
	kioskProvides := func(p map[string]string, artifact, version string) map[string]string {
		p["artifact_name"], p["data-partition.kiosk.version"] = artifact, version
		return p
	}

	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	d.MustRun(t, "docker", "run", "-d", "--name", "mine", "shop/stock:1")
	mender(t, d, "install", kiosk("1", ""))
	mender(t, d, "commit")
	d.MustProvide(t, kioskProvides(provides("1"), "kiosk-1", "1"))
	before := d.MustState(t)

	same := func(other, service string) {
		t.Helper()
		after := d.MustState(t)
		require.Equal(t, before.Service(other, service), after.Service(other, service))
		require.Equal(t, before.Containers["mine"], after.Containers["mine"])
		require.Equal(t, before.Volumes, after.Volumes)
	}
	// One is updated, then fails, then is rolled back; the other is not affected.
	mender(t, d, "install", kiosk("2", ""))
	mender(t, d, "commit")
	same("shop", "web")
	menderFails(t, d, "install", kiosk("3", "crash"))
	same("shop", "web")
	same("shop", "stock")
	d.MustProvide(t, kioskProvides(provides("1"), "kiosk-2", "2"))

	mender(t, d, "install", release(t, d, "2", ""))
	mender(t, d, "rollback")
	kioskNow := d.MustState(t).Service("kiosk", "web")
	require.Equal(t, "kiosk/front:2", kioskNow.Ref)
	require.Equal(t, "running", kioskNow.Status)
	same("shop", "stock")
	d.MustProvide(t, kioskProvides(provides("1"), "kiosk-2", "2"))
}

// These are a person's actions between two updates: stop, which lasts over a restart
// of the engine, start, and purge without and with the data.
func TestStopStartPurge(t *testing.T) {
	d := device(t)
	w := watch(t, d)
	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	says(t, w, "web 1")
	visit(t, d, "1")
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
	menderFails(t, d, "install", release(t, d, "3", "crash"))
	require.Empty(t, running())
	d.MustRun(t, "mender-app", "start", "shop")
	says(t, w, "web 1")
	visit(t, d, "2")

	// If something that should run does not, the exit code is 6.
	d.MustRun(t, "bash", "-ec", "docker stop -t 0 $(docker ps --quiet --filter label=com.docker.compose.service=web)")
	r, err := d.Run("mender-app", "health", "shop")
	require.NoError(t, err)
	require.Equal(t, 6, r.Code, r.Output())
	require.Contains(t, r.Output(), "down")
	d.MustRun(t, "mender-app", "start", "shop")
	says(t, w, "web 1")

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

	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	visit(t, d, "3") // the data was kept
	d.MustRun(t, "mender-app", "purge", "shop", "--data", "--force")
	require.Empty(t, d.MustState(t).Volumes)
}
