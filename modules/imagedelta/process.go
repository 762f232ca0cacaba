package imagedelta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mender-app/mender-app/modules/confined"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// Verb is the first argument of the process that applies a delta. It is not for
// people: its input may change.
const Verb = "apply-image-delta"

// maxMemory bounds the private writable memory of the process, in bytes. Go reserves
// most of it without using it.
const maxMemory = 256 << 20

// input is what the process reads from its standard input.
type input struct {
	Request   Request
	Processor uint64 // seconds of processor time; 0 means no bound
}

// marks are the marks of Apply's errors that the process's exit code keeps.
var marks = map[int]error{
	submodules.CodeContent: submodules.ErrContent,
	submodules.CodeBase:    submodules.ErrBase,
	submodules.CodeSpace:   submodules.ErrSpace,
}

// Run applies a delta as Apply does, in a process of its own: this program again,
// which calls Main for Verb. The end of the context kills it.
func Run(ctx context.Context, q Request) error {
	in, err := json.Marshal(input{Request: q, Processor: sandbox.ProcessorTime(ctx)})
	if err != nil {
		return err
	}
	err = confined.Run(ctx, confined.Part{Args: []string{Verb}, Stdin: bytes.NewReader(in)})
	var exit *confined.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	err = fmt.Errorf("apply a delta: %w", err)
	if mark := marks[exit.Code]; mark != nil {
		err = submodules.Mark(err, mark)
	}
	return err
}

// Main is the process that Run starts. It gives up its rights before it reads the
// first byte of the delta or of an archive. It returns the exit code.
func Main(stdin io.Reader, stderr io.Writer) int {
	err := run(stdin, stderr)
	if err == nil {
		return submodules.CodeDone
	}
	confined.Say(stderr, err)
	for code, mark := range marks {
		if errors.Is(err, mark) {
			return code
		}
	}
	return submodules.CodeFailed
}

func run(stdin io.Reader, stderr io.Writer) error {
	var in input
	if err := json.NewDecoder(stdin).Decode(&in); err != nil {
		return fmt.Errorf("the update module calls this itself: %w", err)
	}
	q := in.Request
	// An archive that is compressed as a whole is unpacked into this directory.
	if err := os.Setenv("TMPDIR", q.Temp); err != nil {
		return err
	}
	confined.Enter(
		sandbox.Limits{Memory: maxMemory, File: uint64(max(q.MaxFile, 1)), Processor: in.Processor},
		sandbox.Rights{Read: append([]string{q.Delta}, q.Archives...), Write: []string{q.Temp}}, stderr)
	return Apply(context.Background(), q)
}
