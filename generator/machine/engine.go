package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Engine says how to start a machine's Docker engine. The zero value is this machine's dockerd.
type Engine struct {
	// DataRoot is the path of its data root inside the machine; "" is Dir/docker.
	DataRoot string
	// Through is a command that runs the engine, such as one that enters its file tree.
	Through []string
	// Settings are more settings of daemon.json: `, "KEY": VALUE`.
	Settings string
	// Instead is a program in place of dockerd, by the data root; nil is dockerd.
	Instead func(dataRoot string) []string
}

// Host is the address at which this machine reaches the machine's engine. The engine's data
// root, Dir/docker, has the same path inside and outside.
func (m *Machine) Host() string { return "unix://" + filepath.Join(m.Dir, "docker.sock") }

// HasEngine reports whether the engine was started, and not stopped.
func (m *Machine) HasEngine() bool { return m.engine != nil }

// StartEngine starts the machine's Docker engine and waits until it answers.
func (m *Machine) StartEngine(e Engine) error {
	root := e.DataRoot
	if root == "" {
		root = filepath.Join(m.Dir, "docker")
	}
	config := filepath.Join(m.Dir, "daemon.json")
	// cgroupfs: there is no systemd in the machine to ask for groups.
	settings := `{"exec-opts": ["native.cgroupdriver=cgroupfs"], "cgroup-parent": "/` + m.Cgroup + `"` + e.Settings + "}"
	if err := os.WriteFile(config, []byte(settings), 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.Dir, "dockerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()

	var last string
	for _, network := range [][]string{nil, {"--bridge", "none", "--iptables=false"}} {
		args := append(slices.Clone(e.Through), "dockerd", "--config-file", config, "--shutdown-timeout", "5",
			"--data-root", root, "-H", "unix:///var/run/docker.sock", "-H", m.Host())
		args = append(args, network...)
		if e.Instead != nil {
			args = append(slices.Clone(e.Through), e.Instead(root)...)
		}
		m.engine = m.Command(context.Background(), args[0], args[1:]...)
		m.engine.Stdout, m.engine.Stderr = log, log
		if err := m.engine.Start(); err != nil {
			return fmt.Errorf("start the engine: %w", err)
		}
		ended := make(chan struct{})
		go func(engine *exec.Cmd) { _ = engine.Wait(); close(ended) }(m.engine)
		for range 300 {
			r, err := m.Run("docker", "version", "--format", "{{.Server.Version}}")
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
		m.KillEngine()
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("start the engine: %s\n%s", last, LastLines(string(text), 10))
}

// StopEngine stops the engine and its containers as a shutdown does. Without an
// engine it does nothing.
func (m *Machine) StopEngine() error {
	if m.engine == nil {
		return nil
	}
	m.engine = nil
	// nsenter waits for dockerd and does not pass signals on: send the signal
	// inside.
	r, err := m.Run("bash", "-c", `
		pid=$(cat /run/docker.pid 2>/dev/null || cat /var/run/docker.pid 2>/dev/null) || exit 0
		kill "$pid"
		for _ in $(seq 300); do [ -e "/proc/$pid" ] || exit 0; sleep 0.05; done
		kill -9 "$pid"`)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	return err
}

// KillEngine kills the engine, which cannot stop cleanly: its containers are left for the next
// engine to find.
func (m *Machine) KillEngine() {
	_, _ = m.Run("bash", "-c", `kill -9 $(cat /run/docker.pid) 2>/dev/null; rm -f /run/docker.pid`)
	m.engine = nil
}

// LastLines are the last n lines of a text.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
