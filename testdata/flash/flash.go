// Package flash measures how many bytes an update writes to a device's flash. The
// engine's images and the temporary files each have a disk with its own ext4 file
// system. The block devices count the bytes written, after a sync. The package also
// measures the peak memory of the largest process.
package flash

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
)

// rig is a device whose engine and temporary files each have a disk.
type rig struct {
	*bed.Device
	engine, temp string // names of their block devices
}

const tempDir = "/data/tmp"

// newRig starts a device with an engine. Each disk has size bytes.
func newRig(t testing.TB, e bed.Engine, size int64) *rig {
	t.Helper()
	d := bed.StartWith(t, e)
	if err := d.StopEngine(); err != nil {
		t.Fatal(err)
	}
	r := &rig{Device: d}
	r.engine = r.disk(t, filepath.Join(d.Dir, "docker"), size)
	r.temp = r.disk(t, tempDir, size)
	if err := d.StartEngine(); err != nil {
		t.Fatal(err)
	}
	return r
}

// disk mounts a new file system over a directory and returns its block device.
// Nothing is written to it in the background.
func (r *rig) disk(t testing.TB, directory string, size int64) string {
	t.Helper()
	return strings.TrimSpace(r.MustRun(t, "bash", "-ec", `
		mkdir -p "$1"
		file=$3/disk-$(basename "$1")
		truncate -s "$2" "$file"
		mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$file"
		mount -o loop,noatime "$file" "$1"
		basename "$(findmnt -n -o SOURCE --target "$1")"`, "disk", directory, strconv.FormatInt(size, 10), r.Share("")))
}

// written returns the number of bytes written to a block device.
func (r *rig) written(t testing.TB, device string) int64 {
	t.Helper()
	b, err := os.ReadFile("/sys/block/" + device + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	// Documentation/block/stat.rst: the seventh field is the number of 512-byte
	// sectors written.
	n, err := strconv.ParseInt(strings.Fields(string(b))[6], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * 512
}

// cost holds the time, writes and memory of a step.
type cost struct {
	wall         time.Duration
	engine, temp int64 // bytes written
	rss          int64 // bytes, of the biggest process that was started for it
}

// measure runs a script on the device and fails the test if the script fails. args
// are its positional parameters from $1 on.
func (r *rig) measure(t testing.TB, script string, args ...string) cost {
	t.Helper()
	r.MustRun(t, "sync")
	engine, temp := r.written(t, r.engine), r.written(t, r.temp)
	start := time.Now()
	r.MustRun(t, "time", append([]string{"-f", "%M", "-o", "/tmp/rss", "bash", "-ec", script, "measured"}, args...)...)
	c := cost{wall: time.Since(start)}
	r.MustRun(t, "sync")
	c.engine, c.temp = r.written(t, r.engine)-engine, r.written(t, r.temp)-temp
	text := strings.Fields(r.MustRun(t, "cat", "/tmp/rss"))
	kib, err := strconv.ParseInt(text[len(text)-1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	c.rss = kib << 10
	return c
}

// row returns the cost as a row of a table. changed is the size of the changed
// layers, in bytes.
func (c cost) row(engine, step string, changed int64) string {
	const mib = 1 << 20
	return fmt.Sprintf("| %s | %s | %.1f | %.1f | %.1f | %.2f | %.1f |", engine, step, c.wall.Seconds(),
		float64(c.engine)/mib, float64(c.temp)/mib, float64(c.engine+c.temp)/float64(changed), float64(c.rss)/mib)
}
