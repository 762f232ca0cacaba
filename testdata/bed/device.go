package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mender-app/mender-app/generator/machine"
)

// Type is the device type of every Device.
const Type = "testbed"

// Device is a machine (package machine) with a Mender client and the product, and with
// any engine of Engines.
type Device struct {
	*machine.Machine
	// Engine is what StartEngine starts. The zero value is this machine's dockerd.
	Engine Engine
	// DataRoot is the path of the engine's data root inside the device; "" is
	// Dir/docker. /var/lib/docker is the same directory, unless a test mounts another one
	// there, which this must then name. Its name does not depend on
	// Dir, which helps a device that is started again with another Dir.
	DataRoot string

	tmp      map[string]bool // what /tmp had from the beginning
	noMender bool
	cpp      bool // the Mender client is the C++ one
}

// Start starts a device with a running engine and the product of `make install` in
// it, and closes it when the test ends. If that is not possible here, it skips the
// test (in CI: fails).
//
// The engine is this machine's; MENDER_APP_ENGINE names another of Engines. So is Docker
// Compose; MENDER_APP_COMPOSE names another of ComposeVersions.
func Start(t testing.TB) *Device {
	t.Helper()
	return StartWith(t, machineEngine(t))
}

// StartWithoutEngine is Start for sub-modules that need no engine.
func StartWithoutEngine(t testing.TB) *Device {
	t.Helper()
	return start(t)
}

// start starts a device with the product in it, without an engine yet.
func start(t testing.TB) *Device {
	t.Helper()
	Require(t, "mender")
	programs, err := Programs()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "mender-app-bed-")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if open, err := d.OpenToStrangers(); err != nil {
			t.Errorf("look at the store as another user: %v", err)
		} else if len(open) > 0 {
			t.Errorf("any user can read or enter these in the store:\n%s", strings.Join(open, "\n"))
		}
		if left, err := d.LeftBehind(); err != nil {
			t.Errorf("look for what is left: %v", err)
		} else if len(left) > 0 {
			t.Errorf("of applications that are not installed there is still:\n%s", strings.Join(left, "\n"))
		}
		// Nobody looks at it any more: a shutdown would stop each container first.
		if err := d.Kill(); err != nil {
			t.Errorf("end the device: %v", err)
		}
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(dir, "dockerd.log")); err == nil {
				t.Logf("end of the engine's log:\n%s", machine.LastLines(string(log), 15))
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the device: %v", err)
		}
	})
	if err := d.Install(programs); err != nil {
		t.Fatal(err)
	}
	d.giveCompose(t)
	return d
}

// New starts a device that keeps its files in dir, without an engine yet.
func New(dir string) (*Device, error) { return newFrom(dir, "") }

// StartFrom starts a device whose file tree is that of a directory, such as EngineTree's,
// and not this machine's. It has neither the product nor a configuration of it. It is closed
// when the test ends.
func StartFrom(t testing.TB, tree string) *Device {
	t.Helper()
	Require(t)
	if _, err := os.Stat(tree); err != nil {
		need(t, tree+" (testdata/engines/setup)")
	}
	dir, err := os.MkdirTemp("", "mender-app-bed-")
	if err != nil {
		t.Fatal(err)
	}
	d, err := newFrom(dir, tree)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Kill(); err != nil {
			t.Errorf("end the device: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the device: %v", err)
		}
	})
	return d
}

func newFrom(dir, tree string) (*Device, error) {
	engines, err := engineTrees()
	if err != nil {
		return nil, err
	}
	m, err := machine.Start(machine.Options{Dir: dir, Type: Type, Tree: tree, Show: []string{Repository(), engines}})
	if err != nil {
		return nil, err
	}
	d := &Device{Machine: m}
	// The device's directory and the project's tree may be below /tmp.
	if d.tmp, err = d.listTmp(); err != nil {
		return nil, errors.Join(err, d.Kill())
	}
	return d, nil
}

func (d *Device) listTmp() (map[string]bool, error) {
	entries, err := os.ReadDir(d.Path("/tmp"))
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names, err
}

// LeftInTmp lists what is in the device's /tmp and was not there when it started, but for
// the files of runc.
func (d *Device) LeftInTmp() ([]string, error) {
	names, err := d.listTmp()
	maps.DeleteFunc(names, func(name string, _ bool) bool { return d.tmp[name] || strings.HasPrefix(name, "runc-process") })
	return slices.Sorted(maps.Keys(names)), err
}

// OpenToStrangers lists what a user without rights can read or enter in the store, whose
// default place it is. A device that has ended, and a store that none of our programs has
// used, have nothing.
func (d *Device) OpenToStrangers() ([]string, error) {
	const store = "/data/mender-app"
	if _, err := os.Stat(d.Path(store + "/.mender-app")); err != nil {
		return nil, nil
	}
	r, err := d.Run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		"find", store, "(", "-readable", "-o", "-executable", ")", "!", "-type", "l")
	if err != nil || r.Code > 1 { // 1: find could not enter a directory
		return nil, errors.Join(err, errors.New(r.Output()))
	}
	return strings.Fields(r.Stdout), nil
}

// Run runs a command inside the device, for at most ten minutes. An error says that
// the command could not be run. The Result says how it ended.
func (d *Device) Run(name string, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return run(d.Command(ctx, name, args...))
}

// MustRun runs a command inside the device and fails the test if the command fails.
func (d *Device) MustRun(t testing.TB, name string, args ...string) string {
	t.Helper()
	r, err := d.Run(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 0 {
		t.Fatalf("%s %s: exit %d\n%s", name, strings.Join(args, " "), r.Code, r.Output())
	}
	return r.Stdout
}

// Share returns the path of a file for passing things in and out: it is the same
// here and in the device.
func (d *Device) Share(name string) string { return filepath.Join(d.Dir, "share", name) }

// Install installs the programs that are in a build directory as `make install` does.
// Configuration files that are there already stay.
func (d *Device) Install(programs string) error {
	files, err := installed(programs)
	if err != nil {
		return err
	}
	args := []string{"-x", "-C", d.Path("/"), "--no-overwrite-dir", "--keep-directory-symlink"}
	if _, err := os.Stat(d.Path("/etc/mender/mender-app.conf")); err == nil {
		args = append(args, "--exclude=./etc")
	}
	unpack := exec.Command("tar", args...)
	unpack.Stdin = bytes.NewReader(files)
	r, err := run(unpack)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("install the programs: %w", err)
	}
	return nil
}

var installations struct {
	sync.Mutex
	files map[string][]byte // by the directory of the programs
}

// installed returns a tar of what `make install` installs from a build directory. It
// is made once per process: tests start many devices.
func installed(programs string) ([]byte, error) {
	installations.Lock()
	defer installations.Unlock()
	if files := installations.files[programs]; files != nil {
		return files, nil
	}
	r, err := run(exec.Command("bash", "-c", `
		set -eu
		tree=$(mktemp -d)
		trap 'rm -rf "$tree"' EXIT
		there=
		for p in app docker-compose k8s mender-app app-gen app-conformance; do
			[ ! -e "$1/$p" ] || there="$there $p"
		done
		make -s -C "$2" install FROM="$(realpath "$1")" PROGRAMS="$there" DESTDIR="$tree" >&2
		tar -c --owner=0 --group=0 -C "$tree" .`, "install", programs, Repository()))
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return nil, fmt.Errorf("make install: %w", err)
	}
	if installations.files == nil {
		installations.files = map[string][]byte{}
	}
	installations.files[programs] = []byte(r.Stdout)
	return installations.files[programs], nil
}

// StartEngine starts the device's Docker engine and waits until it answers.
func (d *Device) StartEngine() error {
	tree, err := d.Engine.Tree()
	if err != nil {
		return err
	}
	e := machine.Engine{DataRoot: d.DataRoot}
	if tree != "" {
		e.Through = []string{"unshare", "--mount", "--propagation", "private", "bash", "-c", engineScript, "engine", tree, d.Dir}
	}
	if d.Engine.Containerd {
		e.Settings = `, "features": {"containerd-snapshotter": true}`
	}
	if d.Engine.Podman {
		user := "root"
		if d.Engine.Rootless {
			user = "podman"
		}
		e.Instead = func(root string) []string { return []string{"bash", "-c", podmanService, "podman", root, user} }
	}
	return d.Machine.StartEngine(e)
}

// CrashEngine kills the engine as the kernel does when it is out of memory. The
// engine cannot stop cleanly, and its containers are left for the next engine to
// find.
func (d *Device) CrashEngine() { d.KillEngine() }

// Disk puts a new ext4 file system of a size in bytes in place of a directory of the
// device, with the directory's content. It is removed with the device.
func (d *Device) Disk(directory string, size int64) error {
	file := d.Share("disk" + strings.ReplaceAll(directory, "/", "-"))
	r, err := d.Run("bash", "-ec", `
		truncate -s "$2" "$3"
		mkfs.ext4 -q -m 0 "$3"
		mkdir -p "$1" /tmp/filling
		mount -o loop "$3" /tmp/filling
		rmdir /tmp/filling/lost+found
		cp -a "$1"/. /tmp/filling
		mount --bind /tmp/filling "$1"
		umount /tmp/filling`, "disk", directory, strconv.FormatInt(size, 10), file)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("make a disk for %s: %w", directory, err)
	}
	return nil
}
