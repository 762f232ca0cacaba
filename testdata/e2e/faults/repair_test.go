package faults

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// The disk that the store and the engine share becomes full at any step of a repair of images.
// The application runs on, or again, and the repair ends when there is space.
func TestDiskFullInRepair(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.StopEngine())
	const disk = "/data"
	require.NoError(t, d.Disk(disk, 256<<20))
	require.NoError(t, d.Disk("/data/mender", 16<<20))
	d.MustRun(t, "bash", "-ec", "mkdir /data/docker; mount --bind /data/docker /var/lib/docker")
	d.DataRoot = "/var/lib/docker"
	require.NoError(t, d.StartEngine())
	w := e2e.Watch(t, d)
	file := e2e.Release(t, d, "1", "")
	e2e.Mender(t, d, "install", file)
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")
	volumes := d.MustState(t).Volumes

	damage := func(t *testing.T) {
		t.Helper()
		d.MustRun(t, "bash", "-ec", `
			file=$(find /var/lib/docker/overlay2 -path '*/diff/usr/share/shop/catalogue-003.txt' | head -n 1)
			truncate --size=0 "$file"`)
		r, err := d.Run("mender-app", "verify", "shop")
		require.NoError(t, err)
		require.Equal(t, 5, r.Code, r.Output())
	}
	repair := []string{"mender-app", "verify", "--repair", "--from", file, "shop"}

	// The steps of a repair that is not the first one, in the order in which each is first taken.
	damage(t)
	d.MustRun(t, repair[0], repair[1:]...)
	damage(t)
	trace := d.Share("trace")
	d.MustRun(t, "env", append([]string{"MENDER_APP_FAULT_TRACE=" + trace}, repair...)...)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	var points []string
	for name := range strings.Lines(string(text)) {
		if name = strings.TrimSpace(name); !slices.Contains(points, name) {
			points = append(points, name)
		}
	}
	require.Contains(t, points, "call.REPAIR")
	t.Logf("%d steps: %s", len(points), points)

	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			damage(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			// Not the first process in the device, which stops those outside with it.
			cmd := d.Command(ctx, "bash", append([]string{"-c", `"$@"; exit $?`, "repair"}, repair...)...)
			cmd.Env = append(cmd.Env, "MENDER_APP_FAULT="+point+":1:stop")
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &said
			require.NoError(t, cmd.Start())
			stopped := ""
			bed.Eventually(t, time.Minute, "the repair waits", func() bool {
				r, err := d.Run("bash", "-c", `grep -lsE '^State:\s+T' /proc/[0-9]*/status`)
				require.NoError(t, err)
				stopped = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(r.Stdout), "/proc/"), "/status")
				return stopped != ""
			})
			empty := fill(t, d, disk)
			d.MustRun(t, "kill", "-CONT", stopped)
			failed := cmd.Wait()
			empty()
			t.Logf("the repair ended: %v", failed)
			d.MustRun(t, "mender-app", "resume")
			e2e.Says(t, w, "web 1")
			d.MustRun(t, "mender-app", "health", "shop")
			d.MustRun(t, repair[0], repair[1:]...)
			e2e.Settled(t, d, w, "1")
			require.Equal(t, volumes, d.MustState(t).Volumes)
		})
	}
}
