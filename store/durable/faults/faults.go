// Package faults stops a program at a point (durable.Point), or makes the step fail there,
// as the environment says. Programs that are built with the tag faults import it, as tests
// do. Released programs do not.
package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/mender-app/mender-app/store/durable"
)

// Environment of the fault points.
const (
	// Env names one fault: [COMMAND/]NAME:N:ACTION. ACTION happens when the
	// point NAME, or any point if NAME is "*", is passed for the N-th time (from
	// 1): "kill" (SIGKILL to this process), "kill-both" (SIGKILL to the parent,
	// then to this process), "term" (SIGTERM to this process, which continues),
	// "stop" (SIGSTOP to this process, until it gets SIGCONT), "enospc" or "eio"
	// (the step fails with this error), "hang" (the step never ends). COMMAND
	// limits the fault to a program, by its name or by its name and first
	// argument as in "app ArtifactInstall".
	Env = "MENDER_APP_FAULT"
	// TraceEnv names a file to which the name of each point passed is appended.
	TraceEnv = "MENDER_APP_FAULT_TRACE"
)

func init() {
	if f := environment(); f != nil {
		durable.Inject(f.point)
	}
}

type fault struct {
	name, action string
	trace        string

	mu   sync.Mutex
	left int64
}

// environment returns the fault that the environment describes, or nil.
func environment() *fault {
	spec, trace := os.Getenv(Env), os.Getenv(TraceEnv)
	if spec == "" && trace == "" {
		return nil
	}
	f := &fault{trace: trace}
	if spec != "" {
		rest, action, ok := cutLast(spec, ":")
		name, count, ok2 := cutLast(rest, ":")
		n, err := strconv.ParseInt(count, 10, 32)
		if !ok || !ok2 || err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "error: %s=%q is not NAME:N:ACTION\n", Env, spec)
			os.Exit(2)
		}
		if command, rest, ok := strings.Cut(name, "/"); ok {
			name = rest
			if !isCommand(command) {
				n = 0
			}
		}
		f.name, f.action, f.left = name, action, n
	}
	return f
}

// isCommand reports whether this process is the command that a fault is for.
func isCommand(command string) bool {
	name := filepath.Base(os.Args[0])
	return command == name || len(os.Args) > 1 && command == name+" "+os.Args[1]
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (f *fault) point(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trace != "" {
		if w, err := os.OpenFile(f.trace, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err == nil {
			_, _ = w.WriteString(name + "\n")
			_ = w.Close()
		}
	}
	if f.left == 0 || (f.name != "*" && f.name != name) {
		return nil
	}
	if f.left--; f.left > 0 {
		return nil
	}
	switch f.action {
	case "kill-both":
		if err := syscall.Kill(os.Getppid(), syscall.SIGKILL); err != nil {
			return err
		}
		fallthrough
	case "kill":
		if err := signalSelf(syscall.SIGKILL); err != nil {
			return err
		}
		select {} // wait for the signal
	case "term":
		return signalSelf(syscall.SIGTERM)
	case "stop":
		return signalSelf(syscall.SIGSTOP)
	case "enospc":
		return syscall.ENOSPC
	case "eio":
		return syscall.EIO
	case "hang":
		select {}
	default:
		return fmt.Errorf("%s: unknown action %q", Env, f.action)
	}
}

// signalSelf sends this process a signal, in the way that a process in a sandbox
// still may: submodules/sandbox allows tgkill and no kill.
func signalSelf(signal syscall.Signal) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return syscall.Tgkill(os.Getpid(), syscall.Gettid(), signal)
}
