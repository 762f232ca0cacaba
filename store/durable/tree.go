package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CopyTree copies a file, or a directory with its files, directories and symbolic
// links. Permissions are kept regardless of the umask; sockets, pipes and devices
// are left out. The path to must not exist. The copy is durable only after
// SyncTree.
func CopyTree(from, to string) error { return tree(from, to, copyFile) }

// LinkTree is CopyTree with hard links instead of copies, if the file system
// supports them. They take no space, and a process that has such a file open
// sees the same file.
func LinkTree(from, to string) error { return tree(from, to, linkFile) }

func tree(from, to string, file func(from, to string, perm fs.FileMode) error) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			if err := os.Mkdir(dst, 0o700); err != nil {
				return err
			}
			return os.Chmod(dst, info.Mode().Perm())
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, dst)
		case d.Type().IsRegular():
			return file(path, dst, info.Mode().Perm())
		}
		return nil
	})
}

func linkFile(from, to string, perm fs.FileMode) error {
	err := os.Link(from, to)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EOPNOTSUPP) {
		return copyFile(from, to, perm)
	}
	return err
}

func copyFile(from, to string, perm fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(perm)
	}
	return errors.Join(err, out.Close())
}
