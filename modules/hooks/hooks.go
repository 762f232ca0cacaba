// Package hooks runs the programs that an application or a device's integrator
// provides for events of a release's life: before it is rolled out, after it was
// stopped, and so on. docs/POLICY.md describes their contract.
//
// A hook is hostile until it has ended: its time, its output and what it hands on are
// bounded, and what it leaves in its process group is killed. It must not know how
// releases are stored; the caller says where the files are.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/submodules"
)

// Delays between the attempts of a hook, and of asking status.
const (
	firstPause  = 5 * time.Second
	longest     = 30 * time.Second
	statusPause = time.Second
)

// CodeNotReady is the exit code with which the hook status says that the release is
// not ready yet.
const CodeNotReady = 75

// Runner runs hooks.
type Runner struct {
	// Dir has the hooks of the device: executables in a directory that has the
	// name of the hook, run in the order of their names. "" or a missing directory:
	// there are none.
	Dir string
	// Forbidden: releases may not have hooks.
	Forbidden bool
	Log       *slog.Logger // must not be nil
	// KillAfter is the time between TERM and KILL; 0 is 10 seconds.
	KillAfter time.Duration
	// Sleep waits between two attempts; nil really waits.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Call is one event of one application.
type Call struct {
	// Own is the hook of a release in the directory Manifests. Without a name the
	// release has none, and only those of the device are run.
	Own       policy.Hook
	Manifests string

	Name        string // of the hook
	Application string
	Operation   string // as in "install"
	Direction   string // as in "upgrade"
	Automatic   bool
	Event       string
	Old, New    Release
	// Handover is a file for what hooks hand on to later ones.
	Handover string
	// Values is a file of the values that are set on the device.
	Values string
	// Result is the file for the answer of the hook enabled.
	Result string
	// Data is a directory with a link to each volume, for the hook migrate.
	Data string
}

// Release is one side of a change; the zero value is none.
type Release struct {
	Version, Dir string
}

// AllowsHooks reports whether releases may have hooks.
func (r *Runner) AllowsHooks() bool { return !r.Forbidden }

// Global lists the device's hooks of a name, in their order.
func (r *Runner) Global(name string) ([]string, error) {
	if r.Dir == "" {
		return nil, nil
	}
	dir := filepath.Join(r.Dir, name)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if e.Name()[0] != '.' && !e.IsDir() {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list, nil
}

// Check makes sure that a release has the files of its hooks.
func (r *Runner) Check(manifests string, list []policy.Hook) error {
	for _, h := range list {
		if _, err := executable(manifests, h.Name); err != nil {
			return err
		}
	}
	return nil
}

// Run runs the device's hooks of the call's name and then the release's. It stops at
// the first that fails. A warning is logged for one that may fail.
func (r *Runner) Run(ctx context.Context, c Call) error {
	global, err := r.Global(c.Name)
	if err != nil {
		return fmt.Errorf("of the device: %w", err)
	}
	for _, path := range global {
		if err := trusted(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := r.repeat(ctx, c, path, policy.Hook{Name: c.Name}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if c.Own.Name == "" {
		return nil
	}
	path, err := executable(c.Manifests, c.Own.Name)
	if err == nil {
		err = r.repeat(ctx, c, path, c.Own)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s of %s: %w", c.Name, c.Application, err)
	if c.Own.AllowFailure && ctx.Err() == nil {
		r.Log.Warn("a hook failed, and may", "app", c.Application, "error", err)
		return nil
	}
	return err
}

// repeat runs a hook until an attempt succeeds, or as often as it may be repeated.
// Status is asked until it says something else than not yet, or its time is over.
func (r *Runner) repeat(ctx context.Context, c Call, path string, h policy.Hook) error {
	if h.Name == policy.HookStatus {
		return r.untilReady(ctx, c, path, h)
	}
	pause := firstPause
	for attempt := 0; ; attempt++ {
		attemptCtx, cancel := context.WithTimeout(ctx, h.Limit())
		err := r.once(attemptCtx, c, path)
		cancel()
		if err == nil || ctx.Err() != nil || attempt == h.Retries {
			return err
		}
		r.Log.Warn("a hook failed; it is repeated", "app", c.Application, "hook", h.Name, "in", pause, "error", err)
		if err := r.sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longest)
	}
}

// untilReady asks until the hook says something else than not yet. If the time ends
// during an attempt, the answer before it counts.
func (r *Runner) untilReady(ctx context.Context, c Call, path string, h policy.Hook) error {
	limited, cancel := context.WithTimeout(ctx, h.Limit())
	defer cancel()
	var notReady *FailedError // the last such answer
	for pause := statusPause; ; pause = min(2*pause, longest) {
		err := r.once(limited, c, path)
		var failed *FailedError
		if errors.As(err, &failed) && failed.Code == CodeNotReady {
			notReady = failed
			if err = r.sleep(limited, pause); err == nil {
				continue
			}
		}
		if err == nil || notReady == nil || limited.Err() == nil || ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("not ready after %s: %s", h.Limit(), notReady.Said)
	}
}

func (r *Runner) sleep(ctx context.Context, d time.Duration) error {
	if r.Sleep != nil {
		return r.Sleep(ctx, d)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// FailedError is a hook that ended with another code than 0.
type FailedError struct {
	Code   int
	Signal string // that ended it; "" for none
	Said   string // the last line that it wrote
}

func (e *FailedError) Error() string {
	how := fmt.Sprintf("it exited with %d", e.Code)
	if e.Signal != "" {
		how = "it was ended by the signal " + e.Signal
	}
	if e.Said != "" {
		how += ": " + e.Said
	}
	return how
}

// once makes one attempt.
func (r *Runner) once(ctx context.Context, c Call, path string) error {
	cmd := exec.Command(path)
	cmd.Dir = "/"
	if c.Manifests != "" {
		cmd.Dir = c.Manifests
	}
	cmd.Env = c.environ(ctx)
	out := &lines{log: func(line string) { r.Log.Info(line, "app", c.Application, "hook", c.Name) }}
	cmd.Stdout, cmd.Stderr = out, out
	err := submodules.RunGroup(ctx, cmd, r.KillAfter)
	out.end()
	if errors.Is(err, exec.ErrWaitDelay) {
		r.Log.Warn("a hook left a process outside of its process group, which holds its output", "app", c.Application, "hook", c.Name)
		return nil
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return startError(path, err)
	}
	failed := &FailedError{Code: exit.ExitCode(), Said: out.last}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		failed.Signal = ws.Signal().String()
	}
	return failed
}

func startError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it is %s and this machine runs %s", submodules.MadeFor(path), runtime.GOARCH)
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("its interpreter is missing")
	}
	return err
}
