package daily

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// A release that its policy leaves to a person stays as it failed, and each client says
// so. Another artifact replaces it, and a person goes back.
func TestFailedReleaseStays(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			policy := e2e.LeftToPerson(t)
			left := func(version string) {
				t.Helper()
				e2e.MenderFails(t, d, "install", e2e.Release(t, d, version, "crash", "--policy", policy))
				got := e2e.MustProvides(t, d)
				require.Equal(t, "shop-"+version+"_INCONSISTENT", got["artifact_name"])
				require.Equal(t, version, got["data-partition.shop.version"], "the release that is there")
				require.Regexp(t, `shop +\S+ +shop-`+version+` +docker-compose +failed\n`, d.MustRun(t, "mender-app", "list"))
				r, err := d.Run("mender-app", "status", "shop")
				require.NoError(t, err)
				require.Equal(t, 6, r.Code, r.Output())
				require.Contains(t, r.Output(), "mender-app rollback shop goes back")
				require.Contains(t, d.MustRun(t, "mender-app", "history", "shop", "--status", "failed"), "shop-"+version)
				require.Equal(t, "nothing to resume\n", d.MustRun(t, "mender-app", "resume"))
			}
			e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
			e2e.Mender(t, d, "commit")
			w := e2e.Watch(t, d)
			left("2")

			e2e.Mender(t, d, "install", e2e.Release(t, d, "3", ""))
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 3")
			d.MustProvide(t, e2e.Provides("3"))

			left("4")
			d.MustRun(t, "mender-app", "rollback", "shop")
			e2e.Says(t, w, "web 3")
			require.NotContains(t, d.MustRun(t, "mender-app", "list"), "failed")
		})
	}
}
