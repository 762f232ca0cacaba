package fulltree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dir is an open directory. What is in it is reached through the descriptor alone: a name of
// one part, and no link.
type dir struct {
	*os.File
	path string // for messages, and for where it is below another one
}

// openDir opens a directory whose path has no link.
func openDir(path string) (*dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if err != nil {
			break
		}
		if part == "" {
			continue
		}
		above := at
		at, err = unix.Openat(above, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(above)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open without links", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(at) }()
	return reopen(at, path)
}

// reopen opens a directory for reading that is open as a path.
func reopen(fd int, path string) (*dir, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &dir{f, path}, nil
}

func (d *dir) fd() int      { return int(d.Fd()) }
func (d *dir) self() string { return fmt.Sprintf("/proc/self/fd/%d", d.fd()) }

// below is the path of an entry below another directory.
func (d *dir) below(root *dir, name string) string {
	return strings.TrimPrefix(filepath.Join(d.path, name), root.path+"/")
}

// each calls f with the name of each entry, in any order.
func (d *dir) each(f func(name string) error) error {
	if _, err := d.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := d.Readdirnames(batch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// remove removes an entry with all that is in it.
func (d *dir) remove(name string) error {
	root, err := os.OpenRoot(d.self())
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}

// entry is what a directory has under a name, whatever has that name later.
type entry struct {
	fd   int
	st   unix.Stat_t
	path string // for messages
}

// look opens an entry without following it or waiting for anybody.
func (d *dir) look(name string) (*entry, error) {
	fd, err := unix.Openat(d.fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failure("open", d, name, err)
	}
	e := &entry{fd: fd, path: filepath.Join(d.path, name)}
	if err := unix.Fstat(fd, &e.st); err != nil {
		e.Close()
		return nil, failure("stat", d, name, err)
	}
	return e, nil
}

// errChanged: somebody writes to the tree.
var errChanged = errors.New("somebody has put something else in its place meanwhile")

// made opens an entry that this process has just made of the same kind as another one.
func (d *dir) made(name string, like *entry) (*entry, error) {
	e, err := d.look(name)
	if err != nil {
		return nil, err
	}
	if e.kind() != like.kind() || int(e.st.Uid) != os.Geteuid() || e.kind() != unix.S_IFDIR && e.st.Nlink != 1 {
		e.Close()
		return nil, fmt.Errorf("%s: %w", e.path, errChanged)
	}
	return e, nil
}

func (e *entry) Close()       { _ = unix.Close(e.fd) }
func (e *entry) inode() inode { return inode{uint64(e.st.Dev), e.st.Ino} }
func (e *entry) kind() uint32 { return e.st.Mode & unix.S_IFMT }
func (e *entry) self() string { return fmt.Sprintf("/proc/self/fd/%d", e.fd) }

func (e *entry) dir() (*dir, error) { return reopen(e.fd, e.path) }

// target is where a link leads.
func (e *entry) target() (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(e.fd, "", buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: e.path, Err: err}
	}
	return string(buf[:n]), nil
}

func failure(op string, d *dir, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.path, name), Err: err}
}
