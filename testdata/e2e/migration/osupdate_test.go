package migration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// An update of the operating system clears rootfs-image.*, as mender-artifact
// writes it. The applications lie on the data partition and are still there, so a
// delta installs afterwards.
func TestDeltaAfterAnOSUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			one, two, three := e2e.Web(t, "1", ""), e2e.Web(t, "2", ""), e2e.Web(t, "3", "")

			// The first release came under the key of the shell generator.
			e2e.Mender(t, d, "install", e2e.Release(t, d, "1", "", "--software-filesystem", "rootfs-image"))
			e2e.Mender(t, d, "commit")
			require.Equal(t, "1", e2e.MustProvides(t, d)["rootfs-image.shop.version"])
			e2e.Mender(t, d, "install", e2e.ReleaseOver(t, d, "2", d.Share("shop-1.mender"), one, two))
			e2e.Mender(t, d, "commit")
			d.MustProvide(t, e2e.Provides("2"))

			e2e.Mender(t, d, "install", e2e.OSUpdate(t, d))
			e2e.Mender(t, d, "commit")
			d.MustProvide(t, map[string]string{
				"artifact_name": "os-2", "rootfs-image.version": "os-2", "data-partition.shop.version": "2",
			})

			e2e.Mender(t, d, "install", e2e.ReleaseOver(t, d, "3", d.Share("shop-2.mender"), two, three))
			e2e.Mender(t, d, "commit")
			p := e2e.Provides("3")
			p["rootfs-image.version"] = "os-2"
			d.MustProvide(t, p)
			d.MustRun(t, "mender-app", "verify", "shop")
		})
	}
}
