package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// With commit_on_install, an installation by hand is final with both clients, and one
// that fails is still rolled back.
func TestCommitOnInstall(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			d.MustRun(t, "sh", "-c", "echo 'commit_on_install = true' >>/etc/mender/mender-app.conf")
			w := watch(t, d)
			committed := func(version, where string) {
				t.Helper()
				says(t, w, "web "+version)
				d.MustProvide(t, provides(version))
				require.NotContains(t, d.MustRun(t, "mender-app", "list"), "commit", where)
			}
			install := func(file string) bed.Result {
				t.Helper()
				r, err := d.Mender("install", file)
				require.NoError(t, err)
				require.NotContains(t, r.Output(), "until its commit")
				return r
			}
			one, two := release(t, d, "1", ""), release(t, d, "2", "")
			require.Zero(t, install(one).Code)
			committed("1", "installed")
			require.NotZero(t, install(release(t, d, "3", "unhealthy")).Code)
			committed("1", "the failing release went back")

			// The next call finishes what a kill interrupted, as without the setting.
			client, resume := []string{"mender", "--no-syslog"}, []string{"mender-app", "resume"}
			if d.IsCppMender() {
				client, resume = []string{"mender-update"}, []string{"mender-update", "resume"}
			}
			args := append([]string{"MENDER_APP_FAULT=app ArtifactInstall/*:3:kill-both"}, append(client, "install", two)...)
			r, err := d.Run("env", args...)
			require.NoError(t, err)
			require.NotZero(t, r.Code)
			_, err = d.Run(resume[0], resume[1:]...) // its exit status is not all that counts
			require.NoError(t, err)
			says(t, w, "web 1")
			require.Zero(t, install(two).Code)
			committed("2", "installed after a kill")
			d.MustRun(t, "mender-app", "verify", "shop")

			// A client that did not get the order to install has rollbacks of its own.
			d.MustRun(t, "sh", "-c", "mkdir -p /run/tree/header && cd /run/tree && touch header/meta-data && "+
				"[ $(/usr/share/mender/modules/v3/app SupportsRollback /run/tree) = Yes ]")
		})
	}
}
