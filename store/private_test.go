package store_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

// TestPrivate: nobody but root enters a store, and one of an earlier version is made
// private by the next call.
func TestPrivate(t *testing.T) {
	s := store.At(filepath.Join(t.TempDir(), "data", "store"))
	mode := func(path string) fs.FileMode {
		t.Helper()
		fi, err := os.Stat(path)
		require.NoError(t, err)
		return fi.Mode().Perm()
	}
	require.NoError(t, s.Protect())
	require.EqualValues(t, 0o700, mode(s.Dir()))
	require.NoError(t, s.Prepare())
	a, err := s.Create("web")
	require.NoError(t, err)
	require.NoError(t, a.PutRelease(&store.Release{ID: "1-web", Orchestrator: "fake"}))
	require.NoError(t, a.Save())
	for _, dir := range []string{s.Dir(), a.Dir(), filepath.Join(a.Dir(), "releases")} {
		require.EqualValues(t, 0o700, mode(dir), dir)
	}
	require.EqualValues(t, 0o600, mode(filepath.Join(a.Dir(), "app.json")))
	require.EqualValues(t, 0o600, mode(filepath.Join(a.Dir(), "releases/1-web/release.json")))
	require.EqualValues(t, 0o755, mode(a.ReleaseManifests("1-web")), "a service may mount it")

	// What an earlier version made, and what the shell reference left beside it.
	require.NoError(t, os.MkdirAll(filepath.Join(s.Dir(), "web-last/manifests"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(s.Dir(), "old/manifests"), 0o755))
	open := func() {
		for _, dir := range []string{s.Dir(), a.Dir(), s.Meta("")} {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
	open()
	require.NoError(t, s.Protect())
	for _, dir := range []string{s.Dir(), a.Dir(), s.Meta("")} {
		require.EqualValues(t, 0o700, mode(dir), dir)
	}

	// Whoever has other things in the directory can still use them.
	require.NoError(t, os.Mkdir(filepath.Join(s.Dir(), "pictures"), 0o755))
	open()
	require.NoError(t, s.Protect())
	require.EqualValues(t, 0o755, mode(s.Dir()))
	require.EqualValues(t, 0o700, mode(a.Dir()))
	require.EqualValues(t, 0o700, mode(s.Meta("")))
	require.EqualValues(t, 0o755, mode(filepath.Join(s.Dir(), "pictures")))
}
