package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// deviceOwn are variables that each device sets itself. Those of the build host
// are not shipped.
var deviceOwn = []string{"HOME", "LANG", "PATH", "PWD", "USER"}

// PersonOwn are those of them that say where a person works. Those of the build host count
// nowhere: a device has none.
var PersonOwn = []string{"HOME", "PWD"}

// environment collects the variables for interpolation: from Environ, then from
// the env files.
func (c *composer) environment() error {
	c.env = map[string]string{}
	for _, kv := range c.opts.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" && !slices.Contains(PersonOwn, k) {
			c.env[k] = v
		}
	}
	files, err := c.envFiles()
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, f := range files {
		if err := new(rules.Interpolation).Add(f.text); err != nil {
			return &Error{Place: Place{File: f.name}, Text: err.Error()}
		}
		read, err := dotenv.ParseWithLookup(strings.NewReader(f.text), func(name string) (string, bool) {
			if v, ok := c.env[name]; ok {
				return v, true
			}
			v, ok := values[name]
			return v, ok
		})
		if err != nil {
			return &Error{Place: Place{File: f.name}, Text: err.Error()}
		}
		maps.Copy(values, read)
	}
	for k, v := range values {
		if _, ok := c.env[k]; !ok {
			c.env[k] = v
		}
	}
	c.findPersonal(files)
	c.ownPWD = c.env["PWD"] != ""
	c.env["PWD"] = rules.Here(c.env)
	return nil
}

// envText is an env file.
type envText struct{ name, text string }

// envFiles reads the env files: those that options name, which may lie anywhere, or the .env
// of the directory.
func (c *composer) envFiles() (files []envText, err error) {
	for _, name := range c.opts.EnvFiles {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return nil, fmt.Errorf("env file %s is a directory", name)
		}
		text, err := rules.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("env file: %w", err)
		}
		files = append(files, envText{c.short(name), string(text)})
	}
	if len(files) > 0 {
		return files, nil
	}
	text, err := readManifest(c.dir, ".env")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return []envText{{".env", string(text)}}, err
}

// ownVariables are those of the .env that is shipped; none if there is none.
func (c *composer) ownVariables() map[string]string {
	text, err := readManifest(c.dir, ".env")
	if err != nil {
		return nil
	}
	read, err := dotenv.ParseWithLookup(bytes.NewReader(text), func(string) (string, bool) { return "", false })
	if err != nil {
		return nil
	}
	return read
}

// findPersonal notes the variables of env files whose values need a variable of a person
// that is not set.
func (c *composer) findPersonal(files []envText) {
	c.personal = map[string]Place{}
	for _, f := range files {
		for i, line := range strings.Split(f.text, "\n") {
			name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
			if !ok || strings.HasPrefix(name, "#") || strings.HasPrefix(strings.TrimSpace(value), "'") {
				continue
			}
			for _, m := range plainVariable.FindAllStringSubmatch(value, -1) {
				if v := m[1] + m[2]; slices.Contains(PersonOwn, v) && c.env[v] == "" {
					c.personal[strings.TrimSpace(name)] = Place{File: f.name, Line: i + 1}
				}
			}
		}
	}
}

// recording records which variables are looked up and found.
func (c *composer) recording(lookup template.Mapping) template.Mapping {
	return func(name string) (string, bool) {
		v, ok := lookup(name)
		if ok {
			c.used[name] = v
		}
		return v, ok
	}
}

// warnPrograms says which variables a device does not take from the .env that is shipped.
func (c *composer) warnPrograms() {
	shipped := c.ownVariables()
	all := maps.Clone(c.used)
	maps.Copy(all, shipped)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		program := rules.VariableReader(name)
		if program == "" {
			continue
		}
		if _, used := c.used[name]; used {
			c.warn(Place{File: ".env"}, "%s is empty on the device, because %s reads it: give the variable another name", name, program)
		} else {
			c.note(Place{File: ".env"}, "%s has no effect on the device: it would set how %s works there", name, program)
		}
	}
}

// ship lists the variables whose values the device would not find in the .env
// it gets.
func (c *composer) ship() []Variable {
	device := c.ownVariables()
	var list []Variable
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		if slices.Contains(deviceOwn, name) && !slices.Contains(PersonOwn, name) || name == "PWD" && c.used[name] == rules.Here(device) || name == "COMPOSE_PROJECT_NAME" || rules.VariableReader(name) != "" {
			continue
		}
		if v, ok := device[name]; !ok || v != c.used[name] {
			list = append(list, Variable{name, c.used[name]})
		}
	}
	return list
}

func (c *composer) envFile(who string, f types.EnvFile, at Place) error {
	if err := c.fileOr(who+": env_file", f.Path, at, "env-file", bool(f.Required)); err != nil {
		return err
	}
	rel, ok := relative(c.dir, f.Path)
	if !ok {
		return nil
	}
	b, err := readManifest(c.dir, rel)
	if err != nil {
		if !bool(f.Required) {
			return nil
		}
		return err
	}
	if f.Format != "" {
		return nil
	}
	if err := new(rules.Interpolation).Add(string(b)); err != nil {
		return &Error{Place: Place{File: rel}, Text: err.Error()}
	}
	lookup := c.recording(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
	if _, err := dotenv.ParseWithLookup(bytes.NewReader(b), dotenv.LookupFn(lookup)); err != nil {
		return &Error{Place: Place{File: rel}, Text: c.short(err.Error())}
	}
	return nil
}
