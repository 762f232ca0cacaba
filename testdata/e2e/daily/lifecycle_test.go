// Package daily tests what a device does each day: it installs, updates, rolls back and
// repairs applications, and shows an operator what it runs. make test runs it.
package daily

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The main job: install, update, a failing update, an update taken back.
func TestInstallUpdateFailAndRollBack(t *testing.T) {
	e2e.OnEngines(t, e2e.InstallUpdateFailAndRollBack)
}

// Each way in which a release can be bad ends in the previous one, with the
// service's last words in the output.
func TestBadReleaseEndsInTheOldOne(t *testing.T) {
	d := e2e.DeviceAsShipped(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	before := d.MustState(t)

	for _, mode := range []string{"crash", "unhealthy"} {
		t.Run(mode, func(t *testing.T) {
			// Install two in a row: the second must not be confused by what the
			// first left.
			for range 2 {
				said := e2e.MenderFails(t, d, "install", e2e.Release(t, d, "2", mode))
				if mode == "crash" {
					require.Contains(t, said, "the till is on fire")
				}
				e2e.Says(t, w, "web 1")
				d.MustProvide(t, e2e.Provides("1"))
				e2e.SameApplication(t, before, d.MustState(t))
			}
		})
	}
}

// The data of an application that is gone is named, with the command that removes it.
func TestDataThatStaysIsNamed(t *testing.T) {
	d := e2e.Device(t)
	text := strings.Replace(e2e.Compose("1"), `["counts:/var/shop"]`, `["counts:/var/shop", "./notes:/notes", "/cache"]`, 1)
	file := e2e.Generate(t, d, "shop", "shop-1", "1", text, e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t)))
	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", "--commit", file)
	d.MustRun(t, "bash", "-ec", "echo text >/data/mender-app/shop/data/notes/one")
	require.NotContains(t, d.MustRun(t, "mender-app", "status"), "removed")
	d.MustRun(t, "mender-app", "purge", "--force", "shop")
	before := d.MustState(t)

	said := d.MustRun(t, "mender-app", "status")
	require.Regexp(t, `^shop was removed, its data was not: volume shop_counts, volume [0-9a-f]{64} \(/cache of service stock\), directory /data/mender-app/shop/data; mender-app purge shop --data removes it\n$`, said)
	r, err := d.Run("mender-app", "status", "shop")
	require.NoError(t, err)
	require.Equal(t, 4, r.Code, r.Output())
	require.Contains(t, r.Stderr, "its data was not removed: volume shop_counts, ")
	require.Equal(t, before, d.MustState(t), "status changed something")

	d.MustRun(t, "mender-app", "purge", "shop", "--data")
	require.Empty(t, d.MustRun(t, "mender-app", "status"))
	require.Empty(t, d.MustState(t).Volumes)
}

// The first release that fails leaves nothing behind.
func TestFirstInstallThatFailsLeavesNothing(t *testing.T) {
	d := e2e.DeviceAsShipped(t)
	before := d.MustState(t)
	e2e.MenderFails(t, d, "install", e2e.Release(t, d, "1", "unhealthy"))
	after := d.MustState(t)
	require.Empty(t, after.Containers)
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Networks, after.Networks)
	d.MustProvide(t, before.Provides)
}
