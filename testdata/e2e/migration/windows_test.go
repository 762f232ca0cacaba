package migration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// Outside of the maintenance windows the state scripts make the Mender clients wait: one of
// the artifact before the installation, and one of the device before the download. The
// window opens, and the client goes on.
func TestClientsWaitForAWindow(t *testing.T) {
	t.Parallel()
	const dir = "/usr/share/mender-app/state-scripts/"
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"StateScriptRetryIntervalSeconds":1,"StateScriptRetryTimeoutSeconds":3600}`), 0o644))
			conf := d.Path("/etc/mender/mender-app.conf")
			open, err := os.ReadFile(conf)
			require.NoError(t, err)
			closed := append(bytes.Clone(open), "\nwindows = [\"2025-01-01 01:00-02:00\"]\n"...)
			closed = append(closed, "windows_need_clock = false\n"...)

			// waits runs the client outside of the windows, and opens them once it has
			// tried in vain.
			waits := func(file string) {
				t.Helper()
				require.NoError(t, os.WriteFile(conf, closed, 0o600))
				var out bytes.Buffer
				cmd := d.MenderCommand(t.Context(), "--log-level", "debug", "install", file)
				cmd.Stdout, cmd.Stderr = &out, &out
				require.NoError(t, cmd.Start())
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				tries := d.Path("/run/tried")
				require.Eventually(t, func() bool {
					text, _ := os.ReadFile(tries)
					return bytes.Count(text, []byte("\n")) >= 2
				}, 5*time.Minute, 100*time.Millisecond)
				require.NoError(t, os.WriteFile(conf, open, 0o600))
				require.NoError(t, <-ended, &out)
				require.NoError(t, os.Remove(tries))
				e2e.Mender(t, d, "commit")
			}
			// counted is a script that counts how often it was run.
			counted := func(name string) string {
				text, err := os.ReadFile(d.Path(dir + name))
				require.NoError(t, err)
				path := filepath.Join(t.TempDir(), name)
				require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("\n"), []byte("\necho >>/run/tried\n"), 1), 0o755))
				return path
			}
			first := e2e.Release(t, d, "1", "", "--script="+counted("ArtifactInstall_Enter_50_mender-app-windows"))
			waits(first)
			d.MustProvide(t, e2e.Provides("1"))

			scripts := d.Path("/etc/mender/scripts")
			require.NoError(t, os.MkdirAll(scripts, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(scripts, "version"), []byte("3"), 0o644))
			require.NoError(t, exec.Command("cp", counted("Download_Enter_50_mender-app-windows"), scripts).Run())
			waits(e2e.Release(t, d, "2", ""))
			d.MustProvide(t, e2e.Provides("2"))

			// Without the scripts the deployment fails, and nothing has changed.
			require.NoError(t, os.RemoveAll(scripts))
			require.NoError(t, os.WriteFile(conf, closed, 0o600))
			before := e2e.Unchanging(d.MustState(t))
			e2e.MenderFails(t, d, "install", e2e.Release(t, d, "3", ""))
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
			d.MustProvide(t, e2e.Provides("2"))
		})
	}
}
