package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/config"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// probeCommand enters the sandbox and tries what the sandbox forbids. doctor runs
// it as a process of its own.
const probeCommand = "probe-sandbox"

// probe is the report of that process.
type probe struct {
	State  sandbox.State `json:"state"`
	Kernel sandbox.State `json:"kernel"`
	// Leaks are forbidden things that worked.
	Leaks []string `json:"leaks"`
}

func (p *program) probeCommand() *cobra.Command {
	return &cobra.Command{
		Use: probeCommand, Hidden: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			r := probe{Kernel: sandbox.Kernel(), Leaks: []string{}}
			var err error
			if r.State, err = sandbox.Enter(sandbox.Rights{}); err != nil {
				return err
			}
			r.Leaks = append(r.Leaks, leaks(r.State)...)
			return p.printJSON(r)
		},
	}
}

// leaks tries what the state says is forbidden, and returns what still works.
func leaks(s sandbox.State) (list []string) {
	self := "/proc/self/exe"
	if s.Landlock > 0 {
		if f, err := os.Open("/etc/passwd"); err == nil {
			_ = f.Close()
			list = append(list, "a file can be read")
		}
		if f, err := os.CreateTemp("", "mender-app-doctor-"); err == nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			list = append(list, "a file can be made")
		}
	}
	if s.Seccomp {
		if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
			_ = unix.Close(fd)
			list = append(list, "a network socket can be made")
		}
		if exec.Command(self, "version").Run() == nil {
			list = append(list, "a program can be run")
		}
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); s.NoNewPrivs && (err != nil || v != 1) {
		list = append(list, "programs can gain rights")
	}
	return list
}

// sandbox reports which parts of the sandbox work on this device, and which
// sub-modules are configured to run without it.
func (c *checkup) sandbox() {
	const check = "sandbox"
	r, err := runProbe(c.ctx)
	if err != nil {
		c.bad(statusWarn, check, "see docs/SECURITY.md; SANDBOX=no in the sub-modules' configuration switches the sandbox off", "%v", err)
	} else {
		c.kernelHas("landlock", r.State.Landlock > 0, fmt.Sprintf("in force (the kernel's ABI is %d)", r.Kernel.Landlock),
			"use a kernel from 5.13 on with CONFIG_SECURITY_LANDLOCK=y, and landlock in CONFIG_LSM or lsm=")
		c.kernelHas("seccomp", r.State.Seccomp, "in force", "use a kernel with CONFIG_SECCOMP_FILTER=y")
		c.kernelHas("no_new_privs", r.State.NoNewPrivs, "in force", "use a kernel from 3.5 on")
		if len(r.Leaks) > 0 {
			c.bad(statusFail, check, "report this as docs/SECURITY.md says", "%s", strings.Join(r.Leaks, ", "))
		}
	}
	dir := filepath.Dir(c.config.File)
	if d := os.Getenv(submodules.EnvConfigDir); d != "" {
		dir = d
	}
	off, _ := filepath.Glob(filepath.Join(dir, "mender-app-*.conf"))
	for _, file := range off {
		f, err := config.Read(file, "allow_outside", "allow_others", "level", "refuse")
		if err != nil {
			continue // the check of the sub-module reports this
		}
		if on, err := f.Bool(true, "SANDBOX"); err == nil && !on {
			c.bad(statusWarn, check, "remove SANDBOX=no if the lines above are ok", "switched off in %s", file)
		}
	}
}

func (c *checkup) kernelHas(part string, has bool, found, do string) {
	if has {
		c.ok("sandbox: "+part, "%s", found)
		return
	}
	c.bad(statusWarn, "sandbox: "+part, do, "the kernel does not have it: unverified content is read without it")
}

// runProbe runs this program as the probe.
func runProbe(ctx context.Context) (r probe, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, probeCommand)
	cmd.Args[0] = os.Args[0]
	cmd.WaitDelay = time.Second
	var stderr submodules.Capped
	stderr.Max = 4 << 10
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("the sandbox cannot be entered: %w: %s", err, device.OneLine(string(stderr.Bytes())))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("the sandbox's probe: %w", err)
	}
	return r, nil
}
