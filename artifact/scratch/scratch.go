// Package scratch makes temporary files and directories that do not outlive their program
// for long. What a program leaves that is killed is removed by the next one that makes
// something in the same directory, and by [Sweep].
//
// A living program has the kernel's lock (flock) of what it made; nothing else says who
// uses it. Only names that this package gives, of this user, are ever removed.
package scratch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// How names begin, with 16 hexadecimal digits after it.
const (
	Prefix     = ".mender-app-"
	HostPrefix = ".app-gen-" // of directories on a build host
)

// claimed are the directories of this process that Remove has not removed.
var claimed = struct {
	sync.Mutex
	dirs map[string]*os.File
}{dirs: map[string]*os.File{}}

// Dir makes a directory that only this user can enter, in parent; "" is that for temporary
// files. The caller calls Remove.
func Dir(parent, prefix string) (path string, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	Sweep(parent)
	for {
		path = filepath.Join(parent, name(prefix))
		switch err := os.Mkdir(path, 0o700); {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return "", err
		}
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) { // another program has swept it
			continue
		}
		if err != nil {
			return "", errors.Join(err, os.Remove(path))
		}
		if !Claim(f) {
			_ = f.Close()
			continue
		}
		claimed.Lock()
		claimed.dirs[path] = f
		claimed.Unlock()
		return path, nil
	}
}

// Remove removes a directory that Dir has made, with all that is in it. "" is none.
func Remove(path string) error {
	if path == "" {
		return nil
	}
	claimed.Lock()
	f := claimed.dirs[path]
	delete(claimed.dirs, path)
	claimed.Unlock()
	err := os.RemoveAll(path)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// File makes a file for writing in the directory that dir has open. The caller renames or
// removes it before it closes it.
func File(dir *os.File, perm fs.FileMode) (f *os.File, base string, err error) {
	for {
		base = name(Prefix)
		fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(perm.Perm()))
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		path := filepath.Join(dir.Name(), base)
		if err != nil {
			return nil, "", &fs.PathError{Op: "create", Path: path, Err: err}
		}
		if f := os.NewFile(uintptr(fd), path); Claim(f) {
			return f, base, nil
		} else {
			_ = f.Close()
		}
	}
}

// Unnamed makes a file in dir that is gone when it is closed; "" is the directory for
// temporary files.
func Unnamed(dir string) (*os.File, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "unnamed")), nil
	}
	// The file system has no such files.
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	f, base, err := File(at, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Unlinkat(int(at.Fd()), base, 0); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "remove", Path: f.Name(), Err: err}, f.Close())
	}
	return f, nil
}

func name(prefix string) string { return fmt.Sprintf("%s%016x", prefix, rand.Uint64()) }

// isName reports whether name could have returned s.
func isName(s string) bool {
	digits, ok := strings.CutPrefix(s, Prefix)
	if !ok {
		digits, ok = strings.CutPrefix(s, HostPrefix)
	}
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// Claim says that this program uses a file or directory that it has just made, until it
// closes f. It is false if a sweep has removed it already: the caller makes another. A file
// system without locks is not an error, and what is left there stays.
func Claim(f *os.File) bool {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// Claimed reports whether a living program has claimed the file or directory base, in an
// open directory.
func Claimed(dir *os.File, base string) bool {
	f, _, claimed, err := hold(dir, base)
	if err != nil {
		return false
	}
	_ = f.Close()
	return claimed
}

// hold opens a file or directory and returns its owner. It has the kernel's lock until f is
// closed, unless a program has claimed it.
func hold(dir *os.File, base string) (f *os.File, uid int, claimed bool, err error) {
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, false, err
	}
	f = os.NewFile(uintptr(fd), base)
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, false, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return nil, 0, false, unix.EINVAL
	}
	switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return f, int(st.Uid), true, nil
	case err != nil:
		return nil, 0, false, err
	}
	return f, int(st.Uid), false, nil
}

// Sweep removes from a directory what programs left that were killed; "" is the directory
// for temporary files. What cannot be removed stays.
func Sweep(dir string) {
	if dir == "" {
		dir = os.TempDir()
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if !isName(name) {
				continue
			}
			f, uid, claimed, err := hold(d, name)
			if err != nil {
				continue
			}
			// It stays locked: a program that has just made it does not claim it meanwhile.
			if !claimed && uid == os.Geteuid() {
				_ = root.RemoveAll(name)
			}
			_ = f.Close()
		}
		if len(names) == 0 || err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}
