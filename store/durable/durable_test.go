package durable_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/store/durable/faults"
)

// TestMain lets the test binary be the program that is killed, and the one that
// locks a file.
func TestMain(m *testing.M) {
	if path := os.Getenv("DURABLE_TEST_WRITE"); path != "" {
		if err := durable.WriteFile(path, []byte("new"), 0o600); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	if path := os.Getenv(lockHelper); path != "" {
		holdLock(path)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWriteFileKilled(t *testing.T) {
	for point, want := range map[string]string{
		"write.state":  "old",
		"rename.state": "old",
		"wrote.state":  "new",
	} {
		t.Run(point, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			require.NoError(t, durable.WriteFile(path, []byte("old"), 0o600))
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "DURABLE_TEST_WRITE="+path, faults.Env+"="+point+":1:kill")
			err := cmd.Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			require.NoError(t, durable.Sweep(filepath.Dir(path)))
			names, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, names, 1)
		})
	}
}

func TestWriteFileNoSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DURABLE_TEST_WRITE="+path, faults.Env+"=*:2:enospc")
	out, err := cmd.CombinedOutput()
	require.ErrorContains(t, err, "exit status 3")
	require.Contains(t, string(out), "no space left on device")
	names, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, names, "a failed write leaves nothing")
}

func TestTrace(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DURABLE_TEST_WRITE="+dir+"/state", faults.TraceEnv+"="+dir+"/trace")
	require.NoError(t, cmd.Run())
	got, err := os.ReadFile(dir + "/trace")
	require.NoError(t, err)
	require.Equal(t, []string{"write.state", "rename.state", "wrote.state"}, strings.Fields(string(got)))
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "manifests")
	require.NoError(t, durable.Symlink("a", link))
	require.NoError(t, durable.Symlink("a", link))
	require.NoError(t, durable.Symlink("b", link))
	got, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, "b", got)

	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	require.ErrorIs(t, durable.Symlink("a", filepath.Join(dir, "real")), os.ErrExist)
}

func TestReplaceDirWithLink(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "manifests")
	require.NoError(t, os.Mkdir(old, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(old, "f"), []byte("x"), 0o600))
	require.NoError(t, durable.ReplaceDirWithLink(old, "aside", filepath.Join(dir, "aside")))
	got, err := os.ReadFile(filepath.Join(old, "f"))
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
	st, err := os.Lstat(old)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, st.Mode().Type())
}

// A directory that moves behind a link is always at one of two paths.
func TestMoveBehindLink(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a", "data"), filepath.Join(dir, "b", "data")
	require.NoError(t, os.MkdirAll(from, 0o755))
	require.NoError(t, os.Mkdir(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "f"), nil, 0o644))
	require.NoError(t, os.Symlink("nowhere", to), "as a call left it that was killed")
	require.NoError(t, durable.MoveBehindLink(from, to))
	fi, err := os.Lstat(to)
	require.NoError(t, err)
	require.True(t, fi.IsDir())
	require.FileExists(t, filepath.Join(from, "f"))
	target, err := os.Readlink(from)
	require.NoError(t, err)
	require.Equal(t, "../b/data", target)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c"), 0o755))
	require.ErrorIs(t, durable.MoveBehindLink(filepath.Join(dir, "c"), to), os.ErrExist)
}

func TestRemoveAllHidesFirst(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	require.NoError(t, durable.MkdirAll(filepath.Join(tree, "a", "b"), 0o700))
	boom := errors.New("boom")
	restore := durable.Inject(func(name string) error {
		if name == "removed.tree" {
			return boom
		}
		return nil
	})
	err := durable.RemoveAll(tree)
	restore()
	require.ErrorIs(t, err, boom)
	require.NoDirExists(t, tree)
	require.NoError(t, durable.RemoveAll(tree), "a missing tree is no error")
	require.NoError(t, durable.Sweep(dir))
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestSyncTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, durable.MkdirAll(filepath.Join(dir, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("x"), 0o600))
	require.NoError(t, os.Symlink("/nonexistent", filepath.Join(dir, "dangling")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, durable.SyncTree(dir))
	require.Error(t, durable.SyncTree(filepath.Join(dir, "missing")))
}

func TestRemoveMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, durable.Remove(filepath.Join(dir, "file")))
	require.NoError(t, durable.Remove(filepath.Join(dir, "none", "file")), "its directory is gone, too")
}
