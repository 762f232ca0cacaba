package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// A person may keep each release in a directory of its own. The application is the same
// one: its release is replaced, whichever directory it came from, and what did not change
// stays. A call that is killed on the way loses nothing.
func TestReleaseFromAnotherDirectory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	components := []submodules.Component{b.load("1")}
	data := "    volumes: [\"data:/data\"]\n"
	volumes := "volumes:\n  data:\n"
	write := func(name, text string) submodules.Request {
		t.Helper()
		dir := filepath.Join(b.store, name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(text), 0o644))
		return submodules.Request{App: b.app, Dir: dir, Components: components}
	}
	web := func(env string) string {
		return compose(b.app, data+"    environment: {RELEASE: \""+env+"\"}\n")["docker-compose.yml"]
	}
	extra := serviceText("extra", b.app+":1")
	first := write("1", web("1")+extra+volumes)
	fewer := write("2", web("1")+volumes)
	changed := write("3", web("3")+extra+volumes)

	// now returns the IDs of what runs, by service.
	now := func() map[string]string {
		t.Helper()
		ids := map[string]string{}
		all, err := b.cli.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelProject+"="+b.app))})
		require.NoError(t, err)
		for _, c := range all {
			require.Empty(t, ids[c.Labels[labelService]], "two containers of one service")
			ids[c.Labels[labelService]] = c.ID
		}
		return ids
	}
	runs := func(req submodules.Request) map[string]string {
		t.Helper()
		healthy, err := b.mod.Healthy(ctx, submodules.Request{App: b.app})
		require.NoError(t, err)
		require.True(t, healthy)
		out := filepath.Join(t.TempDir(), "exported")
		require.NoError(t, b.mod.ExportManifest(ctx, submodules.Request{App: b.app, Dir: out}))
		got, err := os.ReadFile(filepath.Join(out, "compose.yaml"))
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join(req.Dir, "compose.yaml"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "EXPORT_MANIFEST writes what runs")
		return now()
	}

	require.NoError(t, b.mod.Rollout(ctx, first))
	was := runs(first)
	vol, err := b.cli.VolumeInspect(ctx, b.app+"_data")
	require.NoError(t, err)

	require.NoError(t, b.mod.Rollout(ctx, changed))
	is := runs(changed)
	require.Equal(t, was["extra"], is["extra"], "it did not change")
	require.NotEqual(t, was["web"], is["web"])

	require.NoError(t, b.mod.Rollback(ctx, submodules.RollbackRequest{Request: first}))
	is = runs(first)
	require.Equal(t, was["extra"], is["extra"])

	changes, err := b.mod.Check(ctx, fewer)
	require.NoError(t, err)
	require.Equal(t, []string{"extra"}, changes.Removes)
	require.NoError(t, b.mod.Rollout(ctx, fewer))
	require.Len(t, runs(fewer), 1, "a service that the release no longer has is gone")

	// Killed at each thing that it says, and then taken back or made again.
	log := b.mod.Config.Log
	for at := 1; ; at++ {
		require.Less(t, at, 100)
		said, killed := 0, false
		b.mod.Config.Log = func(line string) {
			log(line)
			if said++; said == at {
				killed = exec.Command("pkill", "-9", "-P", strconv.Itoa(os.Getpid()), "-f", " ROLLOUT "+b.app).Run() == nil
			}
		}
		err := b.mod.Rollout(ctx, changed)
		b.mod.Config.Log = log
		if !killed {
			require.NoError(t, err)
			break
		}
		if at%2 == 0 {
			require.NoError(t, b.mod.Rollout(ctx, changed))
			runs(changed)
		}
		require.NoError(t, b.mod.Rollback(ctx, submodules.RollbackRequest{Request: fewer}))
		require.Len(t, runs(fewer), 1)
	}
	runs(changed)
	require.NoError(t, b.mod.Stop(ctx, submodules.StopRequest{Request: changed}))
	require.NoError(t, b.mod.Start(ctx, changed))
	runs(changed)

	// From by hand to the store of mender-app.
	link := b.release("store", map[string]string{"compose.yaml": web("4") + volumes})
	require.NoError(t, b.mod.Rollout(ctx, submodules.Request{App: b.app, Dir: link, Components: components}))
	require.Equal(t, map[string]string{"web": b.one("web").ID}, now())

	again, err := b.cli.VolumeInspect(ctx, b.app+"_data")
	require.NoError(t, err)
	require.Equal(t, vol.CreatedAt, again.CreatedAt)

	// The directory of one application is no way into another one.
	other := newBench(t)
	otherWeb := strings.ReplaceAll(web("5"), "  web:", "  theirs:")
	require.NoError(t, os.WriteFile(filepath.Join(first.Dir, "compose.yaml"), []byte("name: "+b.app+"\n"+otherWeb+volumes), 0o644))
	err = other.mod.Rollout(ctx, submodules.Request{App: other.app, Dir: first.Dir})
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "in use by container "+b.app+"-web-1")
	require.Equal(t, map[string]string{"web": b.one("web").ID}, now())

	require.NoError(t, b.mod.Purge(ctx, submodules.PurgeRequest{Request: submodules.Request{App: b.app}, Data: true}))
	require.Empty(t, now())
	list, err := b.cli.VolumeList(ctx, volume.ListOptions{})
	require.NoError(t, err)
	for _, v := range list.Volumes {
		require.NotEqual(t, b.app+"_data", v.Name)
	}
}
