package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// A program for another architecture is in the sub-module's place: one line names
// both, and nothing changes.
func TestSubmoduleOfAnotherArchitecture(t *testing.T) {
	d := device(t)
	w := watch(t, d)
	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	says(t, w, "web 1")
	before := unchanging(d.MustState(t))

	// e_machine, two bytes at 18: 22 is s390x, which no emulator here runs.
	d.MustRun(t, "bash", "-ec", "cp "+submodule+" /tmp/kept; printf '\\26\\0' | dd of="+submodule+" bs=1 seek=18 conv=notrunc status=none")
	said := menderFails(t, d, "install", release(t, d, "2", ""))
	requireErrorLine(t, `a program for s390x and this machine runs `+strings.TrimPrefix(bed.Platform(), "linux/"), said)
	says(t, w, "web 1")
	d.MustRun(t, "bash", "-ec", "cp /tmp/kept "+submodule)
	require.Equal(t, before, unchanging(d.MustState(t)))
}

// The file system of /data, with the client's own files, is full or read-only when
// an update comes. The message is clear, the old release serves, and when there is
// space again everything works. A rollback works on a full one. mender-app serve answers
// meanwhile, and without an engine too.
func TestDataFullOrReadOnly(t *testing.T) {
	d := device(t)
	// The client's own files lie beside the store, as on a device.
	d.MustRun(t, "bash", "-ec", "mkdir /mnt/data; mount -t tmpfs -o size=200m,mode=755 data /mnt/data; cp -a /data/. /mnt/data; mount --move /mnt/data /data")
	w := watch(t, d)
	one, two := release(t, d, "1", ""), release(t, d, "2", "")
	mender(t, d, "install", one)
	mender(t, d, "commit")
	says(t, w, "web 1")
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
			says(t, w, "web 1")
			r, err := d.Run("mender-app", "list")
			require.NoError(t, err)
			require.Zero(t, r.Code, "what is installed can be seen: %s", r.Output())
			require.Contains(t, ask("/v1/apps"), `"health":"healthy"`)
			require.Contains(t, ask("/metrics"), `mender_app_application_healthy{application="shop"} 1`)
			d.MustRun(t, "bash", "-ec", c.mend)
			sameApplication(t, at1, d.MustState(t))
			d.MustProvide(t, provides("1"))
		})
	}
	// The store has a reserve for this. On a read-only file system the client gives
	// up before it calls the module.
	t.Run("full before the rollback", func(t *testing.T) {
		mender(t, d, "install", two)
		says(t, w, "web 2")
		d.MustRun(t, "bash", "-ec", fill)
		defer d.MustRun(t, "bash", "-ec", free)
		mender(t, d, "rollback")
		says(t, w, "web 1")
		d.MustProvide(t, provides("1"))
		d.MustRun(t, "bash", "-ec", free)
		d.MustRun(t, "mender-app", "resume") // what could not be removed goes now
		sameApplication(t, at1, d.MustState(t))
	})
	mender(t, d, "install", two)
	mender(t, d, "commit")
	says(t, w, "web 2")
	d.MustProvide(t, provides("2"))
	require.NoError(t, d.StopEngine())
	bed.Eventually(t, time.Minute, "serve says that no engine answers", func() bool { return strings.Contains(ask("/v1/apps"), `"health":"unknown"`) })
	require.Contains(t, ask("/v1/apps/shop/logs"), `"status":503`)
}

// Nothing that grows with an image is written to /tmp: an image larger than /tmp
// installs, whole and as a delta.
func TestSmallTmp(t *testing.T) {
	d := device(t)
	d.MustRun(t, "mount", "-o", "remount,size=32m", "/tmp")
	large := func(version string, size int) bed.Image {
		i := web(t, version, "")
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{7}).Read(data) // never fails
		if version != "1" {
			copy(data[size/2:], "something else")
		}
		i.Layers = append([][]bed.File{{{Name: "usr/share/shop/film", Data: data}}}, i.Layers...)
		return i
	}
	const size = 40 << 20
	one, two := large("1", size), large("2", size)
	w := watch(t, d)
	mender(t, d, "install", generate(t, d, "shop", "shop-1", "1", compose("1"), archive(t, one), archive(t, stock(t))))
	mender(t, d, "commit")
	says(t, w, "web 1")
	file := generate(t, d, "shop", "shop-2", "2", compose("2"), "--deep-delta", delta(t, one, two), delta(t, stock(t), stock(t)))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(size/10))
	mender(t, d, "install", file)
	mender(t, d, "commit")
	says(t, w, "web 2")
	require.Empty(t, d.MustRun(t, "ls", "-I", "mender-app-bed-*", "-I", "runc-process*", "/tmp"))
}

// Between the client's calls nothing of the product runs or lies in /tmp: there is
// no process that could poll, and no file.
func TestNothingStaysBetweenCalls(t *testing.T) {
	d := device(t)
	none := func(after string) {
		t.Helper()
		left := d.MustRun(t, "bash", "-c", `for exe in /proc/[0-9]*/exe; do
			case $(readlink $exe) in /usr/share/mender/*|/usr/bin/mender-app*) tr '\0' ' ' <${exe%exe}cmdline ;; esac
		done`)
		require.Empty(t, left, "a process of the product after %s", after)
		require.Empty(t, d.MustRun(t, "ls", "-I", "mender-app-bed-*", "-I", "runc-process*", "/tmp"), "in /tmp after %s", after)
	}
	mender(t, d, "install", release(t, d, "1", ""))
	none("install")
	mender(t, d, "commit")
	none("commit")
	menderFails(t, d, "install", release(t, d, "2", "crash"))
	none("a failing install")
	mender(t, d, "install", release(t, d, "3", ""))
	mender(t, d, "rollback")
	none("rollback")
	d.MustRun(t, "mender-app", "verify")
	none("verify")
	// If it is killed with its client, the module ends by itself.
	for _, point := range []string{"Download/called.LOAD:1", "ArtifactInstall/call.ROLLOUT:1"} {
		killed(t, d, fmt.Sprintf("app %s", point), "install", release(t, d, "4", ""))
		none("a kill at " + point)
		d.MustRun(t, "mender-app", "resume")
		none("resume")
	}
}
