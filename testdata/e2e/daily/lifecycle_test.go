// Package daily tests what a device does each day: it installs, updates, rolls back and
// repairs applications, and shows an operator what it runs. make test runs it.
package daily

import (
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
