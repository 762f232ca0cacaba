package armdevice

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Booted is the snapshot that every new VM has. It shows the device just after its
// boot, with the engine running.
const Booted = "booted"

// Image returns the directory of a machine's image in the user's cache directory. It
// holds vmlinuz, initrd, root.ext4 and booted.qcow2, a layer over root.ext4 with the
// snapshot. Image rebuilds it if its sources or QEMU's version have changed.
func Image(m Machine) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	here := filepath.Join(bed.Repository(), "testdata/armdevice")
	parts, err := filepath.Glob(filepath.Join(here, "agent/*.go"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range append(parts, filepath.Join(here, "build"), filepath.Join(here, "vm.go")) {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(name), len(data), data)
	}
	version, err := exec.Command(m.qemu[0], "--version").Output() // it has to know its snapshot
	if err != nil {
		return "", fmt.Errorf("%s: %w (testdata/armdevice/setup installs it)", m.qemu[0], err)
	}
	sum.Write(version)
	prefix := filepath.Join(cache, "mender-app/armdevice/image-"+m.Name+"-")
	dir := fmt.Sprintf("%s%x", prefix, sum.Sum(nil)[:6])
	if _, err := os.Stat(filepath.Join(dir, "booted.qcow2")); err == nil {
		return dir, nil
	}
	old, _ := filepath.Glob(prefix + "*") // of another state of the parts, or not finished
	for _, name := range old {
		if err := os.RemoveAll(name); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(filepath.Join(here, "build"), m.Name, dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the device's image: %w\n%s", err, text)
	}
	return dir, boot(m, dir)
}

// boot makes booted.qcow2.
func boot(m Machine, dir string) error {
	temp, err := os.MkdirTemp(dir, "boot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	v := &VM{machine: m, image: dir, dir: temp}
	if err := command("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", filepath.Join(dir, "root.ext4"), v.disk()); err != nil {
		return err
	}
	defer v.Cut()
	if err := v.Start(""); err != nil {
		return err
	}
	if err := v.Save(Booted); err != nil {
		return err
	}
	v.Cut()
	return os.Rename(v.disk(), filepath.Join(dir, "booted.qcow2"))
}

// New makes a device that keeps its disk in dir. The device is off and has the
// snapshot Booted.
func New(m Machine, dir string) (*VM, error) {
	image, err := Image(m)
	if err != nil {
		return nil, err
	}
	v := &VM{machine: m, image: image, dir: dir}
	from, err := os.Open(filepath.Join(image, "booted.qcow2"))
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := os.Create(v.disk())
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(to, from)
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	return v, err
}

// Open opens a device that New made in dir, in the state it was left in.
func Open(m Machine, dir string) (*VM, error) {
	image, err := Image(m)
	if err != nil {
		return nil, err
	}
	v := &VM{machine: m, image: image, dir: dir}
	_, err = os.Stat(v.disk())
	return v, err
}

func command(name string, args ...string) error {
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(text))
	}
	return nil
}
