package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopWithin is how long a call may take to exit after TERM. The journal is correct
// at every instant; the next call settles unfinished work.
const stopWithin = 4 * time.Second

// Mode says how a program ends.
type Mode int

// The modes.
const (
	// Module: one call of the update module. It exits some seconds after TERM, after
	// callLimit, and when the client that called it has died: a restarted client makes
	// the next call, and this one must not hold the lock then. If the client has died
	// already, the work does not begin.
	Module Mode = iota
	// Person: a command that a person runs. After a signal it takes the time it
	// needs to exit cleanly; a second signal ends it at once. INT is an
	// ErrInterrupted.
	Person
)

// Run runs the program's work, with TERM and INT ending its context, and
// returns its error.
func Run(mode Mode, work func(ctx context.Context) error) error {
	// Writing a line to a client that has died must not kill this program.
	signal.Ignore(syscall.SIGPIPE)
	syscall.Umask(0o022)
	parent := os.Getppid()
	orphan := &stopped{how: "stopped because the client that called it has exited"}
	if mode == Module && adopted(parent) {
		return orphan
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	var orphaned, expired <-chan time.Time
	if mode == Module {
		t := time.NewTicker(orphanPoll)
		defer t.Stop()
		orphaned, expired = t.C, time.After(callLimit)
	}
	var cause *stopped
	for cause == nil {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			cause = &stopped{how: "stopped by a signal (" + s.String() + ")"}
			if mode == Person && s == syscall.SIGINT {
				cause = &stopped{how: "interrupted", key: true}
			}
		case <-orphaned:
			if os.Getppid() != parent {
				cause = orphan
			}
		case <-expired:
			cause = &stopped{how: fmt.Sprintf("stopped after %v", callLimit)}
		}
	}
	cancel(cause)
	var late <-chan time.Time
	again := signals
	if mode == Module {
		late, again = time.After(stopWithin), nil
	}
	select {
	case err := <-done:
		var said *stopped
		switch {
		case err == nil || errors.As(err, &said):
		case !errors.Is(err, context.Canceled):
			err = errors.Join(cause, err)
		case mode == Person:
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	case <-late:
	case <-again:
		return fmt.Errorf("%w twice; mender-app resume ends an open update", cause)
	}
	return cause
}

// adopted reports whether a process is not the one that started this process: that one
// has died, and the system gave this process another parent. A child is in the session of
// its parent until it makes one of its own. Parents that cannot be seen from here, and
// leaders of sessions, are taken for what they say.
func adopted(parent int) bool {
	session, err := unix.Getsid(0)
	if err != nil || session == os.Getpid() || parent == 0 {
		return false
	}
	of, err := unix.Getsid(parent)
	return err == nil && of != session
}

// callLimit is how long a call of the update module may take: 15 minutes less than the
// clients' default of ModuleTimeoutSeconds, so that the call ends before the client
// kills it.
const callLimit = 225 * time.Minute

// orphanPoll is how often the parent process is checked. The kernel's signal for
// this (PR_SET_PDEATHSIG) is sent when the parent's thread ends, not its process.
const orphanPoll = 250 * time.Millisecond

// ErrInterrupted: a person pressed Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// stopped says why the work's context has ended.
type stopped struct {
	how string
	key bool // by Ctrl-C
}

func (s *stopped) Error() string { return s.how }
func (s *stopped) Is(target error) bool {
	return target == context.Canceled || s.key && target == ErrInterrupted
}

// Fail prints an error as one line.
func Fail(w io.Writer, err error) {
	_, _ = io.WriteString(w, "error: "+OneLine(err.Error())+"\n")
}
