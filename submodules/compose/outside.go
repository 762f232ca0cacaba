package compose

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/template"
	"gopkg.in/yaml.v3"
)

// outsideKinds are the ways in which Compose files name other files that
// Compose reads, as ALLOW_OUTSIDE has them.
var outsideKinds = []string{"include", "extends", "env-file", "label-file", "config", "secret"}

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
}

// checkFiles refuses the project's files if they name files outside the
// manifests, or remote ones, and so do the layers of overrides. Configs and secrets are
// in the model; see checkModel.
func (p *project) checkFiles(set settings, env, shipped map[string]string, layers []string) error {
	real, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		return err
	}
	c := fileCheck{dir: p.dir, real: real, allowed: set.outside, seen: map[string]bool{}, lookup: func(name string) (string, bool) {
		if v, ok := env[name]; ok {
			return v, true
		}
		v, ok := shipped[name]
		return v, ok
	}}
	for _, f := range p.files {
		if err := c.inside("include", f, p.dir); err != nil {
			return err
		}
		if err := c.file(f, p.dir); err != nil {
			return err
		}
	}
	for _, f := range layers {
		if err := c.file(f, p.dir); err != nil {
			return fmt.Errorf("override %s: %w", filepath.Base(f), err)
		}
	}
	return nil
}

// inside refuses a path outside the manifests, unless its kind is allowed, and
// every remote one. A relative path starts at base.
func (c *fileCheck) inside(kind, name, base string) error {
	if isRemote(name) {
		return invalid("%s names %s: nothing is fetched from elsewhere on the device", kind, name)
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
	return invalid("%s names %s, outside the manifests: refused unless ALLOW_OUTSIDE in %s has %s", kind, name, confName, kind)
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
		return invalid("the compose files in %s are more than %d", c.dir, maxFiles)
	}
	c.seen[key] = true
	text, err := readComposeFile(name)
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
			return invalid("%s: %w", name, err)
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
			return nil, invalid("%s: %v is not a path", kind, v)
		}
		name, err := template.Substitute(text, c.lookup)
		if err != nil {
			return nil, invalid("%s %s: %w", kind, text, err)
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

// checkModel refuses configs and secrets from outside the manifests, and what the
// operator forbids.
func (p *project) checkModel(set settings) error {
	real, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		return err
	}
	c := fileCheck{dir: p.dir, real: real, allowed: set.outside}
	for kind, objects := range map[string]map[string]fileObject{"config": p.model.Configs, "secret": p.model.Secrets} {
		for _, o := range objects {
			if o.File == "" {
				continue
			}
			if err := c.inside(kind, o.File, p.dir); err != nil {
				return err
			}
		}
	}
	if !slices.ContainsFunc(p.model.names(), func(name string) bool { return p.model.Services[name].replicas() > 0 }) {
		return invalid("no service has a container: each has replicas: 0 or scale: 0; switch services off with services.disabled in a policy, or give one a container")
	}
	for _, name := range p.model.names() {
		for _, v := range p.model.Services[name].Volumes {
			rel, err := filepath.Rel(p.dir, v.text("source"))
			if v.text("type") == "bind" && err == nil && strings.HasPrefix(rel, "~") {
				return invalid("service %s mounts %s, and an application on a device has no home directory: name a directory beside the Compose file, such as ./data, a volume, or an absolute path", name, rel)
			}
		}
		if provider := p.model.Services[name].Provider; len(provider) > 0 && string(provider) != "null" {
			return invalid("service %s has a provider: Compose would run a program on the device itself, as root and outside of any container; use a service with an image, or a hook", name)
		}
		for _, r := range p.model.reach(name) {
			if slices.Contains(set.refuse, r) {
				return invalid("service %s has %s, and REFUSE in %s refuses that", name, r, confName)
			}
		}
	}
	return nil
}

// reachKinds are what REFUSE may list.
var reachKinds = []string{"privileged", "host-pid", "host-network", "mount-root"}

// reach lists those of reachKinds that a service has.
func (m model) reach(name string) (kinds []string) {
	s := m.Services[name]
	if s.Privileged || slices.ContainsFunc(append(s.PostStart, s.PreStop...), func(h hook) bool { return h.Privileged }) {
		kinds = append(kinds, "privileged")
	}
	if s.Pid == "host" {
		kinds = append(kinds, "host-pid")
	}
	host := s.NetworkMode == "host"
	for n := range s.Networks {
		host = host || m.Networks[n].Name == "host" || m.Networks[n].Driver == "host"
	}
	if host {
		kinds = append(kinds, "host-network")
	}
	for _, v := range s.Volumes {
		var sources []string
		switch v.text("type") {
		case "bind":
			sources = []string{v.text("source")}
		case "volume": // of the local driver, it may be a mount of any kind
			opts := m.Volumes[v.text("source")].DriverOpts
			sources = append(layersOf(opts["o"]), opts["device"])
		}
		if slices.ContainsFunc(sources, isRootOfDevice) {
			kinds = append(kinds, "mount-root")
			break
		}
	}
	return kinds
}

// layersOf are the directories that the options of an overlay name.
func layersOf(options string) (dirs []string) {
	for o := range strings.SplitSeq(options, ",") {
		if name, value, _ := strings.Cut(o, "="); strings.HasSuffix(name, "dir") || strings.HasPrefix(name, "lowerdir") {
			dirs = append(dirs, strings.Split(value, ":")...)
		}
	}
	return dirs
}

// checkWords refuses unknown words in a setting: a typo must not leave something
// open.
func checkWords(key string, words, known []string) error {
	for _, w := range words {
		if !slices.Contains(known, w) {
			return fmt.Errorf("configuration: %s: %q is none of %s", key, w, strings.Join(known, ", "))
		}
	}
	return nil
}
