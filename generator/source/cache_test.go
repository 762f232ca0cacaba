package source

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c, err := OpenCache(dir, 100)
	require.NoError(t, err)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "what private registries have is in it")

	files := t.TempDir()
	path := func(name string) string { return filepath.Join(files, name) }
	take := func(hex string) string {
		t.Helper()
		to := path("taken")
		defer os.Remove(to)
		if err := c.Take(CacheKey{"blob", hex}, to); err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
			return ""
		}
		b, err := os.ReadFile(to)
		require.NoError(t, err)
		return string(b)
	}
	age := func(hex string, d time.Duration) {
		at := time.Now().Add(-d)
		require.NoError(t, os.Chtimes(filepath.Join(dir, "blob-"+hex), at, at))
	}
	total := func() (n int64) {
		list, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range list {
			if e.Name() != cacheTag {
				info, err := e.Info()
				require.NoError(t, err)
				n += info.Size()
			}
		}
		return n
	}

	require.Empty(t, take("a"))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(path(name), []byte(strings.Repeat(name, 40)), 0o600))
		require.NoError(t, c.Keep(CacheKey{"blob", name}, path(name)))
	}
	require.NoError(t, os.Remove(path("a")))
	age("a", 2*time.Hour)
	age("b", time.Hour)
	require.Equal(t, strings.Repeat("a", 40), take("a"))

	// b was used before a, and goes; what is larger than the cache is not kept
	require.NoError(t, os.WriteFile(path("c"), []byte(strings.Repeat("c", 50)), 0o600))
	require.NoError(t, c.Keep(CacheKey{"blob", "c"}, path("c")))
	require.Empty(t, take("b"))
	require.NotEmpty(t, take("a"))
	require.NotEmpty(t, take("c"))
	require.LessOrEqual(t, total(), int64(100))
	require.NoError(t, os.WriteFile(path("d"), make([]byte, 101), 0o600))
	require.NoError(t, c.Keep(CacheKey{"blob", "d"}, path("d")))
	require.Empty(t, take("d"))
	require.NotEmpty(t, take("c"))

	// small entries count as well
	age("a", time.Hour)
	require.NoError(t, c.Write(CacheKey{"size", "a"}, []byte(strings.Repeat("s", 20))))
	require.Empty(t, take("a"))
	b, err := c.Read(CacheKey{"size", "a"}, 20)
	require.NoError(t, err)
	require.Len(t, b, 20)
	_, err = c.Read(CacheKey{"size", "a"}, 19)
	require.ErrorIs(t, err, fs.ErrNotExist)

	// a smaller limit holds with the next entry
	c.Remove(CacheKey{"size", "a"})
	c, err = OpenCache(dir, 30)
	require.NoError(t, err)
	require.NoError(t, c.Write(CacheKey{"size", "b"}, []byte("s")))
	require.LessOrEqual(t, total(), int64(30))

	// links lead nowhere
	require.NoError(t, os.Symlink(path("b"), filepath.Join(dir, "blob-b")))
	require.Empty(t, take("b"))
	_, err = c.Read(CacheKey{"blob", "b"}, 1000)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestNoCache(t *testing.T) {
	var c *Cache
	require.ErrorIs(t, c.Take(CacheKey{"blob", "a"}, "a"), fs.ErrNotExist)
	_, err := c.Read(CacheKey{"blob", "a"}, 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, c.Keep(CacheKey{"blob", "a"}, "none"))
	require.NoError(t, c.Write(CacheKey{"blob", "a"}, nil))
	c.Remove(CacheKey{"blob", "a"})

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = OpenCache(file, 1)
	require.Error(t, err)
}
