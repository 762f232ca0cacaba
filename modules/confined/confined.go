// Package confined runs the part of this program that reads unverified content in a
// process of its own. The process gives up its rights before it reads the first byte.
// docs/SECURITY.md says what this protects.
package confined

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// Part is a part of this program that runs as a process of its own.
type Part struct {
	Args  []string // the first makes the program's main function call the part
	Stdin io.Reader
	Files []*os.File // open in the process, from descriptor 3
}

// ExitError reports that the process failed.
type ExitError struct {
	Code int    // -1 for a signal
	Said string // its last line on standard error, or the system's error
}

func (e *ExitError) Error() string { return e.Said }

// maxErrorText bounds the bytes kept from the process's standard error.
const maxErrorText = 4 << 10

// Run runs a part and returns an ExitError if it fails. The end of the context or of
// this process kills it.
func Run(ctx context.Context, p Part) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{os.Args[0]}, p.Args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stdin, cmd.ExtraFiles = p.Stdin, p.Files
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread that started the process ends
	defer runtime.UnlockOSThread()
	cmd.WaitDelay = 5 * time.Second
	text := &submodules.Capped{Max: maxErrorText}
	cmd.Stderr = text
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := strings.TrimSpace(string(text.Bytes()))
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	if said == "" {
		said = err.Error()
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	return &ExitError{Code: exit.ExitCode(), Said: said}
}

// Enter gives up the rights of this process and limits its resources. An older kernel
// enforces only the part it supports; its errors are reported on stderr.
func Enter(l sandbox.Limits, r sandbox.Rights, stderr io.Writer) {
	if err := l.Set(); err != nil {
		fmt.Fprintln(stderr, "warning: no limits for applying a delta:", err)
	}
	if _, err := sandbox.Enter(r); err != nil {
		fmt.Fprintln(stderr, "warning: a delta is applied without a sandbox:", err)
	}
	signal.Ignore(unix.SIGXFSZ)
}

// Say writes the error as the last line, for the ExitError.
func Say(stderr io.Writer, err error) {
	fmt.Fprintln(stderr, strings.ReplaceAll(err.Error(), "\n", " "))
}
