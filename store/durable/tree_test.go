package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
)

func TestTrees(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	for name, mode := range map[string]fs.FileMode{"": 0o755, "d": 0o711, "d/e": 0o755} {
		require.NoError(t, os.MkdirAll(filepath.Join(from, name), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(from, name), mode))
	}
	file := filepath.Join(from, "d/e/f")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Symlink("../nowhere", filepath.Join(from, "d/link")))
	require.NoError(t, os.Symlink("/", filepath.Join(from, "root")))
	require.NoError(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))

	for name, f := range map[string]func(from, to string) error{"copy": durable.CopyTree, "link": durable.LinkTree} {
		to := filepath.Join(dir, name)
		require.NoError(t, f(from, to))
		got := map[string]string{}
		require.NoError(t, filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			rel, err := filepath.Rel(to, path)
			require.NoError(t, err)
			got[rel] = info.Mode().String()
			if info.Mode()&fs.ModeSymlink != 0 {
				got[rel], err = os.Readlink(path)
				require.NoError(t, err)
			}
			return nil
		}))
		require.Equal(t, map[string]string{
			".": "drwxr-xr-x", "d": "drwx--x--x", "d/e": "drwxr-xr-x", "d/e/f": "-rw-r--r--", "d/link": "../nowhere", "root": "/",
		}, got, name)
		original, err := os.Stat(file)
		require.NoError(t, err)
		made, err := os.Stat(filepath.Join(to, "d/e/f"))
		require.NoError(t, err)
		require.Equal(t, name == "link", os.SameFile(original, made))
		require.ErrorIs(t, f(from, to), fs.ErrExist)
		require.NoError(t, f(file, filepath.Join(dir, name+"-file")))
	}
	data, err := os.ReadFile(filepath.Join(dir, "copy-file"))
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
}
