// Package output writes files that appear at their paths whole or not at all.
package output

import (
	"fmt"
	"io"
	"os"

	"github.com/mender-app/mender-app/generator/source"
)

// File is a complete file on disk that does not have its name yet.
type File struct {
	Path string // the name that it gets
	Temp string // the name that it has, beside Path
}

// Write writes a new file beside path and syncs it. On an error nothing is left of
// it. Errors of the disk are of the type [source.WriteError], also those that fill
// gets from its writer.
func Write(path string, fill func(io.Writer) error) (w File, err error) {
	w = File{Path: path, Temp: fmt.Sprintf("%s.%d.tmp", path, os.Getpid())}
	f, err := os.OpenFile(w.Temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return w, &source.WriteError{Err: err}
	}
	defer func() {
		if err != nil {
			f.Close()
			w.Discard()
		}
	}()
	if err := fill(writer{f}); err != nil {
		return w, err
	}
	if err := f.Sync(); err != nil {
		return w, &source.WriteError{Err: err}
	}
	if err := f.Close(); err != nil {
		return w, &source.WriteError{Err: err}
	}
	return w, nil
}

// Replace writes a file and gives it its name. On an error nothing is left of it, and
// a file that was at path is as it was.
func Replace(path string, fill func(io.Writer) error) error {
	w, err := Write(path, fill)
	if err != nil {
		return err
	}
	return w.Publish()
}

// Publish gives the file its name. On an error nothing is left of it.
func (w File) Publish() error {
	if err := os.Rename(w.Temp, w.Path); err != nil {
		w.Discard()
		return &source.WriteError{Err: err}
	}
	return nil
}

// Discard removes the file.
func (w File) Discard() { os.Remove(w.Temp) }

// writer makes the errors of a writer WriteErrors.
type writer struct{ w io.Writer }

func (f writer) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		err = &source.WriteError{Err: err}
	}
	return n, err
}
