package powercut

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/testdata/bed"
)

// machine is a device that keeps its persistent files on one disk that can lose
// power: the engine's data root, the store and the Mender client's own files. It can
// be booted any number of times, each time with a new boot id.
type machine struct {
	*bed.Device // nil while it is off
	dir         string
	backing     string // file that the loop device is on; "": there is none, the files lie in dir
	disk        *disk  // nil: the power cannot be cut
	catalogue   *catalogue
	boots       int
	records     map[string]string // its volumes, where no image says
	refusals    int               // installations that had to be repeated
	restarts    int               // of the engine, because the product asked for them
	cpp         bool              // the Mender client is the one in C++
	committed   bool              // the client committed an installed update when it was to go on
	noBarrier   bool              // for the control test: SYNC does nothing

	losesNetworks bool // the next boot finds no database of networks
}

// newMachine makes a machine with a copy-on-write disk over an image.
func newMachine(image string, c *catalogue) (*machine, error) {
	dir, err := os.MkdirTemp("", "mender-app-cut-")
	if err != nil {
		return nil, err
	}
	m := &machine{dir: dir, catalogue: c}
	if m.disk, err = startDisk(image, filepath.Join(dir, "fuse")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	m.backing = filepath.Join(dir, "fuse", "disk")
	return m, nil
}

// boot checks the file system as a machine does at boot, mounts it, and starts the
// device with its engine.
func (m *machine) boot() error {
	root := filepath.Join(m.dir, "disk")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if m.backing != "" {
		if err := mount(m.backing, root); err != nil {
			return err
		}
	}
	if m.losesNetworks {
		m.losesNetworks = false
		if err := os.Remove(filepath.Join(root, "docker/network/files/local-kv.db")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	m.boots++
	dir := filepath.Join(m.dir, fmt.Sprint("boot-", m.boots))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, sub := range []string{"data", "docker"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(root, sub), filepath.Join(dir, sub)); err != nil {
			return err
		}
	}
	var err error
	if m.Device, err = bed.New(dir); err != nil {
		return err
	}
	m.Engine, m.DataRoot = work.engine, "/var/lib/docker"
	for _, r := range m.catalogue.releases {
		if err := os.Link(r.file, m.Share(filepath.Base(r.file))); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := os.WriteFile(m.Share(overrideFile), []byte("services: {web: {labels: {cut: \"yes\"}}}\n"), 0o644); err != nil {
		return err
	}
	if err := errors.Join(m.install(), m.AddRestartCommand()); err != nil {
		return err
	}
	if m.cpp {
		if err := m.InstallCppMender(); err != nil {
			return err
		}
	}
	return m.StartEngine()
}

// install puts the programs into the device and sets its boot id. The root file
// system does not survive a power cut, so each boot installs them again.
func (m *machine) install() error {
	programs, err := bed.Programs()
	if err != nil {
		return err
	}
	barrier := ""
	if m.noBarrier {
		barrier = "no"
	}
	r, err := m.Run("bash", "-c", `
		set -eu
		programs=$1
		printf '%08x-0000-4000-8000-000000000000\n' "$2" >/run/boot_id
		mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
		mkdir -p /usr/share/mender/modules/v3 /usr/share/mender/app-modules/v1
		cp "$programs"/app /usr/share/mender/modules/v3/app # the client in C++ refuses a link
		sub=/usr/share/mender/app-modules/v1/docker-compose
		if [ "$3" = no ]; then
			printf '#!/bin/sh\n[ "$1" = SYNC ] && exit 0\nexec %s "$@"\n' "$programs"/docker-compose >$sub
			chmod 755 $sub
		else
			ln -s "$programs"/docker-compose $sub
		fi
		ln -sf "$programs"/mender-app /usr/bin/mender-app
		printf 'HEALTH_WINDOW=300ms\nENGINE_RESTART_COMMAND=%s\n' "$4" >/etc/mender/mender-app-docker-compose.conf`,
		"install", programs, fmt.Sprint(m.boots), barrier, bed.RestartCommand)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("install the programs: %w", err)
	}
	return nil
}

// attended runs f, and restarts the engine when the product asks for it.
func (m *machine) attended(f func() (bed.Result, error)) (r bed.Result, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = f()
	}()
	for {
		select {
		case <-done:
			return r, err
		case <-time.After(pace):
		}
		wanted, restartErr := m.RestartIfWanted()
		if restartErr != nil {
			<-done
			return r, restartErr
		}
		if wanted {
			m.restarts++
		}
	}
}

// shutDown stops the device cleanly and unmounts its file system.
func (m *machine) shutDown() error {
	if m.Device == nil {
		return nil
	}
	err := m.Device.Close()
	m.Device = nil
	return errors.Join(err, m.unmount())
}

func (m *machine) unmount() error {
	if m.backing == "" {
		return nil
	}
	return unmount(filepath.Join(m.dir, "disk"), m.backing)
}

// cut cuts the power, unless the disk has lost it already. The mode says what
// survives of the disk's cache. Nothing survives of the memory.
func (m *machine) cut(mode string, seed int64) error {
	if _, err := m.disk.ask("cut %s %d", mode, seed); err != nil {
		return err
	}
	err := m.Device.Kill()
	m.Device = nil
	if err := errors.Join(err, m.unmount()); err != nil {
		return err
	}
	_, err = m.disk.ask("on")
	return err
}

// close stops the machine and removes it.
func (m *machine) close() error {
	var err error
	if m.Device != nil {
		err = m.Device.Kill()
		m.Device = nil
		err = errors.Join(err, m.unmount())
	}
	if m.disk != nil {
		err = errors.Join(err, m.disk.stop())
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// mount attaches a file to a loop device, checks the file system as a machine does
// at boot, and mounts it. Unmounting also frees the loop device.
func mount(file, dir string) error {
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer backing.Close()
	node, loop, err := freeLoop(backing)
	if err != nil {
		return fmt.Errorf("loop device: %w", err)
	}
	defer loop.Close()
	// Exit codes 0 and 1 mean that the file system is clean or was repaired.
	out, err := exec.Command("e2fsck", "-p", node).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return fmt.Errorf("e2fsck: %w: %s", err, out)
	}
	if err := unix.Mount(node, dir, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", node, err)
	}
	return nil
}

// freeLoop attaches backing to a free loop device that frees itself when
// nothing uses it.
func freeLoop(backing *os.File) (node string, loop *os.File, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer control.Close()
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", nil, err
		}
		node = fmt.Sprint("/dev/loop", n)
		if _, err := os.Stat(node); err != nil { // no devtmpfs
			if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))); err != nil {
				return "", nil, err
			}
		}
		loop, err := os.OpenFile(node, os.O_RDWR, 0)
		if err != nil {
			return "", nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		copy(config.Info.File_name[:], backing.Name())
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return node, loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // another process was quicker
			return "", nil, err
		}
	}
	return "", nil, unix.EBUSY
}

// unmount returns when nothing uses the file system any more. Mount namespaces of
// processes that have just ended hold it for a moment.
func unmount(dir, backing string) error {
	if err := unix.Unmount(dir, 0); err != nil {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		used, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		busy := false
		for _, f := range used {
			name, _ := os.ReadFile(f)
			busy = busy || strings.TrimSpace(string(name)) == backing
		}
		if !busy {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the loop device on %s is still in use", backing)
		}
	}
}

// disk is the process that runs the program in the directory disk.
type disk struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	dir string
}

func startDisk(image, dir string) (*disk, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	program, err := diskProgram()
	if err != nil {
		return nil, err
	}
	d := &disk{cmd: exec.Command(program, image, dir), dir: dir}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.out = bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := d.answer(); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *disk) ask(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(d.in, format+"\n", args...); err != nil {
		return "", err
	}
	return d.answer()
}

func (d *disk) answer() (string, error) {
	line, err := d.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the disk does not answer: %w", err)
	}
	answer, ok := strings.CutPrefix(strings.TrimSpace(line), "ok ")
	if !ok {
		return "", fmt.Errorf("the disk: %s", strings.TrimSpace(line))
	}
	return answer, nil
}

func (d *disk) off() (bool, error) {
	stat, err := d.ask("stat")
	return strings.HasPrefix(stat, "off=true "), err
}

func (d *disk) stop() error {
	_ = d.in.Close()
	done := make(chan error, 1)
	go func() { done <- d.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		return errors.Join(errors.New("the disk did not end"), <-done)
	}
}
