package compose

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// The shell reference ran every application as the project "manifests", after
// the directory. Its containers are adopted: they stay, and so do those of the
// other application in the same project.
func TestAdoption(t *testing.T) {
	t.Parallel()
	a, b := newBench(t), newBench(t)
	benches := []*bench{a, b}
	for _, x := range benches {
		v1 := x.load("1")
		require.NoError(t, x.cli.ImageTag(t.Context(), x.id("mender-app.local/"+x.app+":"+v1.Digest.Hex()), x.app+":1"))
		text := compose(x.app, serviceText("old-"+x.app, x.app+":1"))["docker-compose.yml"]
		files := map[string]string{"docker-compose.yml": strings.ReplaceAll(text, "web:", "web-"+x.app+":")}
		dir := x.release("legacy", files)
		cmd := exec.Command("docker", "compose", "--project-directory", dir, "up", "-d")
		cmd.Dir = dir
		cmd.Env = append(cmd.Environ(), "DOCKER_HOST="+host(), "PWD="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	web, other := a.one("web-"+a.app), b.one("web-"+b.app)
	require.Equal(t, "manifests", web.Labels[labelProject])
	for _, x := range benches {
		ok, err := x.mod.Healthy(t.Context(), submodules.Request{App: x.app})
		require.NoError(t, err)
		require.True(t, ok, "before anything was installed by us")
	}

	v1 := a.load("1")
	files := map[string]string{"docker-compose.yml": strings.ReplaceAll(compose(a.app, "")["docker-compose.yml"], "web:", "web-"+a.app+":")}
	require.NoError(t, a.mod.Rollout(t.Context(), submodules.Request{App: a.app, Dir: a.release("1", files), Components: []submodules.Component{v1}}))
	require.Equal(t, web.ID, a.one("web-"+a.app).ID, "what did not change stays")
	require.Equal(t, web.Created, a.one("web-"+a.app).Created)
	require.Empty(t, a.service("old-"+a.app))
	require.Equal(t, other.ID, b.one("web-"+b.app).ID)
	b.one("old-" + b.app)

	// A service of the same name as the other application's is refused.
	files["docker-compose.yml"] = strings.ReplaceAll(files["docker-compose.yml"], "web-"+a.app, "web-"+b.app)
	err := a.mod.Rollout(t.Context(), submodules.Request{App: a.app, Dir: a.release("2", files), Components: []submodules.Component{v1}})
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, filepath.Join(b.store, b.app, "manifests"))

	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.Equal(t, web.ID, a.one("web-"+a.app).ID)
	require.NoError(t, a.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: a.app}}))
}
