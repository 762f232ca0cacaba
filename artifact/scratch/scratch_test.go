package scratch_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/scratch"
)

// TestMain: in a directory for the test, the binary makes what it is asked to, and dies.
func TestMain(m *testing.M) {
	dir := os.Getenv("SCRATCH_TEST_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	path, err := scratch.Dir(dir, scratch.Prefix)
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "file"), nil, 0o600)
	}
	d, oerr := os.Open(dir)
	if err == nil && oerr == nil {
		_, _, err = scratch.File(d, 0o600)
	}
	if err != nil || oerr != nil {
		os.Exit(1)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestSweep: what a dead program left goes; what a living one has stays, and so does all that
// this package did not make.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	dead := exec.Command(os.Args[0])
	dead.Env = append(os.Environ(), "SCRATCH_TEST_DIR="+dir)
	require.Error(t, dead.Run())
	require.Len(t, names(t, dir), 2)

	others := []string{".mender-app-", ".mender-app-0123456789abcde", ".mender-app-0123456789ABCDEF", "mender-app-0123456789abcdef", ".mender-app-0123456789abcdef.mender"}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	target := t.TempDir()
	require.NoError(t, os.Symlink(target, filepath.Join(dir, ".mender-app-0000000000000000")))
	own, err := scratch.Dir(dir, scratch.HostPrefix)
	require.NoError(t, err)
	scratch.Sweep(dir)
	require.ElementsMatch(t, append(others, filepath.Base(own), ".mender-app-0000000000000000"), names(t, dir))
	require.DirExists(t, target)

	require.NoError(t, scratch.Remove(own))
	require.NoDirExists(t, own)
	require.NoError(t, scratch.Remove(""))
	scratch.Sweep(filepath.Join(dir, "missing"))
}

// TestUnnamed: a file without a name can be written, read and is gone when it is closed.
func TestUnnamed(t *testing.T) {
	dir := t.TempDir()
	f, err := scratch.Unnamed(dir)
	require.NoError(t, err)
	_, err = f.WriteString("text")
	require.NoError(t, err)
	data := make([]byte, 4)
	_, err = f.ReadAt(data, 0)
	require.NoError(t, err)
	require.Equal(t, "text", string(data))
	require.Empty(t, names(t, dir))
	require.NoError(t, f.Close())
}

// TestSweepAndDir: while others sweep, what Dir returns is there.
func TestSweepAndDir(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var sweepers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for ctx.Err() == nil {
				scratch.Sweep(parent)
			}
		})
	}
	for range 500 {
		dir, err := scratch.Dir(parent, scratch.Prefix)
		require.NoError(t, err)
		runtime.Gosched()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
		require.NoError(t, scratch.Remove(dir))
	}
	cancel()
	sweepers.Wait()
}
