package fulltree

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestOwnerExchanges: who owns the data exchanges its directories and files with links all
// the time. What the links lead to is neither read, written nor removed.
func TestOwnerExchanges(t *testing.T) {
	victim := t.TempDir()
	secret := filepath.Join(victim, "f")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	end := make(chan struct{})
	stopped := make(chan struct{})
	base := t.TempDir()
	from, to := filepath.Join(base, "from"), filepath.Join(base, "to")
	var still sync.Mutex // held while the test looks
	go func() {
		defer close(stopped)
		for {
			for _, dir := range []string{from, to} {
				for name, target := range map[string]string{"sub": victim, "file": secret} {
					select {
					case <-end:
						return
					default:
					}
					at, link := filepath.Join(dir, name), filepath.Join(dir, ".."+filepath.Base(dir)+name)
					still.Lock()
					_ = os.Symlink(target, link)
					_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
					still.Unlock()
				}
			}
		}
	}()
	defer func() { close(end); <-stopped }()
	begin := time.Now()
	for i := range rounds {
		if time.Since(begin) > 2*time.Minute {
			break
		}
		still.Lock()
		require.NoError(t, os.RemoveAll(base))
		for _, dir := range []string{from, to} {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			_ = os.Mkdir(filepath.Join(dir, "sub"), 0o755)
			_ = os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("own"), 0o644)
			_ = os.WriteFile(filepath.Join(dir, "file"), []byte("own"), 0o644)
		}
		still.Unlock()
		// Each may fail, since somebody writes meanwhile.
		switch i % 3 {
		case 0:
			_ = Copy(t.Context(), from, to)
		case 1:
			_ = Move(t.Context(), from, to)
		case 2:
			_ = Empty(t.Context(), to)
			_, _ = Measure(t.Context(), from)
		}
		still.Lock()
		_ = filepath.WalkDir(to, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NotEqual(t, "secret", string(text), "round %d: %s", i, path)
			}
			return nil
		})
		still.Unlock()
		left, err := os.ReadDir(victim)
		require.NoError(t, err)
		require.Len(t, left, 1, "round %d", i)
		text, err := os.ReadFile(secret)
		require.NoError(t, err)
		require.Equal(t, "secret", string(text), "round %d", i)
		fi, err := os.Stat(secret)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, fi.Mode().Perm(), "round %d", i)
	}
}

// TestNoLinks: the path of a directory has no link.
func TestNoLinks(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(base, "real", "data"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(base, "real", "data", "f"), nil, 0o644))
	require.NoError(t, os.Symlink("real", filepath.Join(base, "link")))
	require.NoError(t, os.Symlink("data", filepath.Join(base, "real", "last")))
	for _, path := range []string{"link/data", "real/last", "link"} {
		require.ErrorContains(t, Empty(t.Context(), filepath.Join(base, path)), "open without links", path)
	}
	require.FileExists(t, filepath.Join(base, "real", "data", "f"))
	require.NoError(t, Empty(t.Context(), filepath.Join(base, "real", "data")))
	require.NoFileExists(t, filepath.Join(base, "real", "data", "f"))
}
