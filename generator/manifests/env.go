package manifests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/submodules/compose/programenv"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// deviceOwn are variables that each device sets itself. Those of the build host
// are not shipped.
var deviceOwn = []string{"HOME", "LANG", "PATH", "PWD", "USER"}

// personOwn are those of them that say where a person works. Those of the build host count
// nowhere: a device has none.
var personOwn = []string{"HOME", "PWD"}

// environment collects the variables for interpolation: from Environ, then from
// the env files.
func (c *composer) environment() error {
	c.env = map[string]string{}
	for _, kv := range c.opts.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" && !slices.Contains(personOwn, k) {
			c.env[k] = v
		}
	}
	files := c.opts.EnvFiles
	if len(files) == 0 {
		if _, err := os.Stat(filepath.Join(c.dir, ".env")); err == nil {
			files = []string{filepath.Join(c.dir, ".env")}
		}
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil {
			return fmt.Errorf("env file: %w", err)
		} else if info.IsDir() {
			return fmt.Errorf("env file %s is a directory", f)
		}
		text, err := rules.ReadFile(f)
		if err != nil {
			return fmt.Errorf("env file: %w", err)
		}
		if err := new(rules.Interpolation).Add(string(text)); err != nil {
			return &Error{Place: Place{File: c.short(f)}, Text: err.Error()}
		}
	}
	values, err := dotenv.GetEnvFromFile(c.env, files)
	if err != nil {
		return &Error{Place: Place{File: c.short(strings.Join(files, ", "))}, Text: c.short(err.Error())}
	}
	for k, v := range values {
		if _, ok := c.env[k]; !ok {
			c.env[k] = v
		}
	}
	return c.findPersonal(files)
}

// findPersonal notes the variables of env files whose values need a variable of a person
// that is not set.
func (c *composer) findPersonal(files []string) error {
	c.personal = map[string]Place{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("env file: %w", err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
			if !ok || strings.HasPrefix(name, "#") || strings.HasPrefix(strings.TrimSpace(value), "'") {
				continue
			}
			for _, m := range plainVariable.FindAllStringSubmatch(value, -1) {
				if v := m[1] + m[2]; slices.Contains(personOwn, v) && c.env[v] == "" {
					c.personal[strings.TrimSpace(name)] = Place{File: c.short(f), Line: i + 1}
				}
			}
		}
	}
	return nil
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
	shipped, err := dotenv.GetEnvFromFile(map[string]string{}, []string{filepath.Join(c.dir, ".env")})
	if err != nil {
		shipped = nil // there is none
	}
	all := maps.Clone(c.used)
	maps.Copy(all, shipped)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		program := programenv.Reader(name)
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
	device, err := dotenv.GetEnvFromFile(map[string]string{}, []string{filepath.Join(c.dir, ".env")})
	if err != nil {
		device = nil
	}
	var list []Variable
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		if slices.Contains(deviceOwn, name) || name == "COMPOSE_PROJECT_NAME" || programenv.Reader(name) != "" {
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
	if _, err := dotenv.UnmarshalBytesWithLookup(b, dotenv.LookupFn(lookup)); err != nil {
		return &Error{Place: Place{File: rel}, Text: c.short(err.Error())}
	}
	return nil
}
