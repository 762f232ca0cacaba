// Package faults lets the surroundings of a deployment fail for real: the engine goes
// away, disks are full, the store cannot be written, the power fails, processes are
// killed. Meanwhile the running call waits at a named point (store/durable has the
// names). make test-all and CI run it.
package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// The engine crashes or is restarted during a call, and comes back. The call waits
// for it, or fails, and then the old release runs again.
func TestEngineGoesAway(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	one, two := e2e.LastingRelease(t, d, "1"), e2e.LastingRelease(t, d, "2")
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")

	restart := func() {
		require.NoError(t, d.StopEngine())
		require.NoError(t, d.StartEngine())
	}
	crash := func() {
		d.CrashEngine()
		require.NoError(t, d.StartEngine())
	}
	var back chan error // of an engine that is away: what its return said
	away := func() {    // for some seconds of the call
		require.NoError(t, d.StopEngine())
		back = make(chan error, 1)
		go func() {
			time.Sleep(4 * time.Second)
			back <- d.StartEngine()
		}()
	}
	isBack := func() {
		t.Helper()
		if back != nil {
			require.NoError(t, <-back)
			back = nil
		}
	}
	// At each point the installation may succeed or fail, but what it reports must
	// be true.
	for _, at := range []struct {
		point   string
		happens func()
	}{
		{"Download/call.LOAD", away},
		{"Download/called.LOAD", crash},
		{"ArtifactInstall/call.ROLLOUT", restart},
		{"ArtifactInstall/call.ROLLOUT", away},
		{"ArtifactInstall/called.ROLLOUT", restart},
	} {
		t.Run(at.point, func(t *testing.T) {
			code, said := e2e.During(t, d, at.point, at.happens, "install", two)
			isBack()
			if code == 0 {
				e2e.Says(t, w, "web 2")
				e2e.Mender(t, d, "rollback")
			} else {
				require.NotContains(t, said, "nconsistent")
			}
			e2e.Settled(t, d, w, "1")
		})
	}
	for _, point := range []string{"ArtifactRollback/call.ROLLBACK", "ArtifactRollback/called.ROLLBACK"} {
		t.Run(point, func(t *testing.T) {
			e2e.Mender(t, d, "install", two)
			code, said := e2e.During(t, d, point, away, "rollback")
			require.Zero(t, code, said)
			isBack()
			e2e.Settled(t, d, w, "1")
		})
	}
	t.Run("ArtifactCommit", func(t *testing.T) {
		e2e.Mender(t, d, "install", two)
		code, said := e2e.During(t, d, "ArtifactCommit/call.HEALTHY", away, "commit")
		require.Zero(t, code, said)
		isBack()
		e2e.Settled(t, d, w, "2")
	})
	// Docker 20.10 does not restart what ran when it crashed, whatever the restart
	// policy says: the commit starts it.
	t.Run("crash after ROLLOUT", func(t *testing.T) {
		code, said := e2e.During(t, d, "ArtifactInstall/called.ROLLOUT", crash, "install", one)
		require.Zero(t, code, said)
		e2e.Mender(t, d, "commit")
		e2e.Settled(t, d, w, "1")
	})
	t.Run("Cleanup", func(t *testing.T) {
		e2e.Mender(t, d, "install", e2e.LastingRelease(t, d, "4"))
		code, said := e2e.During(t, d, "Cleanup/call.DELETE", restart, "commit")
		require.Zero(t, code, said)
		e2e.Settled(t, d, w, "4")
	})
}

// fill fills the file system of a directory of the device to the last block, and
// returns the function that empties it again.
func fill(t *testing.T, d *bed.Device, directory string) (empty func()) {
	t.Helper()
	file := directory + "/.filler"
	d.MustRun(t, "bash", "-c", `
		dd if=/dev/zero of="$1" bs=64k status=none
		dd if=/dev/zero of="$1" bs=512 oflag=append conv=notrunc status=none
		i=0; while mkdir "$1.$i"; do i=$((i+1)); done 2>/dev/null
		sync -f "$1"; exit 0`, "fill", file)
	return func() { d.MustRun(t, "bash", "-c", `rm -rf "$1" "$1".[0-9]*; sync -f "$2"`, "empty", file, directory) }
}

// A disk is full from one point of a call until the client has ended: the store's
// disk, or the one that the store and the engine share.
func TestDisksAreFull(t *testing.T) {
	for _, disk := range []string{"/data", "/data/mender-app"} {
		t.Run(disk, func(t *testing.T) {
			d := e2e.Device(t)
			require.NoError(t, d.StopEngine())
			if disk == "/data" {
				// As on most devices, all persistent data is on one file system. The
				// client's own data is not, because the client would fail first.
				require.NoError(t, d.Disk(disk, 256<<20))
				require.NoError(t, d.Disk("/data/mender", 16<<20))
				d.MustRun(t, "bash", "-ec", "mkdir /data/docker; mount --bind /data/docker /var/lib/docker")
				d.DataRoot = "/var/lib/docker"
			} else {
				require.NoError(t, d.Disk(disk, 64<<20))
			}
			require.NoError(t, d.StartEngine())
			diskIsFull(t, d, disk)
		})
	}
}

func diskIsFull(t *testing.T, d *bed.Device, disk string) {
	w := e2e.Watch(t, d)
	one, two := e2e.Release(t, d, "1", ""), e2e.Release(t, d, "2", "")
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")
	before := d.MustState(t)
	inOne := func(t *testing.T) {
		t.Helper()
		d.MustRun(t, "mender-app", "resume") // what could not be removed goes now
		e2e.Settled(t, d, w, "1")
		require.Equal(t, before.Images, d.MustState(t).Images)
	}

	t.Run("before", func(t *testing.T) {
		empty := fill(t, d, disk)
		said := e2e.MenderFails(t, d, "install", two)
		empty()
		e2e.RequireErrorLine(t, `(?i)space`, said)
		e2e.Settled(t, d, w, "1")
		require.Equal(t, e2e.Unchanging(before).Files, e2e.Unchanging(d.MustState(t)).Files)
		require.Equal(t, before.Containers, d.MustState(t).Containers)
	})
	for _, point := range []string{
		"Download/call.LOAD", "Download/called.LOAD", "Download/call.SYNC",
		"ArtifactInstall/enter.installing", "ArtifactInstall/call.ROLLOUT", "ArtifactInstall/called.ROLLOUT",
	} {
		t.Run(point, func(t *testing.T) {
			empty := func() {}
			code, said := e2e.During(t, d, point, func() { empty = fill(t, d, disk) }, "install", two)
			empty()
			require.NotContains(t, said, "nconsistent")
			if code == 0 {
				e2e.Says(t, w, "web 2")
				e2e.Mender(t, d, "rollback")
			}
			inOne(t)
		})
	}
	for _, point := range []string{"ArtifactRollback/enter.rolling-back", "ArtifactRollback/call.ROLLBACK", "ArtifactRollback/called.ROLLBACK"} {
		t.Run(point, func(t *testing.T) {
			e2e.Mender(t, d, "install", two)
			empty := func() {}
			code, said := e2e.During(t, d, point, func() { empty = fill(t, d, disk) }, "rollback")
			empty()
			require.Zero(t, code, said)
			inOne(t)
		})
	}
	t.Run("ArtifactCommit", func(t *testing.T) {
		e2e.Mender(t, d, "install", two)
		empty := func() {}
		code, said := e2e.During(t, d, "ArtifactCommit/call.HEALTHY", func() { empty = fill(t, d, disk) }, "commit")
		empty()
		require.Zero(t, code, said)
		e2e.Settled(t, d, w, "2")
	})
}

// The store's file system has an error and becomes read-only, as ext4 does.
func TestStoreTurnsReadOnly(t *testing.T) {
	d := e2e.Device(t)
	const store = "/data/mender-app"
	require.NoError(t, d.Disk(store, 64<<20))
	w := e2e.Watch(t, d)
	one, two := e2e.Release(t, d, "1", ""), e2e.Release(t, d, "2", "")
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")
	before := d.MustState(t)
	damage := func() {
		d.MustRun(t, "bash", "-ec", `
			disk=$(findmnt -no SOURCE --target "$1")
			mount -o remount,errors=remount-ro "$1"
			echo damaged by a test >/sys/fs/ext4/"${disk#/dev/}"/trigger_fs_error
			for _ in $(seq 100); do touch "$1"/.probe 2>/dev/null || exit 0; sleep 0.05; done
			exit 1`, "damage", store)
	}
	repair := func() {
		d.MustRun(t, "bash", "-ec", `
			disk=$(findmnt -no SOURCE --target "$1")
			file=$(losetup -nO BACK-FILE "$disk")
			umount "$1"
			e2fsck -fy "$file" >/dev/null || [ $? = 1 ]
			mount -o loop "$file" "$1"; rm -rf "$1"/.probe "$1"/lost+found`, "repair", store)
	}

	t.Run("before", func(t *testing.T) {
		damage()
		said := e2e.MenderFails(t, d, "install", two)
		repair()
		e2e.RequireErrorLine(t, `(?i)read-only`, said)
		e2e.Settled(t, d, w, "1")
		require.Equal(t, e2e.Unchanging(before), e2e.Unchanging(d.MustState(t)))
	})
	for _, point := range []string{"Download/call.LOAD", "Download/called.LOAD", "ArtifactInstall/enter.installing"} {
		t.Run(point, func(t *testing.T) { // nothing that runs has been touched
			code, said := e2e.During(t, d, point, damage, "install", two)
			require.Positive(t, code, said)
			e2e.Settled(t, d, w, "1")
			repair()
			// The next call for the application removes what was loaded.
			e2e.Mender(t, d, "install", one)
			e2e.Mender(t, d, "rollback")
			e2e.Settled(t, d, w, "1")
			require.Equal(t, before.Images, d.MustState(t).Images)
		})
	}
	for _, point := range []string{"ArtifactInstall/call.ROLLOUT", "ArtifactInstall/called.ROLLOUT"} {
		t.Run(point, func(t *testing.T) {
			// The previous release cannot be put back in place: the client is told,
			// and reports the device as inconsistent. The next boot settles it.
			code, said := e2e.During(t, d, point, damage, "install", two)
			require.Positive(t, code, said)
			repair()
			d.MustRun(t, "mender-app", "resume")
			e2e.Says(t, w, "web 1")
			require.Equal(t, before.Images, d.MustState(t).Images)
			e2e.Mender(t, d, "install", one)
			e2e.Mender(t, d, "commit")
			e2e.Settled(t, d, w, "1")
		})
	}
}
