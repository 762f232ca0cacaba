package device

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// stopWithin is how long after TERM a call may still take. The journal is right
// at every instant, so what is not done then is settled by the next call.
const stopWithin = 4500 * time.Millisecond

// Run runs the program's work, with TERM and INT ending its context, and
// returns its error, at the latest some seconds after the signal.
func Run(work func(ctx context.Context) error) error {
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
	select {
	case err := <-done:
		return err
	case s := <-signals:
		cause := &stopped{s}
		cancel(cause)
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) {
				err = errors.Join(cause, err)
			}
			return err
		case <-time.After(stopWithin):
			return cause
		}
	}
}

type stopped struct{ signal os.Signal }

func (s *stopped) Error() string        { return "stopped by a signal (" + s.signal.String() + ")" }
func (s *stopped) Is(target error) bool { return target == context.Canceled }

// Fail prints an error as one line.
func Fail(w io.Writer, err error) {
	_, _ = io.WriteString(w, "error: "+OneLine(err.Error())+"\n")
}

// Version is the version of the program, from what the Go tool stamped in.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	if version != "" && version != "(devel)" {
		return version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
