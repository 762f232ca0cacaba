package generator

import (
	"context"
	"io"

	"github.com/mender-app/mender-app/artifact/output"
)

// createOutput begins a file that the caller named. Errors of the disk are of the type
// WriteError.
func createOutput(ctx context.Context, path, temp string) (*output.File, error) {
	f, err := output.CreateHeld(ctx, path, 0, temp)
	if err != nil {
		return nil, &WriteError{Err: err}
	}
	return f, nil
}

// checkOutput refuses early what createOutput would refuse. The result is the
// directory of the file; "" if the path leads to a pipe or a device.
func checkOutput(path string) (dir string, err error) {
	if dir, err = output.Check(path); err != nil {
		return "", &WriteError{Err: err}
	}
	return dir, nil
}

// WriteFile writes a file that the caller named, as [output.Write] does. A pipe or a
// device gets nothing unless fill succeeds; until then the content is in temp. Errors
// of the disk are of the type WriteError, also those that fill gets from its writer.
func WriteFile(ctx context.Context, path, temp string, fill func(io.Writer) error) error {
	f, err := createOutput(ctx, path, temp)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(diskWriter{f}); err != nil {
		return err
	}
	return writeError(f.Commit())
}

func writeError(err error) error {
	if err != nil {
		return &WriteError{Err: err}
	}
	return nil
}

// diskWriter makes the errors of a writer WriteErrors.
type diskWriter struct{ w io.Writer }

func (d diskWriter) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	return n, writeError(err)
}
