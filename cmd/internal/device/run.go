package device

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopWithin is how long after TERM a call may still take. The journal is right
// at every instant, so what is not done then is settled by the next call.
const stopWithin = 4 * time.Second

// Mode says how a program ends.
type Mode int

// The modes.
const (
	// Module: one call of the update module. It ends some seconds after TERM,
	// and when the client that called it has died: a client that is started
	// again makes the next call and must not find this one at work.
	Module Mode = iota
	// Person: a command by hand. It takes the time it needs to end what it does
	// in an orderly way; a second signal ends it at once.
	Person
)

// Run runs the program's work, with TERM and INT ending its context, and
// returns its error.
func Run(mode Mode, work func(ctx context.Context) error) error {
	// A client that died must not kill us in the middle of a line.
	signal.Ignore(syscall.SIGPIPE)
	syscall.Umask(0o022)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	var orphaned <-chan time.Time
	if mode == Module {
		t := time.NewTicker(orphanPoll)
		defer t.Stop()
		orphaned = t.C
	}
	parent := os.Getppid()
	var cause *stopped
	for cause == nil {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			cause = &stopped{"by a signal (" + s.String() + ")"}
		case <-orphaned:
			if os.Getppid() != parent {
				cause = &stopped{"because the client that called has ended"}
			}
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
		if err != nil && !errors.Is(err, context.Canceled) {
			err = errors.Join(cause, err)
		}
		return err
	case <-late:
	case <-again:
	}
	return cause
}

// orphanPoll is how often the parent is looked for. The kernel's own signal for
// it (PR_SET_PDEATHSIG) comes when the thread that forked ends, not the client.
const orphanPoll = 250 * time.Millisecond

type stopped struct{ how string }

func (s *stopped) Error() string        { return "stopped " + s.how }
func (s *stopped) Is(target error) bool { return target == context.Canceled }

// Fail prints an error as one line.
func Fail(w io.Writer, err error) {
	_, _ = io.WriteString(w, "error: "+OneLine(err.Error())+"\n")
}
