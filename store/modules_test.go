package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/containermodules"
)

// beside returns a store on a device of mender-container-modules, and that module's
// store, which has the project web.
func beside(t *testing.T) (*store.Store, string) {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join(dir, "current/manifests")
	require.NoError(t, os.MkdirAll(at, 0o755))
	for name, text := range map[string]string{
		"manifests/docker-compose.yml": "name: other\nservices:\n  web:\n    image: web:1\n  side:\n    image: side:1\n", "project_name": "web\n", "image_ids": "0123456789ab\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "current", name), []byte(text), 0o644))
	}
	return newStore(t).Beside(containermodules.At(dir)), dir
}

func checkModulesAdopted(t *testing.T, a *store.App, dir string) {
	t.Helper()
	require.Equal(t, store.AdoptedID, a.Current)
	require.Equal(t, store.AdoptedID, a.Pointed())
	require.Equal(t, dir, a.AdoptedFrom)
	r, err := a.Release(a.Current)
	require.NoError(t, err)
	require.True(t, r.Adopted)
	require.Len(t, r.Components, 2)
	require.FileExists(t, filepath.Join(a.ManifestsDir(), "docker-compose.yml"))
	env, err := os.ReadFile(filepath.Join(a.ManifestsDir(), ".env"))
	require.NoError(t, err)
	require.Equal(t, "COMPOSE_PROJECT_NAME=web\n", string(env))
	require.FileExists(t, filepath.Join(dir, "current/manifests/docker-compose.yml"), "what the module would read is still there")
	require.NoFileExists(t, filepath.Join(dir, "current/manifests/.env"))
}

func TestAdoptFromModules(t *testing.T) {
	s, dir := beside(t)
	apps, err := s.Apps()
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, apps)
	require.True(t, s.Legacy("web"))
	require.False(t, s.Legacy("other"))
	require.Equal(t, "docker-compose", s.LegacyOrchestrator("web"))
	require.Empty(t, s.LegacyOrchestrator("other"))
	_, err = s.App("web")
	require.ErrorIs(t, err, store.ErrNoApp)
	require.EqualError(t, err, "web is not adopted yet: install an artifact for it first")

	a, err := adopt(s)
	require.NoError(t, err)
	checkModulesAdopted(t, a, dir)
	require.False(t, s.Legacy("web"))
	require.Empty(t, s.LegacyOrchestrator("web"))
	apps, err = s.Apps()
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, apps)
	_, err = adopt(s)
	require.ErrorIs(t, err, store.ErrNoApp, "only once")

	for range 2 {
		require.NoError(t, a.DropLegacy())
		require.NoDirExists(t, filepath.Join(dir, "current"))
	}
	a, err = s.App("web")
	require.NoError(t, err)
	require.Empty(t, a.AdoptedFrom)
	require.FileExists(t, filepath.Join(a.ManifestsDir(), "docker-compose.yml"))
	require.Empty(t, a.Rival())

	// The module goes on with a project of this name.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "current/manifests"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "current/project_name"), []byte("web\n"), 0o644))
	require.Equal(t, dir, a.Rival())
}

// A damaged state file is rebuilt with where the application came from.
func TestRescueAdoptedFromModules(t *testing.T) {
	s, dir := beside(t)
	a, err := adopt(s)
	require.NoError(t, err)
	require.Empty(t, a.Rival())
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir(), "app.json"), []byte("{tor"), 0o644))
	a, _, err = s.Rescue("web")
	require.NoError(t, err)
	checkModulesAdopted(t, a, dir)
	require.Empty(t, a.Rival())
}

// An application that is removed before its first commit does not come back from the
// module's files. Another project in them stays.
func TestForgetAdoptedFromModules(t *testing.T) {
	s, dir := beside(t)
	a, err := adopt(s)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "previous/manifests"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "previous/project_name"), []byte("mine\n"), 0o644))
	require.NoError(t, a.Forget())
	apps, err := s.Apps()
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, apps)
}

// An adoption that is stopped at any step leaves the module's project or the adopted
// one, and a repetition works.
func TestAdoptFromModulesStopsAnywhere(t *testing.T) {
	var at string
	adoptStopped(t, func(t *testing.T) (*store.Store, string) {
		s, dir := beside(t)
		at = dir
		return s, filepath.Join(dir, "current/manifests/docker-compose.yml")
	}, func(t *testing.T, _ *store.Store, a *store.App) { checkModulesAdopted(t, a, at) })
}
