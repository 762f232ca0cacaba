// Package armdevice is a small ARM device in QEMU: 256 MiB of memory, one
// processor, a disk, Debian's kernel and userland with Docker, Compose v2 and
// the Mender client, made by the script build. The tests in it drive the
// product there as a person and the Mender client would, cut its power, and
// measure what an update costs. It must not know the product's packages.
package armdevice

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Type is the device type of every device of this package.
const Type = "armdevice"

// Machine is a kind of device.
type Machine struct {
	Name     string // Debian's name of the architecture
	Platform string // of its images
	Programs string // the machine of `make cross` whose programs it runs
	qemu     []string
}

// Memory is what a device has, in MiB.
const Memory = "256"

// Machines are the kinds there are, by name.
var Machines = map[string]Machine{
	"armhf": {Name: "armhf", Platform: "linux/arm/v7", Programs: "arm-v7",
		qemu: []string{"qemu-system-arm", "-cpu", "cortex-a15"}},
	"arm64": {Name: "arm64", Platform: "linux/arm64", Programs: "arm64",
		qemu: []string{"qemu-system-aarch64", "-cpu", "cortex-a53"}},
}

// VM is one device. Its disk is a layer over the machine's image.
type VM struct {
	// Clock is what the device's clock says at each boot, in ISO 8601; "" is the
	// time. A device without a battery begins in 1970.
	Clock string

	machine Machine
	image   string // directory that Image gave
	dir     string
	port    int
	qemu    *exec.Cmd
	ended   chan struct{}
}

func (v *VM) disk() string { return filepath.Join(v.dir, "disk.qcow2") }

// Start puts the device under power, from its disk or, where snapshot is not
// empty, as it was when that was saved. It returns when the engine answers.
func (v *VM) Start(snapshot string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	v.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	// restrict=on: the device sees no other machine.
	args := append(v.machine.qemu[1:len(v.machine.qemu):len(v.machine.qemu)],
		"-M", "virt", "-accel", "tcg,tb-size=256", "-m", Memory, "-display", "none", "-nodefaults", "-no-reboot",
		"-kernel", filepath.Join(v.image, "vmlinuz"), "-initrd", filepath.Join(v.image, "initrd"),
		"-append", "console=ttyAMA0 quiet loglevel=4 panic=1",
		"-serial", "file:"+filepath.Join(v.dir, "console.log"),
		"-drive", "if=none,id=d0,format=qcow2,file="+v.disk(), "-device", "virtio-blk-device,drive=d0",
		"-netdev", fmt.Sprintf("user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:%d-:2323", v.port), "-device", "virtio-net-device,netdev=n0",
		"-object", "rng-random,id=r0,filename=/dev/urandom", "-device", "virtio-rng-device,rng=r0",
		"-qmp", "unix:"+v.socket()+",server=on,wait=off")
	if v.Clock != "" {
		args = append(args, "-rtc", "base="+v.Clock)
	}
	if snapshot != "" {
		args = append(args, "-loadvm", snapshot)
	}
	v.qemu = exec.Command(v.machine.qemu[0], args...)
	v.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var trouble bytes.Buffer
	v.qemu.Stderr = &trouble
	if err := v.qemu.Start(); err != nil {
		return err
	}
	v.ended = make(chan struct{})
	go func() { _ = v.qemu.Wait(); close(v.ended) }()
	for end := time.Now().Add(30 * time.Minute); time.Now().Before(end); {
		if v.ready() {
			return nil
		}
		select {
		case <-v.ended:
			return fmt.Errorf("the device ended: %s", bytes.TrimSpace(trouble.Bytes()))
		case <-time.After(time.Second):
		}
	}
	console, _ := os.ReadFile(filepath.Join(v.dir, "console.log"))
	return fmt.Errorf("the device's engine does not answer:\n%s", console)
}

func (v *VM) ready() bool {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/ready", v.port))
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (v *VM) socket() string { return filepath.Join(v.dir, "qmp") }

// Cut takes the power away: what the device has not flushed to its disk is lost.
func (v *VM) Cut() {
	if v.qemu != nil {
		_ = v.qemu.Process.Kill()
		<-v.ended
		v.qemu = nil
	}
}

// Save keeps the device as it is, memory and disk, under a name.
func (v *VM) Save(name string) error { return v.monitor("savevm " + name) }

// Load puts the device back to what was saved.
func (v *VM) Load(name string) error { return v.monitor("loadvm " + name) }

// monitor gives QEMU's monitor a command.
func (v *VM) monitor(line string) error {
	c, err := net.Dial("unix", v.socket())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	answers := json.NewDecoder(bufio.NewReader(c))
	type answer struct {
		QMP    json.RawMessage
		Return json.RawMessage
		Error  *struct{ Desc string }
	}
	next := func() (answer, error) {
		for {
			var a answer
			if err := answers.Decode(&a); err != nil || a.QMP != nil || a.Return != nil || a.Error != nil {
				return a, err
			} // else it is an event
		}
	}
	if _, err := next(); err != nil { // its greeting
		return err
	}
	for _, request := range []map[string]any{
		{"execute": "qmp_capabilities"},
		{"execute": "human-monitor-command", "arguments": map[string]string{"command-line": line}},
	} {
		if err := json.NewEncoder(c).Encode(request); err != nil {
			return err
		}
		a, err := next()
		if err != nil {
			return err
		}
		if a.Error != nil {
			return errors.New(line + ": " + a.Error.Desc)
		}
		if text := strings.Trim(string(a.Return), `"{} `); text != "" { // a command of the monitor is silent if all is well
			return errors.New(line + ": " + text)
		}
	}
	return nil
}

// Result is what a command did and cost: see result in agent/run.go.
type Result struct {
	Output       string
	Code         int
	Seconds      float64
	Idle         float64
	Peaks        map[string]int64
	Used, Before int64
	Written      int64
	// Processor is what the command cost of this machine's processors, in
	// seconds: other than Seconds it does not depend on what else they do.
	Processor float64
}

// Run runs a shell script on the device and measures it. An error says that it
// could not be run.
func (v *VM) Run(script string) (Result, error) { return v.run("/run", script) }

// Try is Run that measures nothing and, other than Run, syncs no disk.
func (v *VM) Try(script string) (Result, error) { return v.run("/try", script) }

func (v *VM) run(how, script string) (Result, error) {
	var r Result
	start := v.processor()
	c := &http.Client{Timeout: time.Hour, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Post(fmt.Sprintf("http://127.0.0.1:%d%s", v.port, how), "text/plain", strings.NewReader(script))
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&r)
	r.Processor = v.processor() - start
	return r, err
}

// processor is the time QEMU has had of this machine's processors, in seconds.
func (v *VM) processor() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.qemu.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // Linux counts for user programs in 1/100 s
}

// Put copies a file of this machine to a path on the device, executable.
func (v *VM) Put(file, path string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	to := fmt.Sprintf("http://127.0.0.1:%d/file?path=%s", v.port, url.QueryEscape(path))
	req, err := http.NewRequest(http.MethodPut, to, f)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("put %s: %s", path, bytes.TrimSpace(text))
	}
	return nil
}
