package migration

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// Without a Mender client, mender-app installs, commits and rolls back, and reports
// what is installed and what happened.
func TestWithoutMenderClient(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	w := e2e.Watch(t, d)
	own := func(args ...string) { t.Helper(); d.MustRun(t, "mender-app", args...) }

	r, err := d.Run("mender-app", "install", e2e.Release(t, d, "1", ""))
	require.NoError(t, err)
	require.Equal(t, 9, r.Code, r.Output())
	require.Contains(t, r.Output(), "--unsigned", "it is not signed, and there is no key")
	own("install", "--unsigned", e2e.Release(t, d, "1", ""))
	e2e.Says(t, w, "web 1")
	own("commit")
	own("install", "--unsigned", "--commit", e2e.Release(t, d, "2", ""))
	e2e.Says(t, w, "web 2")
	require.Equal(t, "shop-2", e2e.CurrentRelease(t, d))
	at2 := d.MustState(t)

	r, err = d.Run("mender-app", "install", "--unsigned", e2e.Release(t, d, "3", "crash"))
	require.NoError(t, err)
	require.Equal(t, 6, r.Code, r.Output())
	require.Contains(t, r.Output(), "the till is on fire")
	e2e.Says(t, w, "web 2")
	e2e.SameApplication(t, at2, d.MustState(t))

	own("install", "--unsigned", e2e.Release(t, d, "4", ""))
	e2e.Says(t, w, "web 4")
	own("rollback")
	e2e.Says(t, w, "web 2")
	require.Equal(t, "shop-2", e2e.CurrentRelease(t, d))

	// The release before the last commit is kept, so a rollback can return to it.
	own("rollback", "shop")
	e2e.Says(t, w, "web 1")
	require.Equal(t, "shop-1", e2e.CurrentRelease(t, d))
	own("verify", "shop")

	var history []struct {
		Artifact string `json:"artifact_name"`
		Status   string `json:"status"`
	}
	require.NoError(t, json.Unmarshal([]byte(d.MustRun(t, "mender-app", "history", "shop", "--json")), &history))
	var told []string
	for _, h := range history {
		told = append(told, h.Artifact+" "+h.Status)
	}
	require.Subset(t, told, []string{"shop-1 installed", "shop-2 installed", "shop-3 rolled-back", "shop-4 rolled-back"})

	damaged := e2e.Release(t, d, "5", "")
	d.MustRun(t, "truncate", "--size=-5000", damaged)
	before := e2e.Unchanging(d.MustState(t))
	r, err = d.Run("mender-app", "install", "--unsigned", damaged)
	require.NoError(t, err)
	require.Equal(t, 5, r.Code, r.Output())
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
}
