package deploy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store/containermodules"
)

// modulesRig is a device on which mender-container-modules has the project shop.
func modulesRig(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	besideModules(t, g)
	return g
}

// besideModules makes the project shop of mender-container-modules on a device.
func besideModules(t *testing.T, g *rig) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(dir+"/current/manifests", 0o755))
	writeFile(t, dir+"/current/manifests/docker-compose.yml", "services:\n  web:\n    image: web:1\n  job:\n    image: job:1\n")
	writeFile(t, dir+"/current/project_name", "shop\n")
	g.with = func(e *Engine) { e.Store = e.Store.Beside(containermodules.At(dir)) }
}

// Where the other module has a project of an application's name, an update would take
// its containers for the application's.
func TestRivalProjectIsRefused(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	besideModules(t, g)
	err := c.install(g.newTree(t, v2))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "mender-container-modules has installed a project shop too, in /")
	g.runs(t, "shop", &v1)
}

// The project of mender-container-modules is one of Docker Compose: an artifact for
// another orchestrator is refused, and nothing is adopted.
func TestAdoptionByAnotherOrchestrator(t *testing.T) {
	g := modulesRig(t)
	err := newClient(g, true).install(g.newTree(t, v1))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "shop runs under docker-compose and the artifact is for fake: give the application another name")
	require.True(t, g.engine().Store.Legacy("shop"))
}
