package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// OutsideKinds are the ways in which Compose files name other files that
// Compose reads, as ALLOW_OUTSIDE has them.
var OutsideKinds = []string{"include", "extends", "env-file", "label-file", "config", "secret"}

// fileCheck looks for files outside the manifests that Compose would read: it
// runs as root, so an application could read those of another one.
type fileCheck struct {
	dir     string // the manifests
	real    string // dir without links
	allowed []string
}

// CheckFiles refuses the files of the project in dir if they name files outside the
// manifests, or remote ones, or if their variables take too long to fill in, and so do the
// layers of overrides. lookup returns the
// variables of the files. Configs and secrets are in the model; see Model.Check.
func CheckFiles(dir string, files, layers []string, set Settings, lookup func(string) (string, bool)) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	c := fileCheck{dir: dir, real: real, allowed: set.Outside}
	w := Walk{Dir: dir, Lookup: lookup, Check: c.inside, Read: ReadFile}
	for _, f := range files {
		if err := c.inside(Reference{Kind: "include", Name: f, Base: dir}); err != nil {
			return err
		}
	}
	if err := w.Files(files); err != nil {
		return err
	}
	for _, f := range layers {
		if err := w.Files([]string{f}); err != nil {
			return fmt.Errorf("override %s: %w", filepath.Base(f), err)
		}
	}
	return nil
}

// inside refuses a path outside the manifests, unless its kind is allowed, and
// every remote one.
func (c *fileCheck) inside(r Reference) error {
	if r.Remote() {
		return refused("%s names %s: nothing is fetched from elsewhere on the device", r.Kind, r.Name)
	}
	if slices.Contains(c.allowed, r.Kind) {
		return nil
	}
	if r.Adrift && climbs(r.Name) {
		return refused("%s names %s in a file that is included itself, and Docker Compose looks for it in different places: name it without .., or in the project's own file", r.Kind, r.Name)
	}
	at := r.Path()
	switch real, err := filepath.EvalSymlinks(at); {
	case err == nil:
		at = real
	case !errors.Is(err, os.ErrNotExist):
		return err
	case c.local(c.dir, at):
		return nil
	}
	if c.local(c.real, at) {
		return nil
	}
	return refused("%s names %s, outside the manifests: refused unless ALLOW_OUTSIDE in %s has %s", r.Kind, r.Name, ConfName, r.Kind)
}

// climbs reports whether a relative name has a part that leads up.
func climbs(name string) bool {
	return !filepath.IsAbs(name) && slices.Contains(strings.Split(filepath.ToSlash(name), "/"), "..")
}

func (c *fileCheck) local(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
