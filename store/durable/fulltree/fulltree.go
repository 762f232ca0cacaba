// Package fulltree copies and moves directories with all their attributes and kinds of
// files: owners, permissions, times, extended attributes, hard links, holes, sockets,
// pipes and devices. Nothing may write to a directory meanwhile. The package must not
// know what the directories are for. Only Sync makes anything durable.
package fulltree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

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
	c := &copier{linked: map[inode]string{}}
	if err := each(from, func(name string) error {
		return c.replace(ctx, filepath.Join(from, name), filepath.Join(to, name))
	}); err != nil {
		return err
	}
	return attributes(from, to)
}

// Move is Copy, but renames entries out of from where it can. It can be repeated after a
// kill if to had none of the entries before. The times of to itself are not kept.
func Move(ctx context.Context, from, to string) error {
	c := &copier{linked: map[inode]string{}}
	for moved := true; moved; {
		moved = false
		err := each(from, func(name string) error {
			old, next := filepath.Join(from, name), filepath.Join(to, name)
			if err := step(ctx, next); err != nil {
				return err
			}
			if err := os.RemoveAll(next); err != nil {
				return err
			}
			err := os.Rename(old, next)
			if errors.Is(err, unix.EXDEV) {
				return c.entry(ctx, old, next)
			}
			moved = true // a rename may hide entries from a reader of the directory
			return err
		})
		if err != nil {
			return err
		}
	}
	return attributes(from, to)
}

// Empty removes the content of a directory.
func Empty(ctx context.Context, dir string) error {
	for left := true; left; {
		left = false
		err := each(dir, func(name string) error {
			left = true
			if err := step(ctx, filepath.Join(dir, name)); err != nil {
				return err
			}
			return os.RemoveAll(filepath.Join(dir, name))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sync makes everything written to the file system of a directory durable.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return durable.Point("synced." + filepath.Base(dir))
}

// Measure returns the bytes that a directory takes. It refuses one that Copy cannot copy,
// or that is not on one file system.
func Measure(ctx context.Context, dir string) (bytes int64, err error) {
	root, linked := uint64(0), 0
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		if path == dir {
			root = uint64(st.Dev) // its type depends on the machine
		}
		if uint64(st.Dev) != root {
			return fmt.Errorf("%s is on another file system than %s", path, dir)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			if linked++; linked > MaxLinked {
				return fmt.Errorf("%s has more than %d files with several names", dir, MaxLinked)
			}
		}
		bytes += int64(st.Blocks) * 512
		return nil
	})
	return bytes, err
}

// each calls f with the name of each entry of a directory, in any order.
func each(dir string, f func(name string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
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

// step is called before each entry of the top directory.
func step(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return durable.Point("data." + filepath.Base(path))
}

type inode struct{ dev, ino uint64 }

// copier copies one tree.
type copier struct {
	linked map[inode]string // where the copies of files with several names are
}

func (c *copier) replace(ctx context.Context, from, to string) error {
	if err := step(ctx, to); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return c.entry(ctx, from, to)
}

// entry copies a file, a directory, or anything else. The path to does not exist.
func (c *copier) entry(ctx context.Context, from, to string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: from, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if first, ok := c.linked[id]; ok {
			return os.Link(first, to)
		}
		if len(c.linked) < MaxLinked {
			c.linked[id] = to
		}
	}
	var err error
	switch kind {
	case unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = each(from, func(name string) error {
				return c.entry(ctx, filepath.Join(from, name), filepath.Join(to, name))
			})
		}
	case unix.S_IFREG:
		err = file(ctx, from, to, st.Size)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default: // a socket, a pipe or a device
		if err = unix.Mknod(to, kind|0o600, int(st.Rdev)); err != nil {
			err = &fs.PathError{Op: "mknod", Path: to, Err: err}
		}
	}
	if err != nil {
		return err
	}
	return attributes(from, to)
}

// file copies the content of a file: as a clone if the file system can, otherwise without
// its holes.
func file(ctx context.Context, from, to string, size int64) (err error) {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
