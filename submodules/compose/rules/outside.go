package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/compose-spec/compose-go/v2/template"
	"gopkg.in/yaml.v3"
)

// OutsideKinds are the ways in which Compose files name other files that
// Compose reads, as ALLOW_OUTSIDE has them.
var OutsideKinds = []string{"include", "extends", "env-file", "label-file", "config", "secret"}

// maxFiles bounds the Compose files of a project, with those they include.
const maxFiles = 200

// fileCheck looks for files outside the manifests that Compose would read: it
// runs as root, so an application could read those of another one.
type fileCheck struct {
	dir     string // the manifests
	real    string // dir without links
	allowed []string
	lookup  func(string) (string, bool) // of variables, as Compose does it
	seen    map[string]bool
	work    Interpolation
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
	c := fileCheck{dir: dir, real: real, allowed: set.Outside, seen: map[string]bool{}, lookup: lookup}
	for _, f := range files {
		if err := c.inside("include", f, dir); err != nil {
			return err
		}
		if err := c.file(f, dir); err != nil {
			return err
		}
	}
	for _, f := range layers {
		if err := c.file(f, dir); err != nil {
			return fmt.Errorf("override %s: %w", filepath.Base(f), err)
		}
	}
	return nil
}

// inside refuses a path outside the manifests, unless its kind is allowed, and
// every remote one. A relative path starts at base.
func (c *fileCheck) inside(kind, name, base string) error {
	if isRemote(name) {
		return refused("%s names %s: nothing is fetched from elsewhere on the device", kind, name)
	}
	if slices.Contains(c.allowed, kind) {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(base, name)
	}
	at := filepath.Clean(name)
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
	return refused("%s names %s, outside the manifests: refused unless ALLOW_OUTSIDE in %s has %s", kind, name, ConfName, kind)
}

func (c *fileCheck) local(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}

// file checks a Compose file and those it includes or extends. Relative paths
// in it start at base.
func (c *fileCheck) file(name, base string) error {
	key := name + "\x00" + base
	if c.seen[key] {
		return nil
	}
	if len(c.seen) == maxFiles {
		return refused("the compose files in %s are more than %d", c.dir, maxFiles)
	}
	c.seen[key] = true
	text, err := ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // Compose says so better
	}
	if err != nil {
		return err
	}
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc map[string]any
		if err := dec.Decode(&doc); err == io.EOF {
			return nil
		} else if err != nil {
			return refused("%s: %w", name, err)
		}
		if err := c.work.texts(doc); err != nil {
			return refused("%s: %w", name, err)
		}
		if err := c.document(doc, base); err != nil {
			return err
		}
	}
}

func (c *fileCheck) document(doc map[string]any, base string) error {
	for _, inc := range list(doc["include"]) {
		if err := c.include(inc, base); err != nil {
			return err
		}
	}
	services, _ := doc["services"].(map[string]any)
	for _, svc := range services {
		s, _ := svc.(map[string]any)
		for field, kind := range map[string]string{"env_file": "env-file", "label_file": "label-file"} {
			if _, err := c.paths(kind, s[field], base); err != nil {
				return err
			}
		}
		ext, _ := s["extends"].(map[string]any)
		files, err := c.paths("extends", ext["file"], base)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := c.file(f, filepath.Dir(f)); err != nil {
				return err
			}
		}
	}
	return nil
}

// include checks an entry of include: a path, or a map of them.
func (c *fileCheck) include(entry any, base string) error {
	m, ok := entry.(map[string]any)
	if !ok {
		m = map[string]any{"path": entry}
	}
	files, err := c.paths("include", m["path"], base)
	if err != nil {
		return err
	}
	if _, err := c.paths("env-file", m["env_file"], base); err != nil {
		return err
	}
	dirs, err := c.paths("include", m["project_directory"], base)
	if err != nil {
		return err
	}
	for _, f := range files {
		from := filepath.Dir(files[0])
		if len(dirs) > 0 {
			from = dirs[0]
		}
		if err := c.file(f, from); err != nil {
			return err
		}
	}
	return nil
}

// paths checks a path, a list of them, or maps with the key path, and returns
// them absolute.
func (c *fileCheck) paths(kind string, value any, base string) (all []string, err error) {
	for _, v := range list(value) {
		if m, ok := v.(map[string]any); ok {
			v = m["path"]
		}
		text, ok := v.(string)
		if !ok {
			return nil, refused("%s: %v is not a path", kind, v)
		}
		name, err := template.Substitute(text, c.lookup)
		if err != nil {
			return nil, refused("%s %s: %w", kind, text, err)
		}
		if err := c.inside(kind, name, base); err != nil {
			return nil, err
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(base, name)
		}
		all = append(all, name)
	}
	return all, nil
}

// list returns a value as a list: none, one, or several.
func list(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}
