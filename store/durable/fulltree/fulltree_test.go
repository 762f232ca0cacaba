package fulltree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
)

const hole = 1 << 20

// fill makes a directory with one of everything.
func fill(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub", "deep"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("text"), 0o640))
	require.NoError(t, os.Chmod(filepath.Join(dir, "sub", "file"), 0o4751))
	require.NoError(t, os.Link(filepath.Join(dir, "sub", "file"), filepath.Join(dir, "same")))
	require.NoError(t, os.Symlink("sub/file", filepath.Join(dir, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o660, 0))
	f, err := os.Create(filepath.Join(dir, "sparse"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("data"), hole)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(2*hole))
	require.NoError(t, f.Close())
	if err := unix.Lsetxattr(filepath.Join(dir, "sub", "file"), "user.kind", []byte("x"), 0); err != nil {
		require.ErrorIs(t, err, unix.EOPNOTSUPP)
	}
	then := time.Unix(1_000_000_000, 123)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "sub", "file"), then, then))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "sub"), then, then))
}

// same asserts that a directory is like one that fill made.
func same(t *testing.T, want, have string, moved bool) {
	t.Helper()
	names := []string{"", "sub", "sub/deep", "sub/file", "same", "link", "pipe", "socket", "sparse"}
	for _, name := range names {
		var a, b unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(want, name), &a))
		require.NoError(t, unix.Lstat(filepath.Join(have, name), &b), name)
		require.Equal(t, a.Mode, b.Mode, name)
		require.Equal(t, a.Uid, b.Uid, name)
		require.Equal(t, a.Gid, b.Gid, name)
		if name != "" || !moved {
			require.Equal(t, a.Mtim, b.Mtim, name)
		}
		if a.Mode&unix.S_IFMT == unix.S_IFREG {
			require.Equal(t, a.Size, b.Size, name)
			require.Equal(t, a.Nlink, b.Nlink, name)
			text, err := os.ReadFile(filepath.Join(want, name))
			require.NoError(t, err)
			copied, err := os.ReadFile(filepath.Join(have, name))
			require.NoError(t, err)
			require.True(t, string(text) == string(copied), name)
		}
		if name == "sparse" {
			require.Less(t, b.Blocks*512, int64(hole), "the hole takes space")
		}
	}
	value := make([]byte, 10)
	n, err := unix.Lgetxattr(filepath.Join(want, "sub", "file"), "user.kind", value)
	if err == nil {
		m, err := unix.Lgetxattr(filepath.Join(have, "sub", "file"), "user.kind", make([]byte, 10))
		require.NoError(t, err)
		require.Equal(t, n, m)
	}
	entries, err := os.ReadDir(have)
	require.NoError(t, err)
	require.Len(t, entries, 6, "nothing else is there")
}

func TestCopy(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	fill(t, from)
	for range 2 { // what is there is replaced
		require.NoError(t, Copy(t.Context(), from, to))
		same(t, from, to, false)
		same(t, from, from, false)
	}
	require.NoError(t, Sync(to))
	require.NoError(t, Empty(t.Context(), to))
	entries, err := os.ReadDir(to)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestMoveKilledAnywhere: a move is repeated until it has ended, on one file system and
// between two.
func TestMoveKilledAnywhere(t *testing.T) {
	dirs := []string{t.TempDir()}
	if d, err := os.MkdirTemp("/dev/shm", "mender-app-test-"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(d) })
		dirs = append(dirs, d)
	}
	killed := errors.New("killed")
	for _, to := range dirs {
		for point := 1; ; point++ {
			like, from, to := filepath.Join(t.TempDir(), "like"), t.TempDir(), filepath.Join(to, "to")
			fill(t, like)
			require.NoError(t, Copy(t.Context(), like, from))
			require.NoError(t, os.Mkdir(to, 0o700))
			passed := 0
			restore := durable.Inject(func(string) error {
				if passed++; passed >= point {
					return killed
				}
				return nil
			})
			err := Move(t.Context(), from, to)
			restore()
			if err != nil {
				require.ErrorIs(t, err, killed)
				require.NoError(t, Move(t.Context(), from, to))
			}
			same(t, like, to, true)
			require.NoError(t, os.RemoveAll(to))
			if err == nil {
				break
			}
		}
	}
}

func TestMeasure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	fill(t, dir)
	n, err := Measure(t.Context(), dir)
	require.NoError(t, err)
	require.Positive(t, n)
	require.Less(t, n, int64(hole), "holes do not count")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Measure(ended, dir)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Measure(t.Context(), "/dev")
	require.ErrorContains(t, err, "is on another file system than /dev")
}
