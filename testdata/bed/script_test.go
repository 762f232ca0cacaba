package bed

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A script gets a device too, with the project's tree at its path and nothing of this
// machine's configuration.
func TestDeviceOfAScript(t *testing.T) {
	Require(t)
	dir := t.TempDir()
	for _, sub := range []string{"data/mender", "docker", "root"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	device := exec.Command("bash", filepath.Join(Repository(), "testdata/bed/device.sh"), dir, Repository())
	device.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	device.Stderr = os.Stderr
	in, err := device.StdinPipe()
	require.NoError(t, err)
	out, err := device.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, device.Start())
	t.Cleanup(func() { _ = device.Process.Kill() })
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", said)
	root := filepath.Join("/proc", strconv.Itoa(device.Process.Pid), "root")
	require.FileExists(t, filepath.Join(root, Repository(), "go.mod"))
	require.FileExists(t, filepath.Join(root, "etc/mender/mender.conf"))
	require.NoDirExists(t, filepath.Join(root, "usr/share/mender/modules"))
	require.NoError(t, in.Close())
	require.NoError(t, device.Wait())
}
