package imagestore

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A name leads where it leads in a container whose root is the directory, and never
// out of it.
func TestOpenWithin(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "layer")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "run/deep"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "etc"), 0o755))
	for _, name := range []string{"layer/run/app", "layer/run/deep/app", "layer/etc/passwd", "app", "secret"} {
		require.NoError(t, os.WriteFile(filepath.Join(outer, name), []byte(name), 0o644))
	}
	links := map[string]string{
		"abs": "/run", "climbs": "../../../run", "etc/up": "..", "one": "/two/deep", "two": "etc/three", "etc/three": "/run/../run/",
		"loop": "/loop2", "loop2": "loop", "out": outer, "etc/out": "../../../" + outer, "nowhere": "/not/here", "file": "etc/passwd",
		"h0": "/run",
	}
	for i := range 45 {
		links[fmt.Sprintf("h%d", i+1)] = fmt.Sprintf("/h%d", i)
	}
	for name, to := range links {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "run/fifo"), 0o600))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	for name, want := range map[string]string{
		"run/app": "layer/run/app", "/abs/./app": "layer/run/app", "climbs/app": "layer/run/app", "etc/up/etc/up/run/app": "layer/run/app",
		"one/app": "layer/run/deep/app", "two/app": "layer/run/app", "h39/app": "layer/run/app", "../../run/app": "layer/run/app",
	} {
		f, err := OpenWithin(root, name)
		require.NoError(t, err, name)
		data, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, want, string(data), name)
	}
	for _, name := range []string{"", "run", "secret", "out/secret", "etc/out/secret", "nowhere/app", "abs", "file", "abs/fifo", "run/app/x", "file/x", "missing/x"} {
		_, err := OpenWithin(root, name)
		require.True(t, os.IsNotExist(err) || isNotDir(err), "%s: %v", name, err)
	}
	for _, name := range []string{"loop/app", "h45/app"} {
		_, err := OpenWithin(root, name)
		require.ErrorIs(t, err, unix.ELOOP, name)
	}
	w := &within{root: root}
	for _, name := range []string{"two/app", "run/app", "climbs/app"} {
		place, _, err := w.find(name)
		require.NoError(t, err)
		require.Equal(t, "run/app", place, "all names of a file are one place")
	}
	place, _, err := w.find("nowhere/app")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, "not/here/app", place)
}

func isNotDir(err error) bool {
	pe, ok := err.(*fs.PathError)
	return ok && pe.Err == unix.ENOTDIR
}
