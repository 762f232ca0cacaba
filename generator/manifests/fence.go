package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/generator/write"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// This file keeps compose-go inside of the manifests directory. A project may come from
// anybody, and what it reads here ends up in image names, which registries see, and in the
// artifact. So the files are read once, through a descriptor of the directory that no link
// leads out of, and compose-go gets a copy of them and nothing else.

var errOutside = errors.New("is outside the manifests directory, so it is not shipped")

// walk reads the files that Compose reads to know the project, and notes them. names are
// relative to c.dir.
func (c *composer) walk(names []string) error {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	w := rules.Walk{Dir: ".", Lookup: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }, Check: c.inside}
	w.Read = func(name string) ([]byte, error) {
		b, err := readIn(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		if err == nil {
			c.texts[name] = b
		}
		return b, err
	}
	w.Broken = func(string, error) error { return nil } // compose-go says it with file and line
	w.Includes = func(file string, includes []string) {
		c.includes[file] = append(c.includes[file], includes...)
	}
	for _, name := range names {
		c.source(name)
	}
	return w.Files(names)
}

func (c *composer) source(name string) {
	c.needs[name] = true
	if !slices.Contains(c.sources, name) {
		c.sources = append(c.sources, name)
	}
}

// inside refuses what compose-go would read elsewhere.
func (c *composer) inside(r rules.Reference) error {
	if !r.Loads {
		return nil // service says what is wrong with it, in its words
	}
	if r.Kind == "env-file" && r.Name == os.DevNull {
		return nil
	}
	at := filepath.ToSlash(r.Path())
	switch {
	case r.Remote(), !filepath.IsLocal(at) && !inDirectory(c.dir, at):
		return fmt.Errorf("%s %w", r.Name, errOutside)
	case filepath.IsAbs(at):
		return &Error{Place: newIndex(c.dir, c.sources).mentionsText(r.Name), Text: fmt.Sprintf("%s is absolute, and a device has it elsewhere", r.Name), Hint: "name it relative to the file that names it"}
	case r.Adrift:
		return &Error{Place: newIndex(c.dir, c.sources).mentionsText(r.Name), Text: fmt.Sprintf("%s: Compose looks for the env_file and the project_directory of an include in different places when the file is included itself", r.Name),
			Hint: "leave it out there, or include the file from the project's own file"}
	case r.Directory:
		c.dirs = append(c.dirs, at)
	case r.Kind == "env-file":
		c.need(at)
	default:
		c.source(at)
	}
	return nil
}

func inDirectory(dir, name string) bool {
	_, in := relative(dir, name)
	return filepath.IsAbs(name) && in
}

// mirror is a copy of the files that compose-go may read.
type mirror struct{ temp, dir string }

// mirror writes the files that were read. The caller removes it. Its directory has the name of
// c.dir, which is the name of the project unless its files say another.
func (c *composer) mirror() (m mirror, err error) {
	if m.temp, err = scratch.Dir("", scratch.HostPrefix); err != nil {
		return m, &write.Error{Err: err}
	}
	m.dir = filepath.Join(m.temp, filepath.Base(c.dir))
	dirs := append(slices.Clone(c.dirs), ".")
	for name := range c.texts {
		dirs = append(dirs, filepath.Dir(name))
	}
	for _, dir := range dirs {
		if err == nil {
			err = os.MkdirAll(filepath.Join(m.dir, dir), 0o700)
		}
	}
	for name, text := range c.texts {
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, name), text, 0o600)
		}
	}
	if err != nil {
		m.remove()
		return m, &write.Error{Err: err}
	}
	return m, nil
}

// remove leaves what cannot be removed to the next run.
func (m mirror) remove() { _ = scratch.Remove(m.temp) }

// named is an error of compose-go, with the names that the files have in the directory.
func (m mirror) named(err error) error {
	text := strings.NewReplacer(m.dir+string(filepath.Separator), "", m.dir, ".").Replace(err.Error())
	return &renamed{text: text, err: err}
}

type renamed struct {
	text string
	err  error
}

func (r *renamed) Error() string { return r.text }
func (r *renamed) Unwrap() error { return r.err }

// fence is asked before compose-go's own loader of included and extended files. It
// accepts every file that would not be shipped, and fails to load it: walk has refused them,
// and this says so again of what walk did not see.
type fence struct{ dir string }

func (f fence) Accept(path string) bool {
	if strings.Contains(path, "://") || strings.HasPrefix(path, "git@") {
		return true
	}
	_, ok := relative(f.dir, path)
	return !ok && filepath.IsAbs(path)
}

func (f fence) Load(_ context.Context, path string) (string, error) {
	return "", fmt.Errorf("%s %w", path, errOutside)
}

func (f fence) Dir(path string) string { return filepath.Dir(path) }
