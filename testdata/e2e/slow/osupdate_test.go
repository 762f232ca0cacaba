package slow

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The engine's data or the store, or both, lie on the root file system, which an update of
// the operating system replaces. Without the engine's data deltas are refused, and whole
// images install. Under the key rootfs-image the Mender client knows that the application
// is gone; under the default key the module finds it out.
func TestStoreGoesWithTheOS(t *testing.T) {
	d := e2e.Device(t)
	d.MustRun(t, "bash", "-ec", `echo persistent_store=/var/lib/applications >>/etc/mender/mender-app.conf`)
	w := e2e.Watch(t, d)
	one, two := e2e.Web(t, "1", ""), e2e.Web(t, "2", "")
	for _, c := range []struct{ filesystem, gone, after, refusal string }{
		{"rootfs-image", "/var/lib/applications /var/lib/docker/*", "", "rootfs-image.shop.version"},
		{"data-partition", "/var/lib/applications /var/lib/docker/*", "1", "the delta needs an image that this device does not have"},
		{"data-partition", "/var/lib/docker/*", "1", "the delta needs an image that this device does not have"},
		{"data-partition", "/var/lib/applications", "1", ""},
	} {
		t.Logf("%s is gone, the version is in %s", c.gone, c.filesystem)
		key := []string{"--software-filesystem", c.filesystem}
		e2e.Mender(t, d, "install", e2e.Release(t, d, "1", "", key...))
		e2e.Mender(t, d, "commit")
		e2e.Says(t, w, "web 1")

		e2e.Mender(t, d, "install", e2e.OSUpdate(t, d))
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "bash", "-ec", "rm -rf "+c.gone)
		require.NoError(t, d.StartEngine())
		e2e.Mender(t, d, "commit")
		require.Equal(t, c.after, e2e.MustProvides(t, d)[c.filesystem+".shop.version"])

		next := e2e.ReleaseOver(t, d, "2", d.Share("shop-1.mender"), one, two, key...)
		if c.refusal != "" {
			before := e2e.Unchanging(d.MustState(t))
			require.Contains(t, e2e.MenderFails(t, d, "install", next), c.refusal)
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
			next = e2e.Release(t, d, "2", "", key...)
		}
		e2e.Mender(t, d, "install", next)
		e2e.Mender(t, d, "commit")
		e2e.Says(t, w, "web 2")
		r, err := d.Run("mender-app", "verify", "shop")
		require.NoError(t, err)
		if strings.HasPrefix(c.gone, "/var/lib/docker") { // the store still has release 1
			require.Contains(t, r.Output(), "-shop-1: shop/web:1: image with config")
			require.NotContains(t, r.Output(), "shop/web:2")
		} else {
			require.Zero(t, r.Code, r.Output())
		}
	}
	d.MustRun(t, "mender-app", "purge", "--force", "shop")
}
