// Package powercut tests the product with power cuts and kills on real components.
// It cuts the power of a device whose engine and store lie on a disk with a volatile
// write cache (the directory disk). It also kills the Mender client and its call of
// app at every step. Afterwards the device must run the old release or the new one,
// complete to the last byte, and the client must know which (inspect). `make faults`
// runs all of it, `make test` a sample.
//
// It must not import the product's packages.
package powercut

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/testdata/bed"
)

// roomEnv says that this process runs in its own mount namespace.
const roomEnv = "MENDER_APP_POWERCUT_ROOM"

// TestMain runs the tests in a mount namespace of their own. No other process can
// hold the file systems that lose their disk, and no mount or loop device remains,
// however the tests end.
func TestMain(m *testing.M) {
	if os.Getuid() == 0 && os.Getenv(roomEnv) == "" {
		os.Exit(inRoom())
	}
	if os.Getuid() == 0 {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "make mounts private:", err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if work.dir != "" {
		_ = os.RemoveAll(work.dir)
	}
	os.Exit(code)
}

func inRoom() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roomEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if code := cmd.ProcessState.ExitCode(); code > 0 {
			return code
		}
		fmt.Fprintln(os.Stderr, "run in a mount name space:", err)
		return 1
	}
	return 0
}

// faults reports whether all cuts and kills were requested, as by `make faults`.
func faults() bool { return os.Getenv("MENDER_APP_FAULTS") != "" }

// number returns an environment variable's value, or a default.
func number(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// need skips the test if a required tool or device is missing. In CI it fails the
// test.
func need(t *testing.T) {
	t.Helper()
	bed.Require(t, "mender", "mke2fs", "e2fsck", "go")
	work.engine = bed.RequireEngine(t)
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		if f, err := os.OpenFile(device, os.O_RDWR, 0); err == nil {
			f.Close()
		} else if os.Getenv("CI") == "true" {
			t.Fatalf("missing in CI: %s: %v", device, err)
		} else {
			t.Skipf("needs %s: %v", device, err)
		}
	}
}

// work holds what all tests share. It is prepared once.
var work struct {
	dir       string
	engine    bed.Engine // MENDER_APP_ENGINE names another than this machine's
	once      sync.Once
	catalogue *catalogue
	ledger    string            // the application's database (MENDER_APP_DATA): sqlite, postgres, or none
	empty     string            // disk image of a device without applications
	installed string            // disk image of a device that runs release 1
	records   map[string]string // the volumes there
	err       error
}

func prepared(t *testing.T) {
	t.Helper()
	need(t)
	needLedger(t)
	work.once.Do(func() { work.err = prepare() })
	if work.err != nil {
		t.Fatalf("prepare: %v", work.err)
	}
}

// diskSize is the size of a machine's disk, in bytes; the file is sparse.
const diskSize = 1 << 30

// prepare makes the artifacts and the two initial disks.
func prepare() (err error) {
	if work.dir, err = os.MkdirTemp("", "mender-app-cuts-"); err != nil {
		return err
	}
	if work.catalogue, err = newCatalogue(work.dir); err != nil {
		return err
	}
	work.empty = filepath.Join(work.dir, "empty.img")
	f, err := os.Create(work.empty)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return err
	}
	// Without these options the kernel would initialise the tables later, during a
	// test.
	out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", work.empty).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, out)
	}
	m := &machine{dir: filepath.Join(work.dir, "first"), backing: work.empty, catalogue: work.catalogue}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := errors.Join(os.Mkdir(m.dir, 0o755), m.boot(), m.shutDown()); err != nil {
		return fmt.Errorf("a device without applications: %w", err)
	}
	work.installed = filepath.Join(work.dir, "installed.img")
	if err := copyImage(work.empty, work.installed); err != nil {
		return err
	}
	m.backing = work.installed
	if err := m.boot(); err != nil {
		return err
	}
	if work.records, err = installFirst(m.Device, work.catalogue); err != nil {
		return fmt.Errorf("a device that runs release 1: %w", err)
	}
	return m.shutDown()
}

// copyImage copies the image of a disk.
func copyImage(from, to string) error {
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// installFirst installs and commits release 1 and puts data into its volume.
func installFirst(d *bed.Device, c *catalogue) (records map[string]string, err error) {
	for _, args := range [][]string{{"install", d.Share(filepath.Base(c.releases["1"].file))}, {"commit"}} {
		if r, err := d.Mender(args...); err != nil || r.Code != 0 {
			return nil, fmt.Errorf("mender %s: %w %s", strings.Join(args, " "), err, r.Output())
		}
	}
	r, err := d.Run("bash", "-c", `cd /var/lib/docker/volumes/yard_records/_data
		for n in $(seq 40); do head -c $((n * 700)) /dev/urandom >record-$n; done`)
	if err != nil || r.Code != 0 {
		return nil, fmt.Errorf("records: %w %s", err, r.Output())
	}
	s, err := d.State("/")
	if err != nil {
		return nil, err
	}
	delete(s.Volumes, ledgerData) // it is written to all the time
	_, err = becomes(d, c, s.Volumes, "1")
	return s.Volumes, err
}

var diskProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(work.dir, "disk-program")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	build.Dir = filepath.Join(bed.Repository(), "testdata/powercut/disk")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the disk: %w\n%s", err, out)
	}
	return program, nil
})

// pace is the time between two queries of the disk.
const pace = 20 * time.Millisecond
