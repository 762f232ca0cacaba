package render

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Bounds on what one rendering reads, in bytes. A base that several others use counts each
// time, so that kustomizations that refer to each other cannot grow for ever.
const (
	maxFile = 16 << 20
	maxRead = 256 << 20
)

var (
	errLeaves   = errors.New("leaves the manifests directory")
	errReadOnly = errors.New("nothing is written while manifests are rendered")
)

// confined is the file system that kustomize sees: the manifests directory, to read. The
// directory has the path at.
type confined struct {
	root *os.Root
	real string // the directory without links
	at   string
	read int64
	// see is given what is read, and its answer is read in its place.
	see func(name string, text []byte) ([]byte, error)
}

// name is a path's name in the directory.
func (c *confined) name(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.at, path)
	}
	rel, err := filepath.Rel(c.at, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%s: %w", path, errLeaves)
	}
	return rel, nil
}

func (c *confined) stat(path string) (fs.FileInfo, error) {
	name, err := c.name(path)
	if err != nil {
		return nil, err
	}
	return c.root.Stat(name)
}

func (c *confined) IsDir(path string) bool {
	info, err := c.stat(path)
	return err == nil && info.IsDir()
}

func (c *confined) Exists(path string) bool {
	_, err := c.stat(path)
	return err == nil
}

// CleanedAbs resolves links, as kustomize needs it to find cycles.
func (c *confined) CleanedAbs(path string) (filesys.ConfirmedDir, string, error) {
	info, err := c.stat(path)
	if err != nil {
		return "", "", err
	}
	name, err := c.name(path)
	if err != nil {
		return "", "", err
	}
	target, err := filepath.EvalSymlinks(filepath.Join(c.real, name))
	if err != nil {
		return "", "", err
	}
	rel, err := filepath.Rel(c.real, target)
	if err != nil || !filepath.IsLocal(rel) {
		return "", "", fmt.Errorf("%s: %w", path, errLeaves)
	}
	target = filepath.Join(c.at, rel)
	if info.IsDir() {
		return filesys.ConfirmedDir(target), "", nil
	}
	return filesys.ConfirmedDir(filepath.Dir(target)), filepath.Base(target), nil
}

func (c *confined) ReadDir(path string) ([]string, error) {
	name, err := c.name(path)
	if err != nil {
		return nil, err
	}
	f, err := c.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}

func (c *confined) ReadFile(path string) ([]byte, error) {
	name, err := c.name(path)
	if err != nil {
		return nil, err
	}
	info, err := c.root.Stat(name)
	if err != nil {
		return nil, err
	}
	switch c.read += info.Size(); {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", name)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: %d bytes are more than a manifest may have", name, info.Size())
	case c.read > maxRead:
		return nil, fmt.Errorf("more than %d MiB are read, files that are used several times counted each time", maxRead>>20)
	}
	text, err := c.root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return c.see(filepath.ToSlash(name), text)
}

func (c *confined) Glob(pattern string) ([]string, error) {
	rel, err := c.name(pattern)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(c.root.FS(), filepath.ToSlash(rel))
	for i, n := range names {
		names[i] = filepath.Join(c.at, n)
	}
	return names, err
}

func (c *confined) Walk(path string, walk filepath.WalkFunc) error {
	name, err := c.name(path)
	if err != nil {
		return err
	}
	return fs.WalkDir(c.root.FS(), filepath.ToSlash(name), func(p string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		return walk(filepath.Join(c.at, p), info, err)
	})
}

func (c *confined) Open(string) (filesys.File, error)   { return nil, errReadOnly }
func (c *confined) Create(string) (filesys.File, error) { return nil, errReadOnly }
func (c *confined) Mkdir(string) error                  { return errReadOnly }
func (c *confined) MkdirAll(string) error               { return errReadOnly }
func (c *confined) RemoveAll(string) error              { return errReadOnly }
func (c *confined) WriteFile(string, []byte) error      { return errReadOnly }
