// Package machine makes a private machine inside this one: a Linux machine with a file tree,
// processes, a network and a Docker engine of its own. `app-gen try` runs on it, and so do the
// project's end-to-end tests and its demo. It must not know what is installed on it.
package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed machine.sh
var script string

// Machine is a machine of its own: namespaces for mounts, network, processes, IPC and host
// name over a copy-on-write view of this machine's file tree. What is installed, loaded or
// broken in it stays in it. It has no network to the outside, and nothing of this machine's
// configuration of Docker, Mender and mender-app.
type Machine struct {
	// Dir holds all that the machine keeps, on this machine's disk and at the same path
	// inside: data/ is its /data, docker/ its /var/lib/docker, share/ is for passing files.
	Dir string
	// Cgroup is the name of the control group that holds its containers.
	Cgroup string
	// Inside is a process in the machine whose mount and PID namespaces later commands
	// enter; 0 is none.
	Inside int

	init   *exec.Cmd
	stop   func() error
	engine *exec.Cmd

	once sync.Once
	err  error
}

// Options describe a machine.
type Options struct {
	Dir  string   // where it keeps its files; it is made
	Type string   // its device type for Mender, and its host name
	Tree string   // the file tree that it has; "" is this machine's
	Show []string // directories that it has at the same path; those that do not exist are left out
}

// Result is the result of a command.
type Result struct {
	Stdout string
	Stderr string
	Code   int // exit code; -1 if a signal ended it
}

// Output is stdout and stderr together, for messages.
func (r Result) Output() string { return strings.TrimSpace(r.Stdout + r.Stderr) }

// run runs cmd until it ends. It returns an error only if the command cannot be started.
func run(cmd *exec.Cmd) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	if _, exited := err.(*exec.ExitError); exited {
		err = nil
	}
	return r, err
}

// Missing names what this machine lacks to hold a Machine with an engine, or returns "".
func Missing() string {
	if os.Getuid() != 0 {
		return "root"
	}
	for _, need := range []string{"dockerd", "docker", "nsenter", "ip", "bash"} {
		if _, err := exec.LookPath(need); err != nil {
			return need
		}
	}
	// A plugin in somebody's home is not in the machine.
	compose := exec.Command("docker", "compose", "version")
	compose.Env = []string{"PATH=" + os.Getenv("PATH"), "DOCKER_CONFIG=/nonexistent"}
	if err := compose.Run(); err != nil {
		return "Docker Compose v2"
	}
	return ""
}

// Start starts a machine, without an engine yet. It lives until Close or Kill, and no longer
// than the thread that started it.
func Start(o Options) (*Machine, error) {
	// Machines run in parallel, and their directories may have the same name.
	m := &Machine{Dir: o.Dir, Cgroup: fmt.Sprintf("mender-app-%x", sha256.Sum256([]byte(o.Dir)))[:24]}
	for _, sub := range []string{"data/mender", "docker", "share", "root"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "data/mender/device_type"), []byte("device_type="+o.Type+"\n"), 0o644); err != nil {
		return nil, err
	}

	// bash is process 1 of the machine: it reaps orphaned processes, and all
	// processes of the machine die with it.
	m.init = exec.Command("bash", append([]string{"-c", script, "machine", o.Dir, o.Type, o.Tree}, o.Show...)...)
	m.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	var trouble strings.Builder
	m.init.Stderr = &trouble
	in, err := m.init.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.stop = in.Close // the script waits for its input to end
	out, err := m.init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.init.Start(); err != nil {
		return nil, fmt.Errorf("start a machine: %w", err)
	}
	ready := make([]byte, len("ready\n"))
	if n, _ := out.Read(ready); string(ready[:n]) != "ready\n" {
		_ = m.init.Process.Kill()
		_ = m.init.Wait()
		return nil, fmt.Errorf("start a machine: %s", strings.TrimSpace(trouble.String()))
	}
	return m, nil
}

// Close ends every process of the machine and removes its mounts and control groups.
// The files in Dir stay.
func (m *Machine) Close() error {
	m.once.Do(func() {
		m.err = errors.Join(m.StopEngine(), m.stop())
		done := make(chan struct{})
		go func() {
			_ = m.init.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = m.init.Process.Kill()
			m.thaw()
			<-done
		}
		m.removeCgroups()
	})
	return m.err
}

// Kill ends every process of the machine at once, as a power loss does: no process
// can react. Otherwise it does the same as Close.
func (m *Machine) Kill() error {
	m.once.Do(func() {
		m.engine = nil
		m.err = m.init.Process.Kill() // process 1: the others die before it is gone
		m.thaw()
		_ = m.init.Wait()
		m.removeCgroups()
	})
	return m.err
}

// thaw lets paused containers go on, which cannot die before that.
func (m *Machine) thaw() {
	for pattern, on := range map[string]string{
		"/sys/fs/cgroup/freezer/" + m.Cgroup + "/*/freezer.state": "THAWED",
		"/sys/fs/cgroup/" + m.Cgroup + "/*/cgroup.freeze":         "0",
	} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			_ = os.WriteFile(file, []byte(on), 0) // its container may be gone meanwhile
		}
	}
}

// removeCgroups removes the groups of the machine's containers, which are in the
// hierarchy of the whole machine. An engine that stopped cleanly left only the
// parents; those of a killed engine are empty by now.
func (m *Machine) removeCgroups() {
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/" + m.Cgroup)
	for _, top := range append(tops, "/sys/fs/cgroup/"+m.Cgroup) {
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

// Command returns a command to run inside the machine, with a plain environment and
// HOME set to /root. The command ends with ctx.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(m.init.Process.Pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--wdns=/", "--"}
	if m.Inside != 0 {
		enter = append(enter, "nsenter", "--target", strconv.Itoa(m.Inside), "--mount", "--pid", "--wdns=/", "--")
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

// Run runs a command inside the machine, for at most ten minutes. An error says that
// the command could not be run. The Result says how it ended.
func (m *Machine) Run(name string, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return m.RunContext(ctx, name, args...)
}

// RunContext is Run for a command that ends with ctx.
func (m *Machine) RunContext(ctx context.Context, name string, args ...string) (Result, error) {
	return run(m.Command(ctx, name, args...))
}

// Path returns the path on this machine of a path in the machine.
func (m *Machine) Path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", m.init.Process.Pid, path)
}
