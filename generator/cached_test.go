package generator

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/source"
)

// With what an earlier run kept, an artifact has the same bytes, its deltas are not encoded,
// and no layer is read. What is damaged in the cache is made anew.
func TestCache(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes several artifacts; left out of -short")
	}
	s := newShop(t)
	o := s.options(t, "web:1,web:2", "side:1", "extra:1")
	o.Images.Coding = Coded
	var encoded, read atomic.Int64
	o.Build.Progress = func(e source.Event) {
		switch e.Stage {
		case "encode":
			encoded.Add(1)
		case "read":
			read.Add(1)
		}
	}
	dir := filepath.Join(t.TempDir(), "cache")
	made := func(cache string) string {
		t.Helper()
		encoded.Store(0)
		read.Store(0)
		o.Build.CacheDir, o.Build.CacheLimit = cache, 1<<20
		r, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		if cache != "" && cache != dir {
			require.Equal(t, 2, len(r.Warnings)+len(r.Notes), "%q %q", r.Warnings, r.Notes)
			require.Contains(t, r.Notes[0], "the cache does not work")
		}
		b, err := os.ReadFile(o.Build.Output)
		require.NoError(t, err)
		return string(b)
	}
	want := made("")
	require.Positive(t, encoded.Load())
	require.Equal(t, want, made(dir))
	require.Positive(t, encoded.Load())
	require.Positive(t, read.Load())
	require.Equal(t, want, made(dir))
	require.Zero(t, encoded.Load(), "every delta was kept")
	require.Zero(t, read.Load(), "no content was needed")

	// other options, other deltas
	o.Images.FilesOnly = true
	made(dir)
	require.Positive(t, encoded.Load())
	o.Images.FilesOnly = false

	damage := map[string]func(b []byte, other []byte) []byte{
		"cut off":  func(b, _ []byte) []byte { return b[:len(b)/2] },
		"empty":    func(_, _ []byte) []byte { return nil },
		"garbage":  func(b, _ []byte) []byte { return []byte(strings.Repeat("x", len(b))) },
		"another":  func(_, other []byte) []byte { return other },
		"one byte": func(b, _ []byte) []byte { b[len(b)-20] ^= 1; return b },
	}
	for name, change := range damage {
		for _, kind := range []string{"delta", "report", "layer", "config"} {
			list, err := filepath.Glob(filepath.Join(dir, kind+"-*"))
			require.NoError(t, err)
			require.Greater(t, len(list), 1, kind)
			for i, path := range list {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				other, err := os.ReadFile(list[(i+1)%len(list)])
				require.NoError(t, err)
				if len(b) < 30 && name == "one byte" {
					continue
				}
				require.NoError(t, os.Remove(path))
				require.NoError(t, os.WriteFile(path, change(b, other), 0o600))
			}
			require.Equal(t, want, made(dir), "%s of %s", name, kind)
		}
	}

	// without a place for it there is no cache
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, want, made(file))
	require.Positive(t, encoded.Load())
}
