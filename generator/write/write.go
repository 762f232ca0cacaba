// Package write creates the files that a user of a build host names. Its errors are told
// from others, so that the programs exit with the code for a file that cannot be written.
package write

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/mender-app/mender-app/artifact/output"
)

// Error says that a file cannot be written.
type Error struct{ Err error }

func (e *Error) Error() string { return "write: " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Advice says what to do about a full disk.
func (e *Error) Advice() string {
	if Full(e.Err) {
		return "temporary files need room for the images and their bases: name another directory with --temp-dir, or make room"
	}
	return ""
}

// Full reports whether an error says that a disk, a quota or a file is full.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// File is a file that appears with Commit. The errors of its methods are of the type Error.
type File struct{ *output.File }

// Create begins a file as [output.CreateHeld] does.
func Create(ctx context.Context, path, temp string) (*File, error) {
	f, err := output.CreateHeld(ctx, path, 0, temp)
	if err != nil {
		return nil, &Error{Err: err}
	}
	return &File{f}, nil
}

func (f *File) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, wrap(err)
}

// Sync is [output.File.Sync].
func (f *File) Sync() error { return wrap(f.File.Sync()) }

// Commit is [output.File.Commit].
func (f *File) Commit() error { return wrap(f.File.Commit()) }

// Check refuses early what Create would refuse. The result is the directory of the file;
// "" if the path leads to a pipe or a device.
func Check(path string) (dir string, err error) {
	if dir, err = output.Check(path); err != nil {
		return "", &Error{Err: err}
	}
	return dir, nil
}

// To writes a file as [output.Write] does. A pipe or a device gets nothing unless fill
// succeeds; until then the content is in temp.
func To(ctx context.Context, path, temp string, fill func(io.Writer) error) error {
	f, err := Create(ctx, path, temp)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f); err != nil {
		return err
	}
	return f.Commit()
}

func wrap(err error) error {
	if err != nil {
		return &Error{Err: err}
	}
	return nil
}
