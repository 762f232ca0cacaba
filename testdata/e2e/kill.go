package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Killed runs the Mender client. At a point of a call of app, both are killed with
// SIGKILL (store/durable has the points' names).
func Killed(t *testing.T, d *bed.Device, fault string, args ...string) {
	t.Helper()
	r, err := d.Run("env", append([]string{"MENDER_APP_FAULT=" + fault + ":kill-both", "mender", "--no-syslog"}, args...)...)
	require.NoError(t, err)
	require.NotZero(t, r.Code, "mender was not killed at %s\n%s", fault, r.Output())
	require.NotContains(t, r.Output(), "level=error")
}

// During runs the Mender client. While the call of app that it makes waits at a
// point, the function happens is called. It returns how the client ended and its
// output.
func During(t *testing.T, d *bed.Device, point string, happens func(), args ...string) (code int, said string) {
	t.Helper()
	if _, err := exec.LookPath("mender"); err != nil {
		t.Skip("the orders are those of the Go client: needs mender")
	}
	if d.IsCppMender() {
		point = strings.Replace(point, "Download/", "DownloadWithFileSizes/", 1)
	}
	c := Begin(t, d, []string{"MENDER_APP_FAULT=app " + point + ":1:stop"}, args...)
	var pid string
	bed.Eventually(t, time.Minute, "the call waits at "+point, func() bool {
		select {
		case <-c.Ended:
			_, said := c.End()
			t.Fatalf("the client ended before %s\n%s", point, said)
		default:
		}
		r, err := d.Run("bash", "-c", `grep -lsE '^State:\s+T' /proc/[0-9]*/status`)
		require.NoError(t, err)
		pid = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(r.Stdout), "/proc/"), "/status")
		return pid != ""
	})
	happens()
	d.MustRun(t, "kill", "-CONT", pid)
	return c.End()
}

// Client is the Mender client while it runs.
type Client struct {
	Ended <-chan struct{} // closed when it has ended

	cmd *exec.Cmd
	out bytes.Buffer
}

// Begin starts the Mender client, with more variables in its environment. It is killed after
// some minutes.
func Begin(t *testing.T, d *bed.Device, env []string, args ...string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	ended := make(chan struct{})
	c := &Client{Ended: ended, cmd: d.MenderCommand(ctx, args...)}
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	t.Cleanup(cancel)
	require.NoError(t, c.cmd.Start())
	go func() {
		_ = c.cmd.Wait() // its exit code is the result
		close(ended)
	}()
	return c
}

// End waits for the client, and returns how it ended and its output.
func (c *Client) End() (code int, said string) {
	<-c.Ended
	return c.cmd.ProcessState.ExitCode(), c.out.String()
}

// LastingRelease is a release of the shop whose services restart with the engine.
func LastingRelease(t *testing.T, d *bed.Device, version string, options ...string) string {
	t.Helper()
	text := strings.ReplaceAll(Compose(version), "    ports:", "    restart: unless-stopped\n    ports:")
	options = append(options, Archive(t, Web(t, version, "")), Archive(t, Stock(t)))
	return Generate(t, d, "shop", "shop-"+version, version, text, options...)
}
