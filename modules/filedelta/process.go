package filedelta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/confined"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// Verb is the first argument of the process that applies a delta. It is not for
// people: its arguments may change.
const Verb = "apply-delta"

// Exit codes of the process.
const (
	exitDone   = 0
	exitFailed = 1 // an error of the files, such as no space
	exitDelta  = 5 // an ErrDelta
)

// maxMemory bounds the private writable memory of the process, in bytes. Go reserves
// most of it without using it.
const maxMemory = 256 << 20

// Run applies a delta as Apply does, in a process of its own: this program again,
// which calls Main for Verb. The end of the context kills it.
func Run(ctx context.Context, q Request) error {
	seconds := strconv.FormatUint(sandbox.ProcessorTime(ctx), 10)
	err := confined.Run(ctx, confined.Part{
		Args:  []string{Verb, q.Digest.String(), strconv.FormatInt(q.Size, 10), strconv.FormatInt(q.Max, 10), seconds},
		Files: []*os.File{q.Old, q.Delta, q.New},
	})
	var exit *confined.ExitError
	switch {
	case !errors.As(err, &exit):
		return err
	case exit.Code == exitDelta:
		return fmt.Errorf("%w: %s", ErrDelta, strings.TrimPrefix(exit.Said, ErrDelta.Error()+": "))
	}
	return fmt.Errorf("apply a delta: %w", err)
}

// Main is the process that Run starts; args follow Verb. It gives up all rights
// except its open files before it reads the first byte of the delta. It returns the
// exit code.
func Main(args []string, stderr io.Writer) int {
	err := run(args, stderr)
	if err == nil {
		return exitDone
	}
	confined.Say(stderr, err)
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
	confined.Enter(sandbox.Limits{Memory: maxMemory, File: uint64(max(q.Max, 1)), Processor: seconds}, sandbox.Rights{}, stderr)
	return Apply(context.Background(), q)
}
