// Command agent is the emulated device's init and the tests' hand on it. In
// the initrd it loads the modules for the disk and changes to the real root;
// there, as process 1, it mounts, brings the network up, starts the Docker
// engine and reaps; and it serves commands and files over HTTP on port 2323,
// which QEMU shows to the machine that runs the test, and to nobody else.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const boot = `
mount -t proc proc /proc 2>/dev/null; mount -t sysfs sys /sys 2>/dev/null; mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts -o ptmxmode=666,newinstance
mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777,size=32m tmp /tmp
mkdir -p /run/lock
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o remount,rw,noatime /
modprobe -a virtio_net virtio_rng overlay bridge br_netfilter veth nf_tables nft_compat nft_chain_nat xt_MASQUERADE xt_addrtype xt_conntrack
hostname armdevice
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
sysctl -qw net.ipv4.ip_forward=1
`

func main() {
	switch {
	case os.Getpid() == 1 && os.Args[0] == "/init":
		fatal(initrd())
	case os.Getpid() == 1:
		_ = os.Setenv("PATH", path)
		_ = os.Setenv("HOME", "/root")
		_ = os.Setenv("LANG", "C.UTF-8")
		say("start")
		sh := exec.Command("/bin/sh", "-c", boot)
		sh.Stdout, sh.Stderr = os.Stderr, os.Stderr
		if err := sh.Run(); err != nil {
			say(err)
		}
		start("/usr/sbin/armagent")
		start("/bin/sh", "-c", "exec dockerd >>/var/log/dockerd.log 2>&1")
		reap()
	default:
		m := newMeter()
		http.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) { serve(w, r, m.measure) })
		http.HandleFunc("POST /try", func(w http.ResponseWriter, r *http.Request) { serve(w, r, unmeasured) })
		http.HandleFunc("GET /ready", ready)
		http.HandleFunc("PUT /file", put)
		http.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, r.URL.Query().Get("path"))
		})
		fatal(http.ListenAndServe(":2323", nil))
	}
}

// say writes a line to the console.
func say(what any) {
	up, _ := os.ReadFile("/proc/uptime")
	uptime, _, _ := strings.Cut(string(up), " ")
	fmt.Fprintf(os.Stderr, "agent %s: %v\n", uptime, what)
}

func fatal(err error) {
	say(err)
	time.Sleep(time.Second) // let the console have it; process 1 must not end at once
	os.Exit(1)
}

// start starts a program in a session of its own.
func start(name string, args ...string) {
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		say(err)
	}
}

// reap waits for processes that end, which is the duty of process 1. It never returns.
func reap() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil {
			time.Sleep(time.Second)
		}
	}
}

// initrd loads /m/*.ko in the order of their names, mounts the disk and goes
// on as the agent on it.
func initrd() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	modules, err := filepath.Glob("/m/*.ko")
	if err != nil {
		return err
	}
	for _, name := range modules {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := unix.InitModule(data, ""); err != nil && err != unix.EEXIST {
			say(fmt.Errorf("load %s: %w", name, err))
		}
	}
	for i := 0; ; i++ {
		err := unix.Mount("/dev/vda", "/root", "ext4", 0, "")
		if err == nil {
			break
		}
		if i == 500 {
			return fmt.Errorf("mount /dev/vda: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, "/root"+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := unix.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Exec("/usr/sbin/armagent", []string{"/usr/sbin/armagent"}, []string{"PATH=" + path})
}
