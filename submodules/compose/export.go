package compose

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// exportFiles copies the files, directories and links of a directory into another one. The
// error is an fs.ErrNotExist if there is nothing to copy.
func exportFiles(from, to string) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	return fs.WalkDir(src.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			if err := dst.Mkdir(name, fi.Mode().Perm()|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		case d.Type()&fs.ModeSymlink != 0:
			target, err := src.Readlink(name)
			if err != nil {
				return err
			}
			if err := dst.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return dst.Symlink(target, name)
		case d.Type().IsRegular():
			return copyFile(dst, src, name, fi.Mode().Perm())
		}
		return nil
	})
}

// copyFile copies a file of the manifests with the given mode.
func copyFile(dst, src *os.Root, name string, mode os.FileMode) error {
	in, err := src.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
