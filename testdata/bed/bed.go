// Package bed is the testbed: a private machine inside this one (Device), with
// its own file tree, network, processes, Docker engine and Mender client, and
// container images made from local material (Image). End-to-end tests and the
// demo stand on it. Of the product's packages it must know generator/machine alone: it sees
// the product as a device does, as programs and files.
package bed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/mender-app/mender-app/generator/machine"
)

// Result is what a command did.
type Result = machine.Result

// run runs cmd until it ends. It returns an error only if the command cannot be
// started.
func run(cmd *exec.Cmd) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if also, ok := os.LookupEnv("MENDER_APP_BED_TRACE"); ok && also != "" {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, os.Stderr), io.MultiWriter(&stderr, os.Stderr)
		fmt.Fprintln(os.Stderr, "+", strings.Join(cmd.Args, " "))
	}
	err := cmd.Run()
	r := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	if _, exited := err.(*exec.ExitError); exited {
		err = nil
	}
	return r, err
}

// Repository returns the root of the project's tree.
func Repository() string {
	_, file, _, ok := runtime.Caller(0)
	if ok && filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	// Built with -trimpath: ask the Go tool.
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		panic("bed: run me inside the project's tree: " + err.Error())
	}
	return strings.TrimSpace(string(out))
}

// Programs builds the product's programs for this machine, once per process, and
// returns their directory. They have fault points, by which a test kills them
// (MENDER_APP_FAULT).
func Programs() (string, error) { return programs() }

var programs = sync.OnceValues(func() (string, error) { return build("build", faults, "TAGS=faults") })

// Released builds the programs as they are released, without fault points.
func Released() (string, error) { return released() }

var released = sync.OnceValues(func() (string, error) { return build("build", "build") })

// Packages makes the packages of Debian for this machine and returns their directory.
func Packages() (string, error) { return packages() }

var packages = sync.OnceValues(func() (string, error) {
	dir, err := build("packages", "build", "ARCHES="+runtime.GOARCH, "FORMATS=deb")
	return filepath.Join(dir, "packages"), err
})

// faults is where the programs with fault points are.
const faults = "build/faults"

// build builds programs with make into a directory of the project's tree.
func build(target, dir string, settings ...string) (string, error) {
	r, err := runMake(append(settings, target, "BUILD="+dir)...)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return "", fmt.Errorf("build the programs: %w", err)
	}
	return filepath.Join(Repository(), dir), nil
}

// runMake runs make in the project's tree, one process at a time: the tests of several packages
// build the same files.
func runMake(args ...string) (Result, error) {
	lock, err := os.Open(filepath.Join(Repository(), "Makefile"))
	if err != nil {
		return Result{}, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return Result{}, err
	}
	return run(exec.Command("make", append([]string{"-s", "-C", Repository()}, args...)...))
}

// ProgramsFor is Programs for a machine of `make cross`, such as arm-v7.
func ProgramsFor(machine string) (string, error) {
	dir, err := build("cross-"+machine, faults, "TAGS=faults")
	return filepath.Join(dir, "linux-"+machine), err
}

// Require skips the test if a Device cannot run here or one of the commands is
// missing, and names what is. In CI, where nothing may skip, it fails.
func Require(t testing.TB, commands ...string) {
	t.Helper()
	missing := machine.Missing()
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil && missing == "" {
			missing = c
		}
	}
	need(t, missing)
}

// RequireArm skips the test, or fails it in CI, where arm/v7 programs do not run.
func RequireArm(t testing.TB) {
	t.Helper()
	missing := ""
	if _, err := os.Stat("/proc/sys/fs/binfmt_misc/qemu-arm"); err != nil && runtime.GOARCH != "arm" {
		missing = "arm/v7 programs to run (qemu-user-static, binfmt-support)"
	}
	need(t, missing)
}

// need skips the test because something is missing, and fails it in CI.
func need(t testing.TB, missing string) {
	t.Helper()
	switch {
	case missing == "":
	case os.Getenv("CI") == "true":
		t.Fatalf("missing in CI: %s", missing)
	default:
		t.Skipf("needs %s (make setup, make engines)", missing)
	}
}
