package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

const host2 = "network_mode: none"

func compose(app, more string) map[string]string {
	return map[string]string{"docker-compose.yml": "services:\n  web:\n    image: " + app + ":1\n    " + host2 + "\n    stop_grace_period: 1s\n" + more}
}

// serviceText is one more service of a Compose file; more of its keys may follow.
func serviceText(name, image string) string {
	return "  " + name + ":\n    image: " + image + "\n    " + host2 + "\n    stop_grace_period: 1s\n"
}

func TestLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	v1 := b.load("1")
	// Staged: only the application's own reference is there.
	require.Nil(t, b.tags(b.app+":1"))
	require.Nil(t, b.tags(b.app+"-other:9"))
	own := imagestore.OwnRef(b.app, "sha256:"+"00")
	require.Contains(t, own, b.app)
	list, err := b.mod.List(ctx, submodules.Request{App: b.app})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, v1.Digest, list[0].Digest)
	require.Equal(t, v1.DiffIDs, list[0].DiffIDs)

	side := serviceText("side", b.app+":1")
	req := submodules.Request{App: b.app, Dir: b.release("1", compose(b.app, side)), Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(ctx, req))
	web, sidecar := b.one("web"), b.one("side")
	require.Equal(t, b.app, web.Labels[labelProject])
	ok, err := b.mod.Alive(ctx, submodules.Request{App: b.app})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = b.mod.Healthy(ctx, submodules.Request{App: b.app})
	require.NoError(t, err)
	require.True(t, ok)

	// The same again changes nothing.
	require.NoError(t, b.mod.Rollout(ctx, req))
	require.Equal(t, web.ID, b.one("web").ID)

	// A second release: web gets another command, side stays.
	req.Dir = b.release("2", compose(b.app, "    command: [sleep, more]\n"+side))
	require.NoError(t, b.mod.Rollout(ctx, req))
	require.NotEqual(t, web.ID, b.one("web").ID)
	require.Equal(t, sidecar.ID, b.one("side").ID)
	require.Equal(t, sidecar.Created, b.one("side").Created)

	// Stop, start.
	require.NoError(t, b.mod.Stop(ctx, submodules.StopRequest{Request: req}))
	require.Equal(t, "exited", string(b.one("web").State))
	ok, err = b.mod.Alive(ctx, submodules.Request{App: b.app})
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, b.mod.Stop(ctx, submodules.StopRequest{Request: req}))
	require.NoError(t, b.mod.Start(ctx, req))
	require.Equal(t, "running", string(b.one("web").State))

	// Export.
	out := filepath.Join(t.TempDir(), "export")
	require.NoError(t, b.mod.ExportManifest(ctx, submodules.Request{App: b.app, Dir: out}))
	got, err := os.ReadFile(filepath.Join(out, "docker-compose.yml"))
	require.NoError(t, err)
	require.Contains(t, string(got), "more")

	// Purge.
	require.NoError(t, b.mod.Purge(ctx, submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.Empty(t, b.service("web"))
	require.Empty(t, b.service("side"))
	list, err = b.mod.List(ctx, submodules.Request{App: b.app})
	require.NoError(t, err)
	require.Empty(t, list)
	require.Nil(t, b.tags(b.app+":1"))
	require.NoError(t, b.mod.Purge(ctx, submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
}
