// Package input is the one reader of files that people name: artifacts, keys, settings.
// Whoever may change a directory on the way can put a pipe or a device in the place of a
// file, between a look and the next. So a file is opened once, without waiting for anybody,
// and what was opened is looked at.
//
// It must not know what the files are.
package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Open opens a regular file for reading. It never waits. The error names what else the path
// is; it is a directory, a pipe, a device or a socket. What this process has open already,
// such as /dev/stdin, may be anything. A URL is a name like any other, but an error does not
// show its secrets.
func Open(path string) (*os.File, error) {
	flags := os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	own := path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
	if own {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Path = Source(path).String()
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !own && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %s, not a file", path, kind(st.Mode()))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Read reads a file as Open opens it, of at most most bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Bounded(f, path, most)
}

// Bounded reads what is left of r, at most most bytes; name is for the error.
func Bounded(r io.Reader, name string, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return data, nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}
