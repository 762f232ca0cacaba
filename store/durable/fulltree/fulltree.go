// Package fulltree copies and moves directories with all their attributes and kinds of
// files: owners, permissions, times, extended attributes, hard links, holes, sockets,
// pipes and devices. Nothing may write to a directory meanwhile: what is copied would be
// neither old nor new. Whoever writes all the same, such as the owner of a part of the tree,
// never leads a call out of the two directories: their paths may have no link, and what is in
// them is opened once and used by its descriptor.
//
// The package must not know what the directories are for. Only Sync makes anything durable.
package fulltree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
)

// MaxLinked is how many files with several names a directory may have: their names are
// kept in memory while they are copied.
const MaxLinked = 1 << 14

// batch is how many names of a directory are read at a time.
const batch = 256

// Copy copies the content of the directory from into the directory to, and gives to the
// attributes of from. It replaces entries that to already has.
func Copy(ctx context.Context, from, to string) error {
	return both(from, to, func(src, dst *dir) error {
		c := &copier{root: dst, linked: map[inode]link{}}
		err := src.each(func(name string) error {
			if err := step(ctx, name); err != nil {
				return err
			}
			if err := dst.remove(name); err != nil {
				return err
			}
			return c.entry(ctx, src, dst, name)
		})
		if err != nil {
			return err
		}
		return attributes(src.self(), dst.self())
	})
}

// Move is Copy, but renames entries out of from where it can. It can be repeated after a
// kill if to had none of the entries before. The times of to itself are not kept.
func Move(ctx context.Context, from, to string) error {
	return both(from, to, func(src, dst *dir) error {
		c := &copier{root: dst, linked: map[inode]link{}}
		for moved := true; moved; {
			moved = false
			err := src.each(func(name string) error {
				if err := step(ctx, name); err != nil {
					return err
				}
				if err := dst.remove(name); err != nil {
					return err
				}
				err := unix.Renameat(src.fd(), name, dst.fd(), name)
				if errors.Is(err, unix.EXDEV) {
					return c.entry(ctx, src, dst, name)
				}
				moved = true // a rename may hide entries from a reader of the directory
				return failure("rename", src, name, err)
			})
			if err != nil {
				return err
			}
		}
		return attributes(src.self(), dst.self())
	})
}

// Empty removes the content of a directory.
func Empty(ctx context.Context, path string) error {
	d, err := openDir(path)
	if err != nil {
		return err
	}
	defer d.Close()
	for left := true; left; {
		left = false
		err := d.each(func(name string) error {
			left = true
			if err := step(ctx, name); err != nil {
				return err
			}
			return d.remove(name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sync makes everything written to the file system of a directory durable.
func Sync(path string) error {
	d, err := openDir(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(d.fd()); err != nil {
		return &fs.PathError{Op: "syncfs", Path: path, Err: err}
	}
	return durable.Point("synced." + filepath.Base(path))
}

// Measure returns the bytes that a directory takes. It refuses one that Copy cannot copy,
// or that is not on one file system.
func Measure(ctx context.Context, path string) (bytes int64, err error) {
	d, err := openDir(path)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var top unix.Stat_t
	if err := unix.Fstat(d.fd(), &top); err != nil {
		return 0, failure("stat", d, "", err)
	}
	bytes = int64(top.Blocks) * 512
	linked := 0
	var measure func(d *dir) error
	measure = func(d *dir) error {
		return d.each(func(name string) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e, err := d.look(name)
			if err != nil {
				return err
			}
			defer e.Close()
			if e.st.Dev != top.Dev {
				return fmt.Errorf("%s is on another file system than %s", e.path, path)
			}
			bytes += int64(e.st.Blocks) * 512
			switch {
			case e.kind() == unix.S_IFDIR:
				sub, err := e.dir()
				if err != nil {
					return err
				}
				defer sub.Close()
				return measure(sub)
			case e.st.Nlink > 1:
				if linked++; linked > MaxLinked {
					return fmt.Errorf("%s has more than %d files with several names", path, MaxLinked)
				}
			}
			return nil
		})
	}
	return bytes, measure(d)
}

// both opens the two directories.
func both(from, to string, work func(src, dst *dir) error) error {
	src, err := openDir(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := openDir(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	return work(src, dst)
}

// step is called before each entry of the top directory.
func step(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return durable.Point("data." + name)
}

type inode struct{ dev, ino uint64 }

// link is the first copy of a file with several names.
type link struct {
	path string // below the root
	inode
}

// copier copies one tree.
type copier struct {
	root   *dir
	linked map[inode]link
}

// entry copies a file, a directory, or anything else, which dst does not have.
func (c *copier) entry(ctx context.Context, src, dst *dir, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	old, err := src.look(name)
	if err != nil {
		return err
	}
	defer old.Close()
	several := old.kind() != unix.S_IFDIR && old.st.Nlink > 1
	if first, ok := c.linked[old.inode()]; several && ok {
		return c.link(first, dst, name)
	}
	switch old.kind() {
	case unix.S_IFDIR:
		err = failure("mkdir", dst, name, unix.Mkdirat(dst.fd(), name, 0o700))
	case unix.S_IFLNK:
		var target string
		if target, err = old.target(); err == nil {
			err = failure("symlink", dst, name, unix.Symlinkat(target, dst.fd(), name))
		}
	default: // a file, a socket, a pipe or a device
		err = failure("mknod", dst, name, unix.Mknodat(dst.fd(), name, old.kind()|0o600, int(old.st.Rdev)))
	}
	if err != nil {
		return err
	}
	made, err := dst.made(name, old)
	if err != nil {
		return err
	}
	defer made.Close()
	if several && len(c.linked) < MaxLinked {
		c.linked[old.inode()] = link{dst.below(c.root, name), made.inode()}
	}
	switch old.kind() {
	case unix.S_IFDIR:
		err = c.directory(ctx, old, made)
	case unix.S_IFREG:
		err = file(ctx, old, made)
	case unix.S_IFLNK:
		return linkAttributes(old, made)
	}
	if err != nil {
		return err
	}
	return attributes(old.self(), made.self())
}

func (c *copier) directory(ctx context.Context, old, made *entry) error {
	src, err := old.dir()
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := made.dir()
	if err != nil {
		return err
	}
	defer dst.Close()
	return src.each(func(name string) error { return c.entry(ctx, src, dst, name) })
}

// link gives the first copy of a file another name.
func (c *copier) link(first link, dst *dir, name string) error {
	at := c.root
	above, base := path.Split(first.path)
	for part := range strings.SplitSeq(strings.Trim(above, "/"), "/") {
		if part == "" {
			continue
		}
		e, err := at.look(part)
		if err != nil {
			return err
		}
		at, err = e.dir()
		e.Close()
		if err != nil {
			return err
		}
		defer at.Close()
	}
	e, err := at.look(base)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.inode() != first.inode {
		return fmt.Errorf("%s: %w", e.path, errChanged)
	}
	err = unix.Linkat(unix.AT_FDCWD, e.self(), dst.fd(), name, unix.AT_SYMLINK_FOLLOW)
	return failure("link", dst, name, err)
}

// file copies the content of a file: as a clone if the file system can, otherwise without
// its holes.
func file(ctx context.Context, old, made *entry) (err error) {
	size := old.st.Size
	in, err := os.OpenFile(old.self(), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(made.self(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	if err := out.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		begin, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole until the end
		}
		if err != nil {
			return err
		}
		end, err := in.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := span(ctx, in, out, begin, min(end, size)); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// span copies a part of a file in pieces, and checks ctx between them.
func span(ctx context.Context, in, out *os.File, begin, end int64) error {
	const piece = 64 << 20
	if _, err := in.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	if _, err := out.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	for begin < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := io.CopyN(out, in, min(piece, end-begin))
		if err != nil {
			return err
		}
		begin += n
	}
	return nil
}
