package durable_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
)

// lockHelper names the file that this binary, started by TestMain, is to lock.
const lockHelper = "MENDER_APP_TEST_LOCK"

// holdLock locks a file that is open for reading, as anybody can who can open
// it, prints how that went, and holds the lock until standard input ends.
func holdLock(path string) {
	f, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	fmt.Println(err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	runtime.KeepAlive(f)
}

// lockAs takes the lock of a file in another process, as a user, until the test
// ends. It returns what that process says: "<nil>" if it has the lock.
func lockAs(t *testing.T, uid uint32, path string) string {
	t.Helper()
	// A copy, which every user can start: this binary lies where only root gets
	// to, and QEMU's user mode has no other way to it than its path.
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(self)
	require.NoError(t, err)
	helper := filepath.Join(openDir(t), "helper")
	require.NoError(t, os.WriteFile(helper, binary, 0o755))
	cmd := exec.Command(helper)
	cmd.Env = append(os.Environ(), lockHelper+"="+path)
	cmd.Stderr = os.Stderr
	if os.Geteuid() != int(uid) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return line[:len(line)-1]
}

// openDir is a directory that every user can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mender-app-lock-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

const nobody = 65534

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it acts as another user")
	}
}

func requirePrivate(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, st.Mode().Perm()&0o077, "%s is %v", path, st.Mode())
	require.EqualValues(t, os.Geteuid(), st.Sys().(*syscall.Stat_t).Uid)
}

func TestLockIsPrivate(t *testing.T) {
	needRoot(t)
	path := filepath.Join(openDir(t), "lock")
	release, err := durable.Lock(path, "me")
	require.NoError(t, err)
	requirePrivate(t, path)
	_, err = durable.Lock(path, "another")
	var held *durable.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, fmt.Sprintf("process %d, me", os.Getpid()), held.Holder)
	release()
	require.Contains(t, lockAs(t, nobody, path), "permission denied")
	release, err = durable.Lock(path, "me")
	require.NoError(t, err)
	release()
}

// TestLockMendsAnOpenOne: an earlier version's lock file, which another user has
// open and locked, stops nobody, and is no lock of that user's any more.
func TestLockMendsAnOpenOne(t *testing.T) {
	needRoot(t)
	for name, owner := range map[string]int{"of root": 0, "of the other user": nobody} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(openDir(t), "lock")
			require.NoError(t, os.WriteFile(path, nil, 0o644))
			require.NoError(t, os.Chown(path, owner, owner))
			require.Equal(t, "<nil>", lockAs(t, nobody, path))
			release, err := durable.Lock(path, "me")
			require.NoError(t, err)
			requirePrivate(t, path)
			_, err = durable.Lock(path, "another")
			require.ErrorAs(t, err, new(*durable.HeldError))
			require.Contains(t, lockAs(t, nobody, path), "permission denied")
			release()
			left, err := filepath.Glob(filepath.Join(filepath.Dir(path), durable.TempPrefix+"lock-*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestLockRespectsAnEarlierVersion: a process of the same user that holds an
// open lock file is at work, whatever the file's permissions are.
func TestLockRespectsAnEarlierVersion(t *testing.T) {
	path := filepath.Join(openDir(t), "lock")
	require.NoError(t, os.WriteFile(path, []byte("process 1, Download\n"), 0o644))
	require.Equal(t, "<nil>", lockAs(t, uint32(os.Geteuid()), path))
	_, err := durable.Lock(path, "me")
	var held *durable.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "process 1, Download", held.Holder)
}

// TestLockKeepsTheOldOneHeld: what an earlier version waits for on the file that
// was replaced stays held until this process is done.
func TestLockKeepsTheOldOneHeld(t *testing.T) {
	path := filepath.Join(openDir(t), "lock")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	old, err := os.Open(path)
	require.NoError(t, err)
	defer old.Close()
	release, err := durable.Lock(path, "me")
	require.NoError(t, err)
	require.ErrorIs(t, unix.Flock(int(old.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	release()
	require.NoError(t, unix.Flock(int(old.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

func TestPrivateDir(t *testing.T) {
	dir := filepath.Join(openDir(t), "store", ".mender-app")
	require.NoError(t, durable.PrivateDir(dir))
	requirePrivate(t, dir)
	st, err := os.Stat(filepath.Dir(dir))
	require.NoError(t, err)
	require.EqualValues(t, 0o755, st.Mode().Perm()|0o700)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, durable.PrivateDir(dir))
	requirePrivate(t, dir)
}
