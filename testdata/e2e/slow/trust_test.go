package slow

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

const storeLock = "/data/mender-app/.mender-app/lock"

// nobody is the command that runs another one as a user without rights.
var nobody = []string{"--reuid=65534", "--regid=65534", "--clear-groups"}

// A user without rights holds every lock that he can, also one in a store of an
// earlier version. The Mender client can still roll back.
func TestOtherUserCannotBlock(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	e2e.Mender(t, d, "install", e2e.Release(t, d, "2", ""))
	e2e.Says(t, w, "web 2")
	d.MustRun(t, "chmod", "0755", filepath.Dir(filepath.Dir(storeLock)), filepath.Dir(storeLock))
	d.MustRun(t, "chmod", "0644", storeLock)
	holder := d.Command(t.Context(), "setpriv", append(nobody, "flock", "--exclusive", storeLock, "sleep", "1000")...)
	require.NoError(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	require.Eventually(t, func() bool {
		r, err := d.Run("flock", "--nonblock", "--exclusive", storeLock, "true")
		return err == nil && r.Code == 1
	}, 10*time.Second, 100*time.Millisecond, "the lock is not held")

	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	d.MustProvide(t, e2e.Provides("1"))
	require.Equal(t, "600", d.MustRun(t, "stat", "--format=%a", storeLock)[:3])
	require.Equal(t, "700", d.MustRun(t, "stat", "--format=%a", filepath.Dir(storeLock))[:3])
	r, err := d.Run("setpriv", append(nobody, "flock", "--nonblock", "--exclusive", storeLock, "true")...)
	require.NoError(t, err)
	require.Contains(t, r.Output(), "Permission denied")
}
