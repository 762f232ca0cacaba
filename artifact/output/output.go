// Package output writes the files that people name, in options such as --output.
//
// What the name means decides how the file is written:
//
//   - A regular file, or a name that is free, gets the new content whole and durably,
//     or keeps what it had.
//   - A pipe or a character device (a terminal, /dev/null) is written to in place.
//   - A directory, a socket and a block device are refused.
//   - A symbolic link is followed, and its target is treated in the same way.
//   - "-" is standard output.
//
// Nothing but a regular file is ever replaced. A name is opened once, and judged by
// the descriptor.
package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/scratch"
)

// ErrKind is the error of a name that means something that cannot be written to.
var ErrKind = errors.New("is not a file")

// place is what a name means.
type place struct {
	name string // as it was given, for messages
	// target is what has the name, opened with O_PATH; nil: it is a regular file, or free.
	target *os.File
	// same is the descriptor of this program that is meant: standard output for -, and
	// where that or standard error writes to the regular file that has the name; 0: none.
	same int
	// dir and base are where a regular file lies or will lie, with links followed.
	dir, base string
}

func (p *place) close() {
	if p.target != nil {
		_ = p.target.Close()
	}
}

// find finds out what a name means, and refuses what cannot be written to.
func find(name string) (*place, error) {
	p := &place{name: name}
	if name == "-" {
		p.same = 1
		return p, nil
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	default:
		f := os.NewFile(uintptr(fd), name)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			_ = f.Close()
			return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		inPlace, err := judge(name, &st)
		if inPlace {
			p.target = f
			return p, nil
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if p.dir, p.base, err = follow(name); err != nil || !same(p.dir+"/"+p.base, &st) {
			// A descriptor in /proc whose file was removed: no name leads there.
			p.target, p.dir, p.base = f, "", ""
			return p, nil
		}
		_ = f.Close()
		for _, own := range []int{1, 2} {
			if same(fmt.Sprintf("/proc/self/fd/%d", own), &st) {
				p.same, p.dir, p.base = own, "", ""
			}
		}
		return p, nil
	}
	if p.dir, p.base, err = follow(name); err != nil {
		return nil, err
	}
	info, err := os.Stat(p.dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", p.dir)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// same reports whether a path leads to a file.
func same(path string, st *unix.Stat_t) bool {
	var other unix.Stat_t
	return unix.Stat(path, &other) == nil && other.Dev == st.Dev && other.Ino == st.Ino
}

// judge says whether what has a name is written to in place, and refuses it if it
// cannot be written to at all.
func judge(name string, st *unix.Stat_t) (inPlace bool, err error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return false, nil
	case unix.S_IFIFO, unix.S_IFCHR:
		return true, nil
	case unix.S_IFDIR:
		return false, fmt.Errorf("%s %w but a directory", name, ErrKind)
	case unix.S_IFSOCK:
		return false, fmt.Errorf("%s %w but a socket", name, ErrKind)
	case unix.S_IFBLK:
		return false, fmt.Errorf("%s %w but a block device", name, ErrKind)
	}
	return false, fmt.Errorf("%s %w", name, ErrKind)
}

// maxLinks bounds the links that lead from a name to a file, as the kernel does.
const maxLinks = 40

// follow follows symbolic links to the directory and name of a regular file, or of
// one that can be made. Paths are not cleaned: the parent of a link's target is not
// that of the link.
func follow(name string) (dir, base string, err error) {
	for range maxLinks {
		if dir, base = filepath.Split(name); dir == "" {
			dir = "."
		}
		if base == "" || base == "." || base == ".." {
			return "", "", &fs.PathError{Op: "open", Path: name, Err: unix.EISDIR}
		}
		to, err := os.Readlink(name)
		if err != nil { // it is not a link, or nothing
			return dir, base, nil
		}
		if name = to; !filepath.IsAbs(to) {
			name = strings.TrimSuffix(dir, "/") + "/" + to
		}
	}
	return "", "", &fs.PathError{Op: "open", Path: name, Err: unix.ELOOP}
}

// Check refuses a name that [Create] would refuse. It returns the directory of the
// regular file that would be written, and "" if the name is written to in place.
// Nothing changes.
func Check(name string) (dir string, err error) {
	p, err := find(name)
	if err != nil {
		return "", err
	}
	p.close()
	return p.dir, nil
}

// IsStandard reports whether a name means the standard output of this program: "-",
// or what standard output is already, such as /dev/stdout. A program that writes
// there must print nothing else on it.
func IsStandard(name string) bool {
	if name == "-" {
		return true
	}
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	own, err := os.Stdout.Stat()
	return err == nil && os.SameFile(info, own)
}

// File is an output that is being written. The caller ends it with Commit, and calls
// Abort in any case.
type File struct {
	*place
	ctx    context.Context
	file   *os.File // gets the content; nil at the end
	parent *os.File // directory of the regular file
	temp   string   // path of a file that has no name yet; "": it is written to in place
	stop   func() bool
}

// Create begins an output. A new regular file has the permissions perm; 0 stands for
// those that the umask leaves of 0666. A file system without permissions is not an error.
//
// For a pipe it waits for a reader. That and each Write end when ctx does.
func Create(ctx context.Context, name string, perm fs.FileMode) (*File, error) {
	return create(ctx, name, perm, "", false)
}

// CreateHeld is Create for an output that is complete before anybody sees a part of
// it: what is written to a pipe or device is kept in a file in dir until Commit. dir
// "" is the directory for temporary files.
func CreateHeld(ctx context.Context, name string, perm fs.FileMode, dir string) (*File, error) {
	return create(ctx, name, perm, dir, true)
}

func create(ctx context.Context, name string, perm fs.FileMode, dir string, held bool) (_ *File, err error) {
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	f := &File{place: p, ctx: ctx}
	defer func() {
		if err != nil {
			f.Abort()
		}
	}()
	switch {
	case p.dir != "":
		err = f.createTemp(perm)
	case held:
		err = f.createHeld(dir)
	default:
		f.file, err = f.openTarget()
	}
	return f, err
}

// createTemp makes a file beside the one that it replaces.
func (f *File) createTemp(perm fs.FileMode) (err error) {
	if f.parent, err = os.Open(f.dir); err != nil {
		return err
	}
	mode := perm
	if perm == 0 {
		mode = 0o666
	}
	scratch.Sweep(f.dir)
	file, base, err := scratch.File(f.parent, mode)
	if err != nil {
		var perr *fs.PathError
		if errors.As(err, &perr) {
			perr.Path = f.name
		}
		return err
	}
	f.file, f.temp = file, filepath.Join(f.dir, base)
	if perm != 0 {
		if err := f.file.Chmod(perm); err != nil && !errors.Is(err, fs.ErrPermission) { // vfat has the same for all files
			return err
		}
	}
	return nil
}

// createHeld makes a file in dir for what is written at the end.
func (f *File) createHeld(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	scratch.Sweep(dir)
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if f.file, _, err = scratch.File(d, 0o600); err == nil {
		f.temp = f.file.Name()
	}
	return err
}

// openTarget opens what is written to in place: exactly what was judged.
func (f *File) openTarget() (*os.File, error) {
	if f.same != 0 {
		fd, err := unix.FcntlInt(uintptr(f.same), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: f.name, Err: err}
		}
		return os.NewFile(uintptr(fd), f.name), nil
	}
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	path := fmt.Sprintf("/proc/self/fd/%d", f.target.Fd())
	go func() {
		// A pipe is opened when it has a reader.
		file, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
		done <- opened{file, err}
	}()
	select {
	case o := <-done:
		var perr *fs.PathError
		if errors.As(o.err, &perr) {
			perr.Path = f.name
		}
		if o.err == nil {
			f.stop = context.AfterFunc(f.ctx, func() { _ = o.file.SetWriteDeadline(time.Unix(1, 0)) })
		}
		return o.file, o.err
	case <-f.ctx.Done():
		return nil, context.Cause(f.ctx)
	}
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	return n, f.explain(err)
}

// explain makes an error of writing speak of the name that was given.
func (f *File) explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return &fs.PathError{Op: perr.Op, Path: f.name, Err: perr.Err}
	}
	return err
}

// Stat describes the file that is written.
func (f *File) Stat() (fs.FileInfo, error) { return f.file.Stat() }

// Content is the path at which what was written can be read before Commit; "" if it
// is written to in place.
func (f *File) Content() string { return f.temp }

// Sync makes what was written durable. Commit does it too.
func (f *File) Sync() error {
	if f.temp == "" {
		return nil
	}
	return f.explain(sync(f.file))
}

// sync accepts file systems that cannot sync this kind of file.
func sync(f *os.File) error {
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// Commit ends the output. A regular file has its name then, and both are durable.
// On an error of a regular file, what had the name is as it was.
func (f *File) Commit() error {
	err := f.commit()
	f.Abort()
	return f.explain(err)
}

func (f *File) commit() error {
	switch {
	case f.temp == "":
		file := f.file
		f.file = nil
		return file.Close()
	case f.dir == "":
		return f.release()
	}
	file := f.file
	if err := sync(file); err != nil {
		return err
	}
	parent := int(f.parent.Fd())
	// Something else may have taken the name in the meantime.
	var st unix.Stat_t
	if err := unix.Fstatat(parent, f.base, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s %w any more", f.name, ErrKind)
	}
	if err := unix.Renameat(parent, filepath.Base(f.temp), parent, f.base); err != nil {
		return &fs.PathError{Op: "rename", Path: f.name, Err: err}
	}
	f.temp, f.file = "", nil
	return errors.Join(file.Close(), sync(f.parent)) // closed after it has its name: nobody sweeps it
}

// release copies what was held to what is written to in place.
func (f *File) release() error {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	to, err := f.openTarget()
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f.file)
	return errors.Join(err, to.Close())
}

// Abort ends an output that was not committed: of a regular file nothing is left, and
// what had the name is as it was. After Commit it does nothing.
func (f *File) Abort() {
	if f.stop != nil {
		f.stop()
	}
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
	switch {
	case f.temp == "":
	case f.parent != nil:
		_ = unix.Unlinkat(int(f.parent.Fd()), filepath.Base(f.temp), 0)
	default:
		_ = os.Remove(f.temp)
	}
	f.temp = ""
	if f.parent != nil {
		_ = f.parent.Close()
		f.parent = nil
	}
	f.close()
	f.target = nil
}

// Write writes an output as fill does, whole or not at all where the name is a regular
// file's.
func Write(ctx context.Context, name string, perm fs.FileMode, fill func(io.Writer) error) error {
	f, err := Create(ctx, name, perm)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f); err != nil {
		return err
	}
	return f.Commit()
}
