package bed

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Type is the device type of every Device.
const Type = "testbed"

//go:embed device.sh
var deviceScript string

// Device is a machine of its own: namespaces for mounts, network, processes,
// IPC and host name over a copy-on-write view of this machine's file tree. What is
// installed, loaded or broken in it stays in it. Its engine has a data root of
// its own; it has no network to the outside.
type Device struct {
	// Dir holds all that the device keeps, on this machine's disk and at the
	// same path inside: data/ is its /data, docker/ its /var/lib/docker,
	// share/ is for passing files.
	Dir string
	// Engine is what StartEngine starts. The zero value is this machine's dockerd.
	Engine Engine
	// DataRoot is the path of the engine's data root inside the device; "" is
	// Dir/docker. /var/lib/docker is the same directory. Its name does not depend on
	// Dir, which helps a device that is started again with another Dir.
	DataRoot string

	init   *exec.Cmd
	tmp    map[string]bool // what /tmp had from the beginning
	stop   func() error
	cgroup string
	engine *exec.Cmd

	systemd  int // its process in the device; 0: it does not run
	noMender bool
	cpp      bool // the Mender client is the C++ one

	once sync.Once
	err  error
}

// Start starts a device with a running engine and the product of `make install` in
// it, and closes it when the test ends. If that is not possible here, it skips the
// test (in CI: fails).
//
// The engine is this machine's; MENDER_APP_ENGINE names another of Engines.
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
				t.Logf("end of the engine's log:\n%s", lastLines(string(log), 15))
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the device: %v", err)
		}
	})
	if err := d.Install(programs); err != nil {
		t.Fatal(err)
	}
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
	// Devices run in parallel, and their directories may have the same name.
	d := &Device{Dir: dir, cgroup: fmt.Sprintf("mender-app-%x", sha256.Sum256([]byte(dir)))[:24]}
	for _, sub := range []string{"data/mender", "docker", "share", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "data/mender/device_type"), []byte("device_type="+Type+"\n"), 0o644); err != nil {
		return nil, err
	}

	// bash is process 1 of the device: it reaps orphaned processes, and all
	// processes of the device die with it.
	engines, err := engineTrees()
	if err != nil {
		return nil, err
	}
	d.init = exec.Command("bash", "-c", deviceScript, "device", dir, Repository(), engines, tree)
	d.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	var trouble strings.Builder
	d.init.Stderr = &trouble
	in, err := d.init.StdinPipe()
	if err != nil {
		return nil, err
	}
	d.stop = in.Close // the script waits for its input to end
	out, err := d.init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.init.Start(); err != nil {
		return nil, fmt.Errorf("start a device: %w", err)
	}
	ready := make([]byte, len("ready\n"))
	if n, _ := out.Read(ready); string(ready[:n]) != "ready\n" {
		_ = d.init.Process.Kill()
		_ = d.init.Wait()
		return nil, fmt.Errorf("start a device: %s", strings.TrimSpace(trouble.String()))
	}
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

// Close ends every process of the device and removes its mounts and control groups.
// The files in Dir stay.
func (d *Device) Close() error {
	d.once.Do(func() {
		d.err = errors.Join(d.StopEngine(), d.stop())
		done := make(chan struct{})
		go func() {
			_ = d.init.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = d.init.Process.Kill()
			<-done
		}
		d.removeCgroups()
	})
	return d.err
}

// Kill ends every process of the device at once, as a power loss does: no process
// can react. Otherwise it does the same as Close.
func (d *Device) Kill() error {
	d.once.Do(func() {
		d.engine = nil
		d.err = d.init.Process.Kill() // process 1: the others die before it is gone
		_ = d.init.Wait()
		d.removeCgroups()
	})
	return d.err
}

// removeCgroups removes the groups of the device's containers, which are in the
// hierarchy of the whole machine. An engine that stopped cleanly left only the
// parents; those of a killed engine are empty by now.
func (d *Device) removeCgroups() {
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/" + d.cgroup)
	for _, top := range append(tops, "/sys/fs/cgroup/"+d.cgroup) {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i])
		}
	}
}

// Command returns a command to run inside the device, with a plain environment and
// HOME set to /root. The command ends with ctx.
func (d *Device) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(d.init.Process.Pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--wdns=/", "--"}
	if d.systemd != 0 {
		enter = append(enter, "nsenter", "--target", strconv.Itoa(d.systemd), "--mount", "--pid", "--wdns=/", "--")
	}
	enter = append(enter, name)
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
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

// Path returns the path on this machine of a path in the device.
func (d *Device) Path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", d.init.Process.Pid, path)
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

// Host is the address at which this machine reaches the device's engine. The
// engine's data root, Dir/docker, has the same path inside and outside.
func (d *Device) Host() string { return "unix://" + filepath.Join(d.Dir, "docker.sock") }

// StartEngine starts the device's Docker engine and waits until it answers.
func (d *Device) StartEngine() error {
	tree, err := d.Engine.Tree()
	if err != nil {
		return err
	}
	var inTree []string // what runs a command in the engine's tree
	if tree != "" {
		inTree = []string{"unshare", "--mount", "--propagation", "private", "bash", "-c", engineScript, "engine", tree, d.Dir}
	}
	root := d.DataRoot
	if root == "" {
		root = filepath.Join(d.Dir, "docker")
	}
	config := filepath.Join(d.Dir, "daemon.json")
	// cgroupfs: there is no systemd in the device to ask for groups.
	settings := `{"exec-opts": ["native.cgroupdriver=cgroupfs"], "cgroup-parent": "/` + d.cgroup + `"`
	if d.Engine.Containerd {
		settings += `, "features": {"containerd-snapshotter": true}`
	}
	settings += "}"
	if err := os.WriteFile(config, []byte(settings), 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(d.Dir, "dockerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()

	var last string
	for _, network := range [][]string{nil, {"--bridge", "none", "--iptables=false"}} {
		args := append(slices.Clone(inTree), "dockerd", "--config-file", config, "--shutdown-timeout", "5",
			"--data-root", root, "-H", "unix:///var/run/docker.sock", "-H", d.Host())
		args = append(args, network...)
		if d.Engine.Podman {
			user := "root"
			if d.Engine.Rootless {
				user = "podman"
			}
			args = append(slices.Clone(inTree), "bash", "-c", podmanService, "podman", root, user)
		}
		d.engine = d.Command(context.Background(), args[0], args[1:]...)
		d.engine.Stdout, d.engine.Stderr = log, log
		if err := d.engine.Start(); err != nil {
			return fmt.Errorf("start the engine: %w", err)
		}
		ended := make(chan struct{})
		go func(engine *exec.Cmd) { _ = engine.Wait(); close(ended) }(d.engine)
		for range 300 {
			r, err := d.Run("docker", "version", "--format", "{{.Server.Version}}")
			if err == nil && r.Code == 0 {
				return nil
			}
			last = r.Output()
			select {
			case <-ended: // a kernel without bridges or iptables: try without
			case <-time.After(50 * time.Millisecond):
				continue
			}
			break
		}
		d.killEngine()
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("start the engine: %s\n%s", last, lastLines(string(text), 10))
}

// StopEngine stops the engine and its containers as a shutdown does. Without an
// engine it does nothing.
func (d *Device) StopEngine() error {
	if d.engine == nil {
		return nil
	}
	d.engine = nil
	// nsenter waits for dockerd and does not pass signals on: send the signal
	// inside.
	r, err := d.Run("bash", "-c", `
		pid=$(cat /run/docker.pid 2>/dev/null || cat /var/run/docker.pid 2>/dev/null) || exit 0
		kill "$pid"
		for _ in $(seq 300); do [ -e "/proc/$pid" ] || exit 0; sleep 0.05; done
		kill -9 "$pid"`)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	return err
}

func (d *Device) killEngine() {
	_, _ = d.Run("bash", "-c", `kill -9 $(cat /run/docker.pid) 2>/dev/null; rm -f /run/docker.pid`)
	d.engine = nil
}

// CrashEngine kills the engine as the kernel does when it is out of memory. The
// engine cannot stop cleanly, and its containers are left for the next engine to
// find.
func (d *Device) CrashEngine() { d.killEngine() }

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

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
