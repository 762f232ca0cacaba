package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/moby/patternmatcher"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/generator/write"
)

// ProjectFile is the Compose file of a project whose own files lie in a subdirectory.
const ProjectFile = "mender-app.compose.yaml"

// Lift is what a project whose first Compose file lies in a subdirectory needs at the top of
// the directory that is shipped. Compose takes that subdirectory for the project's: paths
// start there, and its .env counts. A device has the project at the top, where ProjectFile
// includes the files: it does not matter which device, or which of its releases.
type Lift struct {
	Project string // the text of ProjectFile
	Env     string // that of .env; "" for none
}

// LiftOf returns nil for a project whose first file is at the top of dir, or that has none.
func LiftOf(dir string, o ComposeOptions) (*Lift, error) {
	dir, err := realDir(dir)
	if err != nil {
		return nil, err
	}
	c := newComposer(dir, o)
	if err := c.environment(); err != nil {
		return nil, err
	}
	names := c.named()
	if len(names) == 0 {
		return nil, nil
	}
	for i, name := range names {
		rel, ok := relative(dir, name)
		if !ok {
			return nil, nil // files refuses it
		}
		names[i] = rel
	}
	sub := path.Dir(names[0])
	if sub == "." {
		return nil, nil
	}
	if _, err := os.Lstat(filepath.Join(dir, ProjectFile)); !errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Place: Place{File: ProjectFile}, Text: "app-gen writes a file of this name for projects in a subdirectory", Hint: "give it another name"}
	}
	l := &Lift{}
	if len(o.EnvFiles) == 0 {
		if l.Env, err = readEnv(dir, path.Join(sub, ".env")); err != nil {
			return nil, err
		}
		if len(o.Files) == 0 { // COMPOSE_FILE: Compose has read the .env at the top, and that counts more
			top, err := readEnv(dir, ".env")
			if err != nil {
				return nil, err
			}
			l.Env = strings.TrimLeft(l.Env+"\n"+top, "\n")
		}
	}
	text := map[string]any{"include": []any{map[string]any{"path": escaped(names)}}}
	if name := c.projectName(names); name != "" {
		text["name"] = name
	}
	b, err := json.MarshalIndent(text, "", "  ") // JSON is YAML
	if err != nil {
		return nil, err
	}
	l.Project = string(b) + "\n"
	return l, nil
}

// Write writes the files into a copy of the directory.
func (l *Lift) Write(dir string) error {
	if err := writeMode(filepath.Join(dir, ProjectFile), []byte(l.Project), 0o644); err != nil {
		return err
	}
	env := filepath.Join(dir, ".env")
	if err := os.Remove(env); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &write.Error{Err: err}
	}
	if l.Env == "" {
		return nil
	}
	return writeMode(env, []byte(l.Env), 0o644)
}

// readEnv reads an env file, "" if there is none.
func readEnv(dir, name string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	b, err := readManifest(dir, name)
	if err != nil {
		return "", err
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	return string(b), nil
}

// escaped are texts in which Compose finds no variables.
func escaped(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.ReplaceAll(s, "$", "$$"))
	}
	return out
}

// projectName is the name that files give their project. An include does not pass it on.
func (c *composer) projectName(files []string) (name string) {
	for _, f := range files {
		b, err := readManifest(c.dir, f)
		if err != nil {
			continue // the loader reports it
		}
		var project struct {
			Name string `yaml:"name"`
		}
		if yaml.Unmarshal(b, &project) == nil && project.Name != "" {
			name = project.Name // with its variables, which are the same at the top
		}
	}
	if _, err := template.Substitute(name, func(string) (string, bool) { return "", false }); err != nil {
		return ""
	}
	return name
}

// Without ignores everything of these names at the top of a directory.
func Without(names ...string) (*Ignore, error) {
	m, err := patternmatcher.New(names)
	if err != nil {
		return nil, fmt.Errorf("ignore %v: %w", names, err)
	}
	return &Ignore{matcher: m}, nil
}
