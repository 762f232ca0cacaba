package slow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// The file system of /data, with the client's own files, is full or read-only when
// an update comes. The message is clear, the old release serves, and when there is
// space again everything works. A rollback works on a full one. mender-app serve answers
// meanwhile, and without an engine too.
func TestDataFullOrReadOnly(t *testing.T) {
	d := e2e.Device(t)
	// The client's own files lie beside the store, as on a device.
	d.MustRun(t, "bash", "-ec", "mkdir /mnt/data; mount -t tmpfs -o size=200m,mode=755 data /mnt/data; cp -a /data/. /mnt/data; mount --move /mnt/data /data")
	w := e2e.Watch(t, d)
	one, two := e2e.Release(t, d, "1", ""), e2e.Release(t, d, "2", "")
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	at1 := d.MustState(t)
	serve := d.Command(t.Context(), "mender-app", "serve", "--socket", "/run/s")
	require.NoError(t, serve.Start())
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	ask := func(path string) string {
		t.Helper()
		return d.MustRun(t, "curl", "-sS", "--retry", "5", "--retry-all-errors", "--max-time", "90", "--unix-socket", "/run/s", "http://localhost"+path)
	}

	const fill, free = "dd if=/dev/zero of=/data/fill bs=4k 2>/dev/null || true", "rm -f /data/fill"
	const readOnly, writable = "mount -o remount,ro /data", "mount -o remount,rw /data"
	for _, c := range []struct{ name, break_, mend, says string }{
		{"full", fill, free, `not enough space on the file system of /data|no space left on device`},
		{"full but for a megabyte", fill + "; truncate --size=-1M /data/fill", free, `not enough space on the file system of /data`},
		{"read-only", readOnly, writable, `read-only file system`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.MustRun(t, "bash", "-ec", c.break_)
			defer d.MustRun(t, "bash", "-ec", c.mend)
			for _, command := range [][]string{{"mender-app", "install", "--force", "--unsigned", two}, {"mender", "--no-syslog", "install", two}} {
				r, err := d.Run(command[0], command[1:]...)
				require.NoError(t, err)
				require.NotZero(t, r.Code, "%v\n%s", command, r.Output())
				require.Regexp(t, c.says, r.Output(), "%v", command)
			}
			e2e.Says(t, w, "web 1")
			r, err := d.Run("mender-app", "list")
			require.NoError(t, err)
			require.Zero(t, r.Code, "what is installed can be seen: %s", r.Output())
			require.Contains(t, ask("/v1/apps"), `"health":"healthy"`)
			require.Contains(t, ask("/metrics"), `mender_app_application_healthy{application="shop"} 1`)
			d.MustRun(t, "bash", "-ec", c.mend)
			e2e.SameApplication(t, at1, d.MustState(t))
			d.MustProvide(t, e2e.Provides("1"))
		})
	}
	// The store has a reserve for this. On a read-only file system the client gives
	// up before it calls the module.
	t.Run("full before the rollback", func(t *testing.T) {
		e2e.Mender(t, d, "install", two)
		e2e.Says(t, w, "web 2")
		d.MustRun(t, "bash", "-ec", fill)
		defer d.MustRun(t, "bash", "-ec", free)
		e2e.Mender(t, d, "rollback")
		e2e.Says(t, w, "web 1")
		d.MustProvide(t, e2e.Provides("1"))
		d.MustRun(t, "bash", "-ec", free)
		d.MustRun(t, "mender-app", "resume") // what could not be removed goes now
		e2e.SameApplication(t, at1, d.MustState(t))
	})
	e2e.Mender(t, d, "install", two)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	d.MustProvide(t, e2e.Provides("2"))
	require.NoError(t, d.StopEngine())
	bed.Eventually(t, time.Minute, "serve says that no engine answers", func() bool { return strings.Contains(ask("/v1/apps"), `"health":"unknown"`) })
	require.Contains(t, ask("/v1/apps/shop/logs"), `"status":503`)
}

// Between the client's calls nothing of the product runs or lies in /tmp: there is
// no process that could poll, and no file.
func TestNothingStaysBetweenCalls(t *testing.T) {
	d := e2e.Device(t)
	none := func(after string) {
		t.Helper()
		left := d.MustRun(t, "bash", "-c", `for exe in /proc/[0-9]*/exe; do
			case $(readlink $exe) in /usr/share/mender/*|/usr/bin/mender-app*) tr '\0' ' ' <${exe%exe}cmdline ;; esac
		done`)
		require.Empty(t, left, "a process of the product after %s", after)
		files, err := d.LeftInTmp()
		require.NoError(t, err)
		require.Empty(t, files, "in /tmp after %s", after)
	}
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	none("install")
	e2e.Mender(t, d, "commit")
	none("commit")
	e2e.MenderFails(t, d, "install", e2e.Release(t, d, "2", "crash"))
	none("a failing install")
	e2e.Mender(t, d, "install", e2e.Release(t, d, "3", ""))
	e2e.Mender(t, d, "rollback")
	none("rollback")
	d.MustRun(t, "mender-app", "verify")
	none("verify")
	// If it is killed with its client, the module ends by itself.
	for _, point := range []string{"Download/called.LOAD:1", "ArtifactInstall/call.ROLLOUT:1"} {
		e2e.Killed(t, d, fmt.Sprintf("app %s", point), "install", e2e.Release(t, d, "4", ""))
		none("a kill at " + point)
		d.MustRun(t, "mender-app", "resume")
		none("resume")
	}
}
