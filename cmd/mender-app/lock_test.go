package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/store"
)

// holdLock is a program that locks a file that is open for reading, as anybody
// can who can open it, prints how that went, and holds the lock until its
// standard input ends.
func holdLock() {
	f, err := os.Open(os.Args[1])
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	fmt.Println(err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	runtime.KeepAlive(f)
}

// lockAs takes the lock of a file in a process of another user, until the test
// ends. It returns what that process says: "<nil>" if it has the lock.
func lockAs(t *testing.T, uid uint32, path string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", path)
	cmd.Args[0] = "hold-lock"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
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

// newDevice is a device whose files every user can reach as far as their own
// permissions let him, with the artifacts v1.mender and v2.mender.
func newDevice(t *testing.T) *devicetest.Device {
	t.Helper()
	dir, err := os.MkdirTemp("", "mender-app-device-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	d, err := devicetest.NewDevice(dir)
	require.NoError(t, err)
	for i, compose := range []string{"one", "two"} {
		a := devicetest.Artifact{Name: fmt.Sprint("shop-", i+1), App: "shop", Compose: compose, Images: []string{"web:1=web-" + compose}}
		require.NoError(t, a.Write(filepath.Join(dir, fmt.Sprintf("v%d.mender", i+1))))
	}
	return d
}

func mustRun(t *testing.T, d *devicetest.Device, args ...string) string {
	t.Helper()
	out, stderr, err := d.Run(nil, "mender-app", args...)
	require.NoError(t, err, "%v: %s", args, stderr)
	return out
}

const nobody = 65534

// lockFiles are the files that the calls on a device lock.
func lockFiles(d *devicetest.Device) []string {
	meta := filepath.Join(d.Dir, "store", ".mender-app")
	return []string{filepath.Join(meta, "lock"), filepath.Join(meta, "client", "lock")}
}

func requirePrivate(t *testing.T, d *devicetest.Device) {
	t.Helper()
	for _, path := range append(lockFiles(d), filepath.Join(d.Dir, "store", ".mender-app"), filepath.Join(d.Dir, "store", ".mender-app", "client")) {
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, st.Mode().Perm()&0o077, "%s is %v", path, st.Mode())
	}
}

// TestOtherUserCannotBlock: a user without rights takes whatever lock he can,
// and the rollback goes on.
func TestOtherUserCannotBlock(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it acts as another user")
	}
	for name, prepare := range map[string]func(t *testing.T, d *devicetest.Device){
		"a store of this version": func(*testing.T, *devicetest.Device) {},
		"a store of an earlier version": func(t *testing.T, d *devicetest.Device) {
			for _, path := range lockFiles(d) {
				require.NoError(t, os.Chmod(path, 0o644))
				require.NoError(t, os.Chmod(filepath.Dir(path), 0o755))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			mustRun(t, d, "install", "--commit", "v1.mender")
			mustRun(t, d, "install", "v2.mender")
			prepare(t, d)
			for _, path := range lockFiles(d) {
				lockAs(t, nobody, path)
			}
			require.Contains(t, mustRun(t, d, "rollback"), "rolled back; installed is shop-1")
			require.Equal(t, "one", d.Running("shop"))
			requirePrivate(t, d)
			for _, path := range lockFiles(d) {
				require.Contains(t, lockAs(t, nobody, path), "permission denied")
			}
		})
	}
	t.Run("a store of the shell reference", func(t *testing.T) {
		d := newDevice(t)
		for name, text := range map[string]string{"manifests/compose.yaml": "old\n", "images/urls": "", "images/shas": ""} {
			path := filepath.Join(d.Dir, "store", "shop", name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		mustRun(t, d, "install", "v2.mender")
		requirePrivate(t, d)
		for _, path := range lockFiles(d) {
			require.Contains(t, lockAs(t, nobody, path), "permission denied")
		}
		mustRun(t, d, "rollback")
		require.Equal(t, "old", d.Running("shop"))
	})
}

// TestBusyRollbackIsFinished: a rollback that cannot get the store's lock, as
// another process of root holds it, does nothing; the next call finishes it.
func TestBusyRollbackIsFinished(t *testing.T) {
	if testing.Short() {
		t.Skip("waits half a minute for a lock; left out of -short")
	}
	t.Parallel()
	for name, next := range map[string]struct {
		args []string
		says string
	}{
		"by rollback": {[]string{"rollback"}, "rolled back; installed is shop-1"},
		"by resume":   {[]string{"resume"}, "shop-2: ArtifactRollback, undone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t)
			mustRun(t, d, "install", "--commit", "v1.mender")
			mustRun(t, d, "install", "v2.mender")
			release, err := store.At(filepath.Join(d.Dir, "store")).Lock(context.Background(), "a test")
			require.NoError(t, err)
			_, stderr, err := d.Run(nil, "mender-app", "rollback")
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), stderr)
			require.Equal(t, device.ExitBusy, exit.ExitCode(), stderr)
			require.Contains(t, stderr, "mender-app resume")
			require.NotContains(t, mustRun(t, d, "list", "--json"), "_INCONSISTENT")
			release()
			require.Contains(t, mustRun(t, d, next.args...), next.says)
			require.Equal(t, "one", d.Running("shop"))
			require.NotContains(t, mustRun(t, d, "list", "--json"), "_INCONSISTENT")
			mustRun(t, d, "install", "--commit", "v2.mender")
			require.Equal(t, "two", d.Running("shop"))
		})
	}
}
