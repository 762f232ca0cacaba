package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// Two applications have one image, in the order in which they are installed, updated and
// removed. Nothing of either is left in the end.
func TestApplicationsShareAnImage(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"the first goes first": {"-a", "-b"}, "the first goes last": {"-b", "-a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			img, comp := b.image("1")
			archive := b.archive(img, b.app+"-other:9")
			requests := map[string]submodules.Request{}
			for _, suffix := range []string{"-a", "-b"} {
				app := b.app + suffix
				dir := filepath.Join(b.store, app, "releases", "1", "manifests")
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(compose(b.app, "")["docker-compose.yml"]), 0o600))
				require.NoError(t, os.Symlink("releases/1/manifests", filepath.Join(b.store, app, "manifests")))
				req := submodules.Request{App: app, Dir: filepath.Join(b.store, app, "manifests"), Components: []submodules.Component{comp}}
				requests[suffix] = req
				require.NoError(t, b.mod.Load(t.Context(), submodules.LoadRequest{Request: req, URL: comp.URL, Path: archive, Stage: true}))
				require.NoError(t, b.mod.Rollout(t.Context(), req))
			}
			for _, suffix := range order {
				require.NoError(t, b.mod.Stop(t.Context(), submodules.StopRequest{Request: requests[suffix]}))
				require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: requests[suffix]}))
			}
			require.Empty(t, b.docker("images", "-q", "--filter", "reference=mender-app.local/"+b.app+"*"))
			require.Empty(t, b.docker("images", "-q", b.app))
		})
	}
}

// Somebody's containers use an image by its ID alone. The application's name of it goes all
// the same, and they can be started as before.
func TestImageThatOthersUseByID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	req := submodules.Request{App: b.app, Dir: b.release("1", compose(b.app, "")), Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	id := b.id(b.app + ":1")
	for _, name := range []string{"runs", "stopped"} {
		b.docker("create", "--name", name+"-"+b.app, "--network", "none", "--stop-timeout", "1", id)
		t.Cleanup(func() { _, _ = b.tryDocker("rm", "-f", name+"-"+b.app) })
	}
	b.docker("start", "runs-"+b.app)
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req}))
	require.Empty(t, b.docker("images", "-q", "--filter", "reference=mender-app.local/"+b.app))
	require.Empty(t, b.docker("images", "-q", b.app))
	for _, name := range []string{"runs", "stopped"} {
		b.docker("stop", name+"-"+b.app)
		b.docker("start", name+"-"+b.app)
	}
	t.Cleanup(func() { _, _ = b.tryDocker("rmi", "-f", id) })
}
