package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store"
)

// FuzzState: whatever is in app.json, it is an application that survives being
// written again, or an error that says so; no name leads out of the directory.
func FuzzState(f *testing.F) {
	for _, seed := range []string{
		`{"format":1,"application":"web","sequence":2,"current":"2-b","kept":["1-a"]}`,
		`{"format":1,"deployment":{"id":"1-a","to":"1-a","phase":"loaded","steps":[{"phase":"loaded","at":"2026-01-01T00:00:00Z"}],"x":{}}}`,
		`{"format":9}`, `{"format":1,"current":"../x"}`, `null`, `[]`, `{"kept":[""]}`, `{"deployment":{}}`, "\x00", `{"format":1}{`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	s := store.At(dir)
	path := filepath.Join(dir, "web", "app.json")
	require.NoError(f, os.MkdirAll(filepath.Dir(path), 0o755))
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o644))
		a, err := s.App("web")
		if err != nil {
			var corrupt *store.CorruptError
			require.True(t, errors.As(err, &corrupt) || errors.Is(err, store.ErrNewer), "%v", err)
			return
		}
		for _, id := range append([]string{a.Current}, a.Kept...) {
			require.True(t, id == "" || names.Check(id) == nil)
			_, _ = a.Release(id)
		}
		require.NoError(t, a.Save())
		b, err := s.App("web")
		require.NoError(t, err)
		require.Equal(t, a.Current, b.Current)
		require.Equal(t, a.Sequence, b.Sequence)
	})
}
