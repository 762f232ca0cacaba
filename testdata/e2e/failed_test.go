package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A release that its policy leaves to a person stays as it failed, and each client says
// so. Another artifact replaces it, and a person goes back.
func TestFailedReleaseStays(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			policy := leftToPerson(t)
			left := func(version string) {
				t.Helper()
				menderFails(t, d, "install", release(t, d, version, "crash", "--policy", policy))
				got := mustProvides(t, d)
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
			mender(t, d, "install", release(t, d, "1", ""))
			mender(t, d, "commit")
			w := watch(t, d)
			left("2")

			mender(t, d, "install", release(t, d, "3", ""))
			mender(t, d, "commit")
			says(t, w, "web 3")
			d.MustProvide(t, provides("3"))

			left("4")
			d.MustRun(t, "mender-app", "rollback", "shop")
			says(t, w, "web 3")
			require.NotContains(t, d.MustRun(t, "mender-app", "list"), "failed")
		})
	}
}

// leftToPerson is the file of a policy that leaves a failed release to a person.
func leftToPerson(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(file, []byte("upgrades = {rollback_on_failure = false}\n"), 0o644))
	return file
}
