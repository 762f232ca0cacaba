package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFiles bounds the files and directories. It is far above what a person writes, and
// low enough to refuse a wrong directory, such as / or a home.
const maxFiles = 20_000

// CheckTree walks what is shipped of a directory. It refuses links that lead out of it,
// devices, sockets and pipes; of what Select has chosen also links to nothing. It reads nothing
// that a link leads to.
func CheckTree(dir string, ignore *Ignore) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("manifests directory %s is a file", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	n := 0
	refuse := func(file, text, hint string) error {
		return &Error{Place: Place{File: file}, Text: text, Hint: hint}
	}
	err = ignore.Walk(root.FS(), func(path string, d fs.DirEntry) error {
		if n++; n > maxFiles {
			return tooMany(dir)
		}
		switch {
		case d.IsDir(), d.Type().IsRegular():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := root.Readlink(path)
			if err != nil {
				return err
			}
			if leaves(path, target) {
				return refuse(path, "link to "+target+" leaves the manifests directory", "put a copy of the file there")
			}
			if ignore == nil || ignore.only == nil {
				return nil // it may not be needed
			}
			if _, err := root.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return refuse(path, "link to "+target+" leads to nothing", "make what it names, remove the link, or name the link in "+IgnoreFile)
			}
			return nil
		}
		return refuse(path, "is neither a file, a directory nor a link", "remove it")
	})
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return err
		}
		return fmt.Errorf("manifests directory: %w", err)
	}
	return nil
}

func tooMany(dir string) error {
	return &Error{Place: Place{File: "."}, Text: fmt.Sprintf("more than %d files", maxFiles), Hint: "is " + dir + " really the manifests directory? What is not to be shipped can be named in " + IgnoreFile}
}

// leaves reports whether a link at path (relative to the tree) points out of it.
func leaves(path, target string) bool {
	if filepath.IsAbs(target) {
		return true
	}
	return !filepath.IsLocal(filepath.Join(filepath.Dir(path), target))
}
