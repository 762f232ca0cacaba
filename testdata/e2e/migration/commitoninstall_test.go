package migration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// With commit_on_install, an installation by hand is final with both clients, and one
// that fails is still rolled back.
func TestCommitOnInstall(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			d.MustRun(t, "sh", "-c", "echo 'commit_on_install = true' >>/etc/mender/mender-app.conf")
			w := e2e.Watch(t, d)
			committed := func(version, where string) {
				t.Helper()
				e2e.Says(t, w, "web "+version)
				d.MustProvide(t, e2e.Provides(version))
				require.NotContains(t, d.MustRun(t, "mender-app", "list"), "commit", where)
			}
			install := func(file string) bed.Result {
				t.Helper()
				r, err := d.Mender("install", file)
				require.NoError(t, err)
				require.NotContains(t, r.Output(), "until its commit")
				return r
			}
			one, two := e2e.Release(t, d, "1", ""), e2e.Release(t, d, "2", "")
			require.Zero(t, install(one).Code)
			committed("1", "installed")
			require.NotZero(t, install(e2e.Release(t, d, "3", "unhealthy")).Code)
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
			e2e.Says(t, w, "web 1")
			require.Zero(t, install(two).Code)
			committed("2", "installed after a kill")
			d.MustRun(t, "mender-app", "verify", "shop")

			// A client that did not get the order to install has rollbacks of its own.
			d.MustRun(t, "sh", "-c", "mkdir -p /run/tree/header && cd /run/tree && touch header/meta-data && "+
				"[ $(/usr/share/mender/modules/v3/app SupportsRollback /run/tree) = Yes ]")
		})
	}
}
