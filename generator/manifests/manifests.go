// Package manifests reads the manifests of an application. It lists the container
// images that they use, with file and line. It refuses what would fail on a device,
// which loads its images from an artifact and pulls nothing. It lists what services
// can reach beyond their containers.
//
// It knows compose projects and Kubernetes manifests, and nothing of where
// images come from or how an artifact looks.
package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Place is a line of a file; Line 0 means the file as a whole. File is relative
// to the manifests directory.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
}

// String writes the place as compilers do, so that editors can follow it.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Use is one place where an image is needed.
type Use struct {
	Image string `json:"image"`
	By    string `json:"by"` // who uses it: `service "web"`, `Deployment "web", container "nginx"`
	Place Place  `json:"place"`
}

// Variable is a variable that the manifests use and the device does not have. It
// is shipped with them.
type Variable struct {
	Name, Value string
}

// Found is what manifests hold. Uses are in the order of the files, one for
// each place; one image may be used in several.
type Found struct {
	Uses     []Use
	Warnings []string
	Ship     []Variable // compose only, sorted by name
	// Encrypt are the files that hold nothing but secrets, relative to the
	// directory: those that are to be encrypted, if that was asked for.
	Encrypt []string
	// Encrypted is true if there are encrypted secrets already.
	Encrypted bool
}

// Images returns the images used, each once, in the order of their first use.
func (f *Found) Images() []string {
	var list []string
	seen := map[string]bool{}
	for _, u := range f.Uses {
		if !seen[u.Image] {
			seen[u.Image] = true
			list = append(list, u.Image)
		}
	}
	return list
}

// Error is something in the manifests that cannot work on a device.
type Error struct {
	Place Place
	Text  string
	Hint  string // what to do about it; may be empty
}

func (e *Error) Error() string { return e.Place.String() + ": " + e.Text }

// Limits of a manifests directory. They are far above what a person writes, and
// low enough to refuse a wrong directory, such as / or a home.
const (
	maxFiles    = 20_000
	maxManifest = 16 << 20 // bytes of one YAML file
)

// CheckTree walks the directory that will be shipped. It refuses links that lead
// out of it, devices, sockets and pipes. It follows no link.
func CheckTree(dir string) error {
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
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > maxFiles {
			return &Error{Place: Place{File: "."}, Text: fmt.Sprintf("more than %d files", maxFiles), Hint: "is " + dir + " really the manifests directory?"}
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
				return &Error{Place: Place{File: path}, Text: "link to " + target + " leaves the manifests directory", Hint: "put a copy of the file there"}
			}
			return nil
		}
		return &Error{Place: Place{File: path}, Text: "is neither a file, a directory nor a link", Hint: "remove it"}
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

// leaves reports whether a link at path (relative to the tree) points out of it.
func leaves(path, target string) bool {
	if filepath.IsAbs(target) {
		return true
	}
	return !filepath.IsLocal(filepath.Join(filepath.Dir(path), target))
}

// readManifest reads one file of the tree, of at most maxManifest bytes. It follows
// links that stay inside.
func readManifest(dir, rel string) ([]byte, error) {
	b, err := func() ([]byte, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		info, err := root.Stat(rel)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxManifest {
			return nil, fmt.Errorf("%d bytes are more than a manifest may have", info.Size())
		}
		return root.ReadFile(rel)
	}()
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, &Error{Place: Place{File: rel}, Text: err.Error()}
	}
	return b, nil
}

// relative gives path's name inside dir, and false if it is not inside.
func relative(dir, path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// realDir returns dir as an absolute path without links. Compose resolves some
// names against the one and some against the other.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("manifests directory: %w", err)
	}
	return abs, nil
}
