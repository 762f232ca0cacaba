package filedelta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// Verb is the first argument of the process that applies a delta. It is not for
// people: what follows it may change.
const Verb = "apply-delta"

// Exit codes of the process.
const (
	exitDone   = 0
	exitFailed = 1 // of the files: no space, for one
	exitDelta  = 5 // an ErrDelta
)

// maxMemory bounds the private writable memory of the process, in bytes. Most of
// what Go reserves of it is not used.
const maxMemory = 256 << 20

// maxErrorText bounds what is taken of the process's standard error, in bytes.
const maxErrorText = 4 << 10

// Run applies a delta as Apply does, in a process of its own: this program again,
// which calls Main for Verb. The end of the context kills it.
func Run(ctx context.Context, q Request) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{os.Args[0], Verb, q.Digest.String(), strconv.FormatInt(q.Size, 10), strconv.FormatInt(q.Max, 10), processorTime(ctx)}
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{q.Old, q.Delta, q.New}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread ends that started the process
	defer runtime.UnlockOSThread()
	cmd.WaitDelay = 5 * time.Second
	text := &limited{}
	cmd.Stderr = text
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := strings.TrimSpace(text.String())
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitDelta {
		return fmt.Errorf("%w: %s", ErrDelta, strings.TrimPrefix(said, ErrDelta.Error()+": "))
	}
	return fmt.Errorf("apply a delta: %w: %s", err, said)
}

// processorTime is the seconds of processor time until the context ends.
func processorTime(ctx context.Context) string {
	return strconv.FormatUint(sandbox.ProcessorTime(ctx), 10)
}

// Main is the process that Run starts; args are those after Verb. It gives up all
// rights but its open files before it reads the first byte of the delta. It
// returns the exit code.
func Main(args []string, stderr io.Writer) int {
	err := run(args, stderr)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, strings.ReplaceAll(err.Error(), "\n", " "))
	if errors.Is(err, ErrDelta) {
		return exitDelta
	}
	return exitFailed
}

func run(args []string, stderr io.Writer) error {
	if len(args) != 4 {
		return errors.New("the update module calls this itself")
	}
	q := Request{Old: os.NewFile(3, "the old file"), Delta: os.NewFile(4, "the delta"), New: os.NewFile(5, "the new file"), Digest: digest.Digest(args[0])}
	var err error
	if q.Size, err = strconv.ParseInt(args[1], 10, 64); err != nil {
		return err
	}
	if q.Max, err = strconv.ParseInt(args[2], 10, 64); err != nil {
		return err
	}
	seconds, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	for _, f := range []*os.File{q.Old, q.Delta, q.New} {
		if _, err := f.Stat(); err != nil {
			return err
		}
	}
	if err := (sandbox.Limits{Memory: maxMemory, File: uint64(max(q.Max, 1)), Processor: seconds}).Set(); err != nil {
		fmt.Fprintln(stderr, "warning: no limits for applying a delta:", err)
	}
	if _, err := sandbox.Enter(sandbox.Rights{}); err != nil {
		fmt.Fprintln(stderr, "warning: a delta is applied without a sandbox:", err)
	}
	signal.Ignore(unix.SIGXFSZ)
	return Apply(context.Background(), q)
}

// limited keeps the first bytes that are written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxErrorText - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
