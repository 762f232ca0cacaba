package manifests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// ComposeOptions choose what of a compose project is read. The zero value reads
// it as `docker compose` does in the manifests directory.
type ComposeOptions struct {
	Files    []string // compose files relative to the directory; none: COMPOSE_FILE, else the default names
	Profiles []string // none: COMPOSE_PROFILES
	EnvFiles []string // none: .env in the directory
	Environ  []string // KEY=value, before the files: what of the build host's environment counts
	Encrypt  bool     // find the files of secrets, to encrypt them; a secret that cannot be is an error
	// Plain are the secrets that may be shipped in plain, by their names or files.
	Plain []string
	// Version is the oldest Docker Compose that the devices have, such as 2.26; "" if it is
	// not known. What it does not read is an error.
	Version string
	// Host reports whether the build host has a variable that Environ lacks; nil: none.
	Host func(string) bool
	// Ignored reports whether a file, relative to the directory, is there on the build
	// host and is not shipped; nil: none.
	Ignored func(string) bool
}

// Compose loads the compose project in dir, interpolated and validated, and
// lists the images of its active services. It refuses files outside of dir,
// because only dir is shipped.
// Variables that came from Environ or from other env files are in Found.Ship.
//
// compose-go writes its own warnings to logrus's standard logger. A program may
// redirect that logger.
func Compose(ctx context.Context, dir string, o ComposeOptions) (*Found, error) {
	dir, err := realDir(dir)
	if err != nil {
		return nil, err
	}
	c := newComposer(dir, o)
	if err := c.environment(); err != nil {
		return nil, err
	}
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	if err := c.collect(c.checkVersions()); err != nil {
		return nil, err
	}
	project, err := c.load(ctx, files)
	if err != nil {
		return nil, err
	}
	if len(project.Services) == 0 {
		e := &Error{Place: c.index.find("services"), Text: "the compose files have no service"}
		if len(project.DisabledServices) > 0 {
			e.Text, e.Hint = "no service is active: all of them have profiles", "activate one with --profile, or with COMPOSE_PROFILES in .env"
		}
		return nil, e
	}
	if !slices.ContainsFunc(project.ServiceNames(), func(name string) bool { s := project.Services[name]; return s.GetScale() > 0 }) {
		return nil, &Error{Place: c.index.find("services"), Text: "no service has a container: each has replicas: 0 or scale: 0",
			Hint: "a device refuses it: give one a container, or switch services off with services.disabled in the policy"}
	}
	for _, name := range project.ServiceNames() {
		if err := c.service(project.Services[name]); err != nil {
			return nil, err
		}
		if err := c.collect(c.plainService(project.Services[name])); err != nil {
			return nil, err
		}
	}
	c.plainDevice(project)
	if err := c.objects(project); err != nil {
		return nil, err
	}
	if err := together(c.errors); err != nil {
		return nil, err
	}
	if err := c.readElsewhere(); err != nil {
		return nil, err
	}
	c.needed(project)
	c.noteAbsent()
	c.warnPrograms()
	c.found.Ship, c.found.Services, c.found.Needs = c.ship(), project.ServiceNames(), needsOf(c.needs)
	return &c.found, nil
}

type composer struct {
	dir   string
	opts  ComposeOptions
	env   map[string]string // the variables for interpolation
	index *yamlIndex
	used  map[string]string // variables that were looked up and found
	unset map[string]bool   // variables without a default that were not found
	// absent are all variables that were not found.
	absent map[string]bool
	// personal are variables of env files that need one of PersonOwn, which is not set.
	personal map[string]Place
	ownPWD   bool              // an env file sets PWD
	read     map[string]string // files that are not secrets, relative to dir → who reads them
	needs    map[string]bool   // what the device reads, relative to dir
	found    Found
	sources  []string            // the Compose files, relative to dir
	includes map[string][]string // what each of them includes
	texts    map[string][]byte   // what Compose reads to know the project, by names relative to dir
	dirs     []string            // the project directories of includes
	wrong    error               // what the walk through the files has found
	errors   []*Error            // what is wrong: all is said at once
}

// collect notes what is wrong with the files, and returns any other error.
func (c *composer) collect(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	if !slices.ContainsFunc(c.errors, func(has *Error) bool { return has.Place == e.Place && strings.HasPrefix(has.Text, e.Text) }) {
		c.errors = append(c.errors, e)
	}
	return nil
}

func newComposer(dir string, o ComposeOptions) *composer {
	return &composer{dir: dir, opts: o, used: map[string]string{}, unset: map[string]bool{}, read: map[string]string{}, needs: map[string]bool{}, absent: map[string]bool{},
		includes: map[string][]string{}, texts: map[string][]byte{}}
}

// named are the compose files that an option or COMPOSE_FILE names.
func (c *composer) named() []string {
	if len(c.opts.Files) > 0 {
		return slices.Clone(c.opts.Files)
	}
	if c.env["COMPOSE_FILE"] == "" {
		return nil
	}
	sep := c.env["COMPOSE_PATH_SEPARATOR"]
	if sep == "" {
		sep = string(os.PathListSeparator)
	}
	return strings.Split(c.env["COMPOSE_FILE"], sep)
}

// files resolves which compose files make the project, as names inside dir.
func (c *composer) files() ([]string, error) {
	names, origin := c.named(), "given"
	if len(c.opts.Files) == 0 && len(names) > 0 {
		origin, c.used["COMPOSE_FILE"] = "named by COMPOSE_FILE", c.env["COMPOSE_FILE"]
	}
	if len(names) == 0 {
		c.absent["COMPOSE_FILE"] = true
		for _, set := range [][]string{cli.DefaultFileNames, cli.DefaultOverrideFileNames} {
			var have []string
			for _, n := range set {
				if _, err := os.Lstat(filepath.Join(c.dir, n)); err == nil {
					have = append(have, n)
				}
			}
			if len(have) > 1 {
				c.warn(Place{File: have[0]}, "used; ignored beside it: %s", strings.Join(have[1:], ", "))
			}
			if len(have) > 0 {
				names = append(names, have[0])
			}
			if len(names) == 0 {
				break
			}
		}
		if len(names) == 0 {
			return nil, &Error{Place: Place{File: "."}, Text: "no compose file in the manifests directory",
				Hint: "expected one of " + strings.Join(cli.DefaultFileNames, ", ")}
		}
	}
	for i, n := range names {
		rel, ok := relative(c.dir, n)
		if !ok {
			return nil, &Error{Place: Place{File: n}, Text: "compose file " + origin + " is outside the manifests directory", Hint: "only what is in the directory is shipped: move it there"}
		}
		if _, err := readManifest(c.dir, rel); err != nil {
			return nil, err
		}
		names[i] = rel
	}
	if len(c.opts.Files) > 0 {
		c.used["COMPOSE_FILE"] = strings.Join(names, string(os.PathListSeparator))
	}
	c.wrong = c.walk(names)
	// What the project's own files say counts more than what they include.
	included := slices.DeleteFunc(slices.Clone(c.sources), func(f string) bool { return slices.Contains(names, f) })
	c.index = newIndex(c.dir, append(included, names...))
	return names, nil
}

// load reads the project of these files, names inside dir.
func (c *composer) load(ctx context.Context, files []string) (*types.Project, error) {
	if c.wrong != nil {
		return nil, c.explain(c.wrong)
	}
	profiles := c.opts.Profiles
	if len(profiles) > 0 {
		c.used["COMPOSE_PROFILES"] = strings.Join(profiles, ",")
	} else if p := c.env["COMPOSE_PROFILES"]; p != "" {
		profiles = strings.Split(p, ",")
		c.used["COMPOSE_PROFILES"] = p
	} else {
		c.absent["COMPOSE_PROFILES"] = true
	}
	var work rules.Interpolation
	record := func(o *loader.Options) {
		if o.Interpolate == nil { // called a second time while compose-go only lists files
			return
		}
		inner := o.Interpolate.Substitute
		o.Interpolate.Substitute = func(s string, lookup template.Mapping) (string, error) {
			if err := work.Add(s); err != nil {
				return "", err
			}
			unset := map[string]bool{}
			out, err := inner(s, func(name string) (string, bool) {
				v, ok := c.recording(lookup)(name)
				unset[name] = !ok
				return v, ok
			})
			c.noteUnset(s, unset)
			for name, is := range unset {
				if is {
					c.absent[name] = true
				}
			}
			return out, err
		}
	}
	m, err := c.mirror()
	if err != nil {
		return nil, err
	}
	defer m.remove()
	for i, f := range files {
		files[i] = filepath.Join(m.dir, f)
	}
	options := []cli.ProjectOptionsFn{
		cli.WithWorkingDirectory(m.dir),
		func(o *cli.ProjectOptions) error { o.Environment = maps.Clone(c.env); return nil },
		cli.WithProfiles(profiles),
		cli.WithResourceLoader(fence{m.dir}),
		cli.WithoutEnvironmentResolution,
		cli.WithoutLabelsResolution,
		cli.WithResolvedPaths(false),
		cli.WithLoadOptions(record),
	}
	o, err := cli.NewProjectOptions(files, options...)
	if err != nil {
		return nil, c.explain(m.named(err))
	}
	project, err := o.LoadProject(ctx)
	if err != nil {
		// Compose compares the parts with each other last. Without that, they can be judged
		// one by one, and all that is wrong is said at once.
		said := m.named(err)
		loose, err := cli.NewProjectOptions(files, append(options, cli.WithConsistency(false))...)
		if err != nil {
			return nil, c.explain(said)
		}
		if project, err = loose.LoadProject(ctx); err != nil {
			return nil, c.explain(said)
		}
		model, err := o.LoadModel(ctx)
		if err != nil {
			return nil, c.explain(m.named(err))
		}
		each := inconsistencies(model, profiles)
		if len(each) == 0 { // it is none of a service
			each = []error{said}
		}
		for _, err := range each {
			if err := c.collect(c.explain(m.named(err))); err != nil {
				return nil, err
			}
		}
	}
	c.checkProfiles(profiles, project)
	return project, c.collect(c.checkUnset())
}

// maxCompared bounds the services that inconsistencies looks at: each takes a look at all.
const maxCompared = 100

// inconsistencies is what Compose finds wrong in each service of a model when it compares the
// parts of the project. By itself, it says the first that it finds, and begins anywhere.
func inconsistencies(model map[string]any, profiles []string) (all []error) {
	services, _ := model["services"].(map[string]any)
	names := slices.Sorted(maps.Keys(services))
	for _, name := range names[:min(len(names), maxCompared)] {
		alone := map[string]any{}
		for _, key := range []string{"networks", "volumes", "configs", "secrets", "models", "jobs"} {
			if part, ok := model[key]; ok {
				alone[key] = part
			}
		}
		beside := map[string]any{}
		for other, text := range services {
			service, _ := text.(map[string]any)
			if other == name {
				beside[other] = service
				continue
			}
			stub := map[string]any{"image": other}
			for _, key := range []string{"build", "profiles"} { // others may refer to these
				if part, ok := service[key]; ok {
					stub[key] = part
				}
			}
			beside[other] = stub
		}
		alone["services"] = beside
		_, err := loader.ModelToProject(alone, &loader.Options{Profiles: profiles, SkipResolveEnvironment: true, SkipResolveLabels: true}, types.ConfigDetails{})
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// healthCheck is what a service says of its health check.
func healthCheck(s types.ServiceConfig, at func(keys ...string) Place) HealthCheck {
	h := HealthCheck{Service: s.Name, Image: s.Image, Place: at("image")}
	said := s.HealthCheck
	if said == nil {
		return h
	}
	h.Place = at("healthcheck")
	h.Off = said.Disable || len(said.Test) > 0 && said.Test[0] == "NONE"
	h.Test = len(said.Test) > 0 && !h.Off
	for _, d := range []struct {
		said *types.Duration
		to   *time.Duration
	}{{said.Interval, &h.Interval}, {said.StartPeriod, &h.StartPeriod}, {said.StartInterval, &h.StartInterval}} {
		if d.said != nil {
			*d.to = time.Duration(*d.said)
		}
	}
	return h
}

// service reads an active service, and collects what is wrong with it.
func (c *composer) service(s types.ServiceConfig) error {
	who := fmt.Sprintf("service %q", s.Name)
	at := func(keys ...string) Place { return c.index.find(append([]string{"services", s.Name}, keys...)...) }
	wrong := func(e *Error) { _ = c.collect(e) } // of this type, it takes any
	if s.Build != nil {
		if s.Image == "" {
			wrong(&Error{Place: at("build"), Text: who + " has build but no image", Hint: "build it here and name it with image: NAME:TAG; a device builds nothing"})
		} else {
			c.note(at("build"), "%s: build is ignored on the device, image %s is shipped", who, s.Image)
		}
	}
	switch {
	case s.Image != "" || s.Build != nil:
	case s.Provider != nil:
		wrong(&Error{Place: at("provider"), Text: who + " has a provider and no image", Hint: "the device runs services from images of the artifact only"})
	default:
		wrong(&Error{Place: at(), Text: who + " has neither an image nor a build"})
	}
	switch s.PullPolicy {
	case "", types.PullPolicyMissing, types.PullPolicyIfNotPresent, types.PullPolicyNever:
	default:
		wrong(&Error{Place: at("pull_policy"), Text: fmt.Sprintf("%s has pull_policy: %s", who, s.PullPolicy),
			Hint: "the device takes its images from the artifact: use never or missing"})
	}
	if s.Image != "" {
		c.use(s.Image, who, at("image"))
		c.found.HealthChecks = append(c.found.HealthChecks, healthCheck(s, at))
	}
	for i, h := range s.PreStart {
		if h.Image != "" && h.Image != s.Image {
			c.use(h.Image, fmt.Sprintf("%s, pre_start %d", who, i+1), at("pre_start"))
		}
		hook := func(...string) Place { return at("pre_start", fmt.Sprint(i)) }
		if err := c.container(fmt.Sprintf("%s, pre_start %d", who, i+1), &h.ContainerSpec, hook); err != nil {
			return err
		}
	}
	return c.container(who, &s.ContainerSpec, at)
}

// container reads what a service or a hook of it names, and collects what is wrong with it.
func (c *composer) container(who string, s *types.ContainerSpec, at func(keys ...string) Place) error {
	for _, v := range s.Volumes {
		switch v.Type {
		case types.VolumeTypeImage:
			c.use(v.Source, who+", volume", at("volumes"))
		case types.VolumeTypeBind:
			if err := c.collect(c.file(who+": bind mount", v.Source, at("volumes"), "")); err != nil {
				return err
			}
		}
	}
	for _, f := range s.EnvFiles {
		if err := c.collect(c.envFile(who, f, at("env_file"))); err != nil {
			return err
		}
	}
	for _, f := range s.LabelFiles {
		if err := c.collect(c.file(who+": label_file", f, at("label_file"), "label-file")); err != nil {
			return err
		}
	}
	for name, value := range s.Environment {
		// `- NAME` passes a variable on from compose's environment. compose-go
		// has filled in the value already, so that `NAME: value` with the same
		// value looks the same. Shipping the variable then does no harm.
		if v, ok := c.env[name]; ok && (value == nil || *value == v) {
			c.used[name] = v
		} else if value == nil {
			c.absent[name] = true
		}
	}
	return nil
}

// objects checks the files of configs and secrets.
func (c *composer) objects(p *types.Project) error {
	for _, kind := range []struct {
		key  string
		list map[string]types.FileObjectConfig
	}{
		{"configs", convert(p.Configs)}, {"secrets", convert(p.Secrets)},
	} {
		for _, name := range slices.Sorted(maps.Keys(kind.list)) {
			if err := c.collect(c.object(p, kind.key, name, kind.list[name])); err != nil {
				return err
			}
		}
	}
	return nil
}

// object reads a config or a secret.
func (c *composer) object(p *types.Project, key, name string, f types.FileObjectConfig) error {
	one := strings.TrimSuffix(key, "s")
	if f.External {
		return c.externalObject(p, key, one, name)
	}
	if f.Environment != "" {
		if v, ok := c.env[f.Environment]; ok {
			c.used[f.Environment] = v
		}
	}
	if key == "secrets" {
		return c.secret(name, f)
	}
	if f.File == "" {
		return nil
	}
	return c.file(one+" "+name, f.File, c.index.find(key, name, "file"), one)
}

func convert[M ~map[string]T, T types.ConfigObjConfig | types.SecretConfig](m M) map[string]types.FileObjectConfig {
	out := make(map[string]types.FileObjectConfig, len(m))
	for k, v := range m {
		out[k] = types.FileObjectConfig(v)
	}
	return out
}

func (c *composer) use(image, by string, at Place) {
	if strings.Contains(image, "@") {
		c.warn(at, "%s names %s by its digest: an engine that loads images from an archive knows them by tag only, name it by tag", by, image)
	}
	c.found.Uses = append(c.found.Uses, Use{Image: image, By: by, Place: at})
}

// file checks a file that a service reads. An absolute name is a file of the
// device: the device refuses it where Compose itself reads the file, unless its
// operator allows the kind. A relative name must be shipped. If it is missing,
// that is an error where Compose on the device would fail. kind is what
// ALLOW_OUTSIDE calls the file; "" for one that Compose does not read.
func (c *composer) file(what, name string, at Place, kind string) error {
	return c.fileOr(what, name, at, kind, kind != "")
}

// fileOr is file with a parameter that says whether a missing file is an error.
func (c *composer) fileOr(what, name string, at Place, kind string, must bool) error {
	if strings.HasPrefix(name, "~") {
		return &Error{Place: at, Text: fmt.Sprintf("%s %s is below a home directory, and an application on a device has none", what, name), Hint: homeHint}
	}
	if ofDevice(name) {
		if kind != "" {
			c.warn(at, "%s %s is a file of the device: it refuses this release unless ALLOW_OUTSIDE in its mender-app-docker-compose.conf has %s", what, name, kind)
		}
		return nil
	}
	rel, ok := relative(c.dir, name)
	if !ok {
		return &Error{Place: at, Text: fmt.Sprintf("%s %s leaves the manifests directory", what, name), Hint: "only what is in the directory is shipped: move it there, or name the device's own file by its absolute path"}
	}
	c.read[rel] = what
	if !exists(c.dir, rel) {
		if c.opts.Ignored != nil && c.opts.Ignored(rel) {
			return &Error{Place: at, Text: fmt.Sprintf("%s %s is not shipped: .menderappignore names it", what, name), Hint: "take it out there, or add a line !" + rel}
		}
		if must {
			return &Error{Place: at, Text: fmt.Sprintf("%s %s does not exist", what, name)}
		}
		if kind == "" {
			c.note(at, "%s %s is not in the manifests directory: it is data, which the device keeps in one place for all releases", what, name)
		} else {
			c.note(at, "%s %s is not in the manifests directory: nothing is read for it", what, name)
		}
	}
	return nil
}

// exists reports whether a name of the tree leads to something. A link that leads out does:
// CheckTree refuses it.
func exists(dir, rel string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	_, err = root.Stat(rel)
	return err == nil || notThere(err) != nil
}

// homeHint says what to write for a path of the person who starts a project.
const homeHint = "write ./data for data of the application, name a volume, or name the device's own directory by its absolute path"

// ofDevice reports whether a file's name in a compose file is one of the device's
// own files.
func ofDevice(name string) bool { return filepath.IsAbs(name) || strings.HasPrefix(name, "~") }

// note says something that is as it often is.
func (c *composer) note(at Place, format string, args ...any) {
	c.found.Notes = append(c.found.Notes, at.String()+": "+fmt.Sprintf(format, args...))
}

func (c *composer) warn(at Place, format string, args ...any) {
	c.found.Warnings = append(c.found.Warnings, at.String()+": "+fmt.Sprintf(format, args...))
}

// short removes the directory from a message of compose-go.
func (c *composer) short(s string) string {
	return strings.ReplaceAll(s, c.dir+string(filepath.Separator), "")
}
