package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// Judge asks of a Compose project, as it is shipped in dir, what a device's CHECK asks
// without its engine: the sub-module's own checks, with compose-go in the place of Compose.
// sealed are the files of secrets that are still to be encrypted, relative to dir. What the
// operator of a device may allow is not refused.
func Judge(ctx context.Context, dir string, sealed []string) error {
	dir, err := realDir(dir)
	if err != nil {
		return err
	}
	j := &judge{dir: dir, sealed: sealed}
	if j.env, err = rules.Variables(dir); err != nil {
		return j.place(err)
	}
	if j.env == nil {
		j.env = map[string]string{}
	}
	j.env["PWD"] = rules.Here(j.env)
	files, err := rules.FindFiles(dir)
	if err != nil {
		return j.place(err)
	}
	j.index = newIndex(dir, j.names(files))
	allowed := rules.Settings{Outside: rules.OutsideKinds}
	err = rules.CheckFiles(dir, files, nil, allowed, func(name string) (string, bool) { v, ok := j.env[name]; return v, ok })
	if err != nil {
		return j.place(err)
	}
	project, err := j.load(ctx, files)
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return j.place(err)
	}
	if len(text) > rules.MaxModel {
		return j.refuse(nil, fmt.Sprintf("the compose files come to more than %d MiB when their aliases and extensions are followed", rules.MaxModel>>20))
	}
	var m rules.Model
	if err := json.Unmarshal(text, &m); err != nil {
		return j.place(err)
	}
	if err := m.CheckServices(dir); err != nil {
		return j.place(err)
	}
	if err := m.Check(dir, allowed); err != nil {
		return j.place(err)
	}
	if err := rules.CheckLevel(text, dir, rules.Trusted); err != nil {
		return j.place(err)
	}
	return j.encrypted(&m)
}

type judge struct {
	dir    string
	sealed []string
	env    map[string]string
	index  *yamlIndex
}

// names are files relative to the directory.
func (j *judge) names(files []string) (list []string) {
	for _, f := range files {
		if rel, ok := relative(j.dir, f); ok {
			list = append(list, rel)
		}
	}
	return list
}

// load reads the project as Compose does on a device. What lies on the device alone is not
// read.
func (j *judge) load(ctx context.Context, files []string) (*types.Project, error) {
	env := map[string]string{}
	maps.Copy(env, j.env)
	maps.DeleteFunc(env, func(name, _ string) bool { return rules.VariableReader(name) != "" })
	var profiles []string
	if p := env["COMPOSE_PROFILES"]; p != "" {
		profiles = strings.Split(p, ",")
	}
	o, err := cli.NewProjectOptions(files,
		cli.WithWorkingDirectory(j.dir),
		func(o *cli.ProjectOptions) error { o.Environment = env; return nil },
		cli.WithProfiles(profiles),
		cli.WithResourceLoader(fence{j.dir}),
		cli.WithoutEnvironmentResolution,
		cli.WithoutLabelsResolution,
	)
	if err != nil {
		return nil, j.place(err)
	}
	project, err := o.LoadProject(ctx)
	if err != nil {
		return nil, j.place(err)
	}
	for _, name := range project.ServiceNames() {
		s := project.Services[name]
		for _, f := range s.EnvFiles {
			if err := j.envFile(name, f); err != nil {
				return nil, err
			}
		}
		for _, f := range s.LabelFiles {
			if err := j.envFile(name, types.EnvFile{Path: f, Required: true}); err != nil {
				return nil, err
			}
		}
	}
	return project.WithoutUnnecessaryResources(), nil
}

// envFile reads a file of variables or labels that is shipped.
func (j *judge) envFile(service string, f types.EnvFile) error {
	rel, ok := relative(j.dir, f.Path)
	if !ok {
		return nil // of the device
	}
	at := []string{"services", service, "env_file"}
	text, err := readManifest(j.dir, rel)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !bool(f.Required):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return j.refuse(at, fmt.Sprintf("service %q: env_file %s is not shipped", service, rel))
	case err != nil:
		return err
	case f.Format != "":
		return nil
	}
	if err := new(rules.Interpolation).Add(string(text)); err != nil {
		return &Error{Place: Place{File: rel}, Text: err.Error()}
	}
	if _, err := dotenv.ParseWithLookup(bytes.NewReader(text), func(name string) (string, bool) { v, ok := j.env[name]; return v, ok }); err != nil {
		return &Error{Place: Place{File: rel}, Text: err.Error()}
	}
	return nil
}

// encrypted asks for the owner of the secrets that are encrypted.
func (j *judge) encrypted(m *rules.Model) error {
	for _, name := range slices.Sorted(maps.Keys(m.Secrets)) {
		rel, ok := relative(j.dir, m.Secrets[name].File)
		if m.Secrets[name].File == "" || !ok {
			continue
		}
		_, err := os.Lstat(filepath.Join(j.dir, rel+names.EncryptedSuffix))
		if err != nil && !slices.Contains(j.sealed, rel) {
			continue
		}
		if _, err := m.Owner(name); err != nil {
			return j.refuse([]string{"secrets", name}, err.Error())
		}
	}
	return nil
}

func (j *judge) refuse(at []string, text string) error {
	return &Error{Place: j.index.find(at...), Text: text, Hint: "a device refuses it"}
}

// place adds file and line to an error of a device's check or of compose-go.
func (j *judge) place(err error) error {
	if j.index == nil {
		j.index = &yamlIndex{}
	}
	c := &composer{dir: j.dir, index: j.index}
	err = c.explain(err)
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	e.Text = strings.ReplaceAll(e.Text, j.dir, "the manifests directory")
	if m := ofService.FindStringSubmatch(e.Text); m != nil {
		e.Place = j.index.find("services", m[1])
	}
	return e
}

// ofService is how the checks of a device begin what they say of a service.
var ofService = regexp.MustCompile(`^service (\S+?):? `)
