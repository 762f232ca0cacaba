package updatemodule

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Only a client that was told to install takes No; a daemon, a rollback and a process
// that is gone do not.
func TestByHand(t *testing.T) {
	for args, want := range map[[2]string]bool{
		{"install", "x.mender"}: true, {"--no-syslog", "install"}: true,
		{"daemon", ""}: false, {"daemon", "install"}: false, {"rollback", ""}: false, {"install.mender", ""}: false,
	} {
		cmd := exec.Command("sh", "-c", "read x", "mender", args[0], args[1])
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// The kernel shows the arguments a moment after the program has begun.
		require.Eventually(t, func() bool {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
			return err == nil && len(line) > 0
		}, 10*time.Second, time.Millisecond)
		require.Equal(t, want, byHand(cmd.Process.Pid), "%v", args)
		require.NoError(t, in.Close())
		_ = cmd.Wait() // read fails at the end of its input
		require.False(t, byHand(cmd.Process.Pid), "it is gone")
	}
}
