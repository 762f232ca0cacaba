package rules

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/artifact/clip"
)

// maxFiles bounds the Compose files of a project, with those they include.
const maxFiles = 200

// Reference is a file or directory that a Compose file names and Compose itself reads.
type Reference struct {
	Kind string // of OutsideKinds
	Name string // with its variables filled in
	Base string // the directory where a relative name starts
	// Loads says that what is read there counts for how the project is read: Compose files,
	// and the variables of an include.
	Loads bool
	// Directory says that it is the project directory of an include.
	Directory bool
	// Adrift says that Compose does not always start at Base: it takes a relative env_file or
	// project_directory of an include in an included file from the directory in which it was
	// started (compose-go 2.16, loader/include.go).
	Adrift bool
}

// Path is the name, joined with Base unless it is absolute.
func (r Reference) Path() string {
	if filepath.IsAbs(r.Name) {
		return filepath.Clean(r.Name)
	}
	return filepath.Join(r.Base, r.Name)
}

// Remote reports whether Compose would fetch the file from elsewhere.
func (r Reference) Remote() bool { return isRemote(r.Name) }

// Walk follows the Compose files of a project as Compose does, before Compose reads them:
// include and extends, with the variables that env files of an include add for what it
// includes. It bounds how many files there are and how long their variables take to fill in.
type Walk struct {
	Dir    string                           // of the project; "." for names that are relative to it
	Lookup func(name string) (string, bool) // the project's variables
	// Check is asked about each reference before it is followed. An error ends the walk.
	Check func(Reference) error
	// Read reads a file by its path below Dir. What does not exist is left to Compose, which
	// says so better.
	Read func(path string) ([]byte, error)
	// Broken is told of a file that is not YAML, and returns what to do about it; nil: it is
	// refused.
	Broken func(file string, err error) error
	// Includes is told of the files that an entry of include in a file names; may be nil.
	Includes func(file string, includes []string)

	seen map[string]bool
	work Interpolation
}

// Files walks the project's own files. It may be called again for more of them.
func (w *Walk) Files(files []string) error {
	for _, f := range files {
		if err := w.file(f, scope{base: w.Dir, lookup: w.Lookup}); err != nil {
			return err
		}
	}
	return nil
}

// scope is where a Compose file stands.
type scope struct {
	base      string // where relative paths start
	lookup    func(string) (string, bool)
	variables string // says which lookup it is
	included  bool
}

func (w *Walk) file(name string, in scope) error {
	key := name + "\x00" + in.base + "\x00" + in.variables
	if w.seen[key] {
		return nil
	}
	if len(w.seen) == maxFiles {
		return refused("the compose files in %s are more than %d", w.Dir, maxFiles)
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[key] = true
	text, err := w.Read(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc map[string]any
		if err := dec.Decode(&doc); err == io.EOF {
			return nil
		} else if err != nil && w.Broken != nil {
			return w.Broken(name, err)
		} else if err != nil {
			return refused("%s: %s", name, clip.YAML(err))
		}
		if err := w.work.texts(doc); err != nil {
			return refused("%s: %w", name, err)
		}
		if err := w.document(name, doc, in); err != nil {
			return err
		}
	}
}

func (w *Walk) document(name string, doc map[string]any, in scope) error {
	for _, inc := range list(doc["include"]) {
		if err := w.include(name, inc, in); err != nil {
			return err
		}
	}
	for _, kind := range []string{"services", "jobs"} {
		services, _ := doc[kind].(map[string]any)
		for _, svc := range services {
			s, _ := svc.(map[string]any)
			if err := w.service(s, in); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Walk) service(s map[string]any, in scope) error {
	for _, c := range append(list(s["pre_start"]), s) { // a hook is a container of its own
		container, _ := c.(map[string]any)
		for field, kind := range map[string]string{"env_file": "env-file", "label_file": "label-file"} {
			if _, err := w.paths(Reference{Kind: kind}, container[field], in); err != nil {
				return err
			}
		}
		ext, _ := container["extends"].(map[string]any)
		files, err := w.paths(Reference{Kind: "extends", Loads: true}, ext["file"], in)
		if err != nil {
			return err
		}
		for _, f := range files {
			of := in
			of.base, of.included = filepath.Dir(f), false // Compose does not follow its include
			if err := w.file(f, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// include follows an entry of include: a path, or a map of them.
func (w *Walk) include(from string, entry any, in scope) error {
	m, ok := entry.(map[string]any)
	if !ok {
		m = map[string]any{"path": entry}
	}
	files, err := w.paths(Reference{Kind: "include", Loads: true}, m["path"], in)
	if err != nil || len(files) == 0 {
		return err
	}
	env, err := w.paths(Reference{Kind: "env-file", Loads: true, Adrift: in.included}, m["env_file"], in)
	if err != nil {
		return err
	}
	dirs, err := w.paths(Reference{Kind: "include", Loads: true, Directory: true, Adrift: in.included}, m["project_directory"], in)
	if err != nil {
		return err
	}
	of := scope{base: filepath.Dir(files[0]), included: true}
	if len(dirs) > 0 {
		of.base = dirs[0]
	}
	if m["env_file"] == nil {
		if env, err = w.paths(Reference{Kind: "include", Loads: true}, ".env", scope{base: of.base}); err != nil {
			return err
		}
	}
	if of.lookup, of.variables, err = w.variables(env, in); err != nil {
		return err
	}
	if w.Includes != nil {
		w.Includes(from, files)
	}
	for _, f := range files {
		if err := w.file(f, of); err != nil {
			return err
		}
	}
	return nil
}

// variables are those of a scope with those of env files: what is set already stays.
func (w *Walk) variables(files []string, in scope) (func(string) (string, bool), string, error) {
	more := map[string]string{}
	for _, f := range files {
		if f == os.DevNull { // as Compose has it for no file
			continue
		}
		text, err := w.Read(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if err := w.work.Add(string(text)); err != nil {
			return nil, "", refused("%s: %w", f, err)
		}
		read, err := dotenv.ParseWithLookup(bytes.NewReader(text), over(in.lookup, more))
		if err != nil {
			return nil, "", refused("%s: %w", f, err)
		}
		maps.Copy(more, read)
	}
	if len(more) == 0 {
		return in.lookup, in.variables, nil
	}
	sum := sha256.Sum256(fmt.Append(nil, in.variables, more))
	return over(in.lookup, more), string(sum[:]), nil
}

// over looks a variable up, and then in more.
func over(lookup func(string) (string, bool), more map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if v, ok := lookup(name); ok {
			return v, true
		}
		v, ok := more[name]
		return v, ok
	}
}

// paths checks a path, a list of them, or maps with the key path, and returns
// them joined with where they start.
func (w *Walk) paths(ref Reference, value any, in scope) (all []string, err error) {
	for _, v := range list(value) {
		if m, ok := v.(map[string]any); ok {
			v = m["path"]
		}
		text, ok := v.(string)
		if !ok {
			return nil, refused("%s: %v is not a path", ref.Kind, v)
		}
		name, err := template.Substitute(text, in.lookup)
		if err != nil {
			return nil, refused("%s %s: %w", ref.Kind, text, err)
		}
		r := ref
		r.Name, r.Base = name, in.base
		if err := w.Check(r); err != nil {
			return nil, err
		}
		all = append(all, r.Path())
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
