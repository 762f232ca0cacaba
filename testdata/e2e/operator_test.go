package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Without a Mender client, mender-app installs, commits and rolls back, and reports
// what is installed and what happened.
func TestWithoutMenderClient(t *testing.T) {
	d := device(t)
	require.NoError(t, d.WithoutMender())
	w := watch(t, d)
	own := func(args ...string) { t.Helper(); d.MustRun(t, "mender-app", args...) }

	r, err := d.Run("mender-app", "install", release(t, d, "1", ""))
	require.NoError(t, err)
	require.Equal(t, 9, r.Code, r.Output())
	require.Contains(t, r.Output(), "--unsigned", "it is not signed, and there is no key")
	own("install", "--unsigned", release(t, d, "1", ""))
	says(t, w, "web 1")
	own("commit")
	own("install", "--unsigned", "--commit", release(t, d, "2", ""))
	says(t, w, "web 2")
	require.Equal(t, "shop-2", current(t, d))
	at2 := d.MustState(t)

	r, err = d.Run("mender-app", "install", "--unsigned", release(t, d, "3", "crash"))
	require.NoError(t, err)
	require.Equal(t, 6, r.Code, r.Output())
	require.Contains(t, r.Output(), "the till is on fire")
	says(t, w, "web 2")
	sameApplication(t, at2, d.MustState(t))

	own("install", "--unsigned", release(t, d, "4", ""))
	says(t, w, "web 4")
	own("rollback")
	says(t, w, "web 2")
	require.Equal(t, "shop-2", current(t, d))

	// The release before the last commit is kept, so a rollback can return to it.
	own("rollback", "shop")
	says(t, w, "web 1")
	require.Equal(t, "shop-1", current(t, d))
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

	damaged := release(t, d, "5", "")
	d.MustRun(t, "truncate", "--size=-5000", damaged)
	before := unchanging(d.MustState(t))
	r, err = d.Run("mender-app", "install", "--unsigned", damaged)
	require.NoError(t, err)
	require.Equal(t, 5, r.Code, r.Output())
	require.Equal(t, before, unchanging(d.MustState(t)))
}

// current is the name of the artifact that mender-app says is installed.
func current(t *testing.T, d *bed.Device) string {
	t.Helper()
	var apps []struct {
		Artifact string `json:"artifact_name"`
	}
	text := d.MustRun(t, "mender-app", "list", "--json")
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&apps))
	require.Len(t, apps, 1)
	return apps[0].Artifact
}
