package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
	"github.com/mender-app/mender-app/submodules/level"
)

// This file keeps applications of one device apart: what one has may be used by another one
// only if the operator allows the pair.

// others is what other applications of this device have.
type others struct {
	s        *session
	claims   map[string]string // their projects, with the application
	called   map[string]string // the names of their containers, with the application
	places   []place
	volumes  []volume.Volume
	all      []container.Summary
	owned    map[string]string // the owners of containers, by ID
	own      []string          // directories that the application may mount from, without links
	project  string
	problems []string
}

// place is a directory that has something of applications.
type place struct {
	dir   string
	what  string // it is
	app   string // whose it is; "": its entries are named by applications
	whole bool   // it belongs to no application, and has no such entries
}

// checkOthers refuses a release that uses a volume, a network, a container, a path or the
// project of another application. A release that was accepted before must be able to start:
// then it warns.
func (s *session) checkOthers(ctx context.Context, pl *plan) error {
	if s.back {
		return nil
	}
	o, err := s.findOthers(ctx, pl)
	if err != nil {
		return err
	}
	if err := o.check(ctx, pl); err != nil {
		return err
	}
	if len(o.problems) == 0 {
		return nil
	}
	if s.mustStart {
		for _, p := range o.problems {
			s.req.Logf("warning: %s", p)
		}
		return nil
	}
	return invalid("%s", o.problems[0])
}

func (s *session) findOthers(ctx context.Context, pl *plan) (*others, error) {
	o := &others{s: s, all: pl.everything, owned: map[string]string{}, project: pl.name}
	for _, c := range pl.everything {
		if app, ok := s.owner(c); ok {
			o.owned[c.ID] = app
		}
	}
	o.claims, o.called = s.claims(pl.dir, pl.everything)
	list, err := s.engine.Client().VolumeList(ctx, volume.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for _, v := range list.Volumes {
		if v != nil {
			o.volumes = append(o.volumes, *v)
		}
	}
	if dir := s.storeOf(pl.dir); dir != "" {
		for _, at := range []string{dir, dir + "-" + mountsDir, dir + "-" + dataDir} {
			o.places = append(o.places, place{dir: at, what: "mender-app's store"})
		}
	}
	if dir := s.set.secrets.Dir; dir != "" {
		o.places = append(o.places, place{dir: dir, what: "the directory of decrypted secrets"})
	}
	if p, ok := s.set.modules.Project(); ok && p.Name != s.req.App {
		o.places = append(o.places, place{dir: s.set.modules.Dir(), what: "the store of mender-container-modules", app: p.Name})
	}
	dirs, err := s.engine.Storage(ctx)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		o.places = append(o.places, place{dir: dir, what: "a directory of the engine", whole: true})
	}
	for i, p := range o.places {
		if o.places[i].dir, err = withoutLinks(p.dir); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{pl.dir, pl.data, pl.mounts, filepath.Join(s.set.secrets.Dir, s.req.App)} {
		if dir == "" {
			continue
		}
		if dir, err = withoutLinks(dir); err != nil {
			return nil, err
		}
		o.own = append(o.own, dir)
	}
	return o, nil
}

// storeOf is the directory that has all applications: the one that the caller names, or else
// the one that the manifests in dir are in. It is "" if neither is known.
func (s *session) storeOf(dir string) string {
	store := cmp.Or(s.set.store, filepath.Dir(appDirectory(s.req.App, dir)))
	if !filepath.IsAbs(store) || store == "/" {
		return ""
	}
	return store
}

// claims are the projects of other applications, and the names of their containers: those
// of their containers, and those that the manifests in the store name, because an
// application without containers has volumes all the same, and will need the names.
func (s *session) claims(dir string, all []container.Summary) (claims, called map[string]string) {
	claims, called = map[string]string{}, map[string]string{}
	for _, c := range all {
		if app, ok := s.owner(c); ok && app != s.req.App {
			claims[c.Labels[labelProject]] = app
			called[name(c)] = app
		}
	}
	// The shell module ran all applications as one project, which they keep.
	for _, c := range all {
		if app, ok := s.owner(c); ok && app == s.req.App {
			delete(claims, c.Labels[labelProject])
		}
	}
	store := s.storeOf(dir)
	entries, _ := os.ReadDir(store) // there may be none
	for _, e := range entries {
		if e.Name() == s.req.App || names.Check(e.Name()) != nil {
			continue
		}
		dirs, _ := filepath.Glob(filepath.Join(store, e.Name(), "releases", "*", "manifests"))
		for _, at := range append(dirs, filepath.Join(store, e.Name(), "manifests")) {
			p, names := projectOf(e.Name(), at)
			if p != "" {
				claims[p] = e.Name()
			}
			for _, n := range names {
				called[n] = e.Name()
			}
		}
	}
	return claims, called
}

// checkProject refuses a project of another application.
func (s *session) checkProject(ctx context.Context, p *project) error {
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return err
	}
	o := &others{s: s}
	o.claims, _ = s.claims(p.dir, all)
	if o.checkProject(p.name); len(o.problems) > 0 {
		return invalid("%s", o.problems[0])
	}
	return nil
}

// projectOf is the name of the project in a directory of manifests, "" if it has no Compose
// files, with the names that its services give to containers or get by Compose for their
// first one.
func projectOf(app, dir string) (project string, containers []string) {
	files, err := rules.FindFiles(dir)
	if err != nil {
		return "", nil
	}
	env, _ := rules.Variables(dir)
	project = env["COMPOSE_PROJECT_NAME"]
	expand := func(text string) string {
		text, err := template.Substitute(text, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
		if err != nil {
			return ""
		}
		return text
	}
	services := map[string]string{} // the names that they give to their containers
	for _, f := range files {
		text, err := rules.ReadFile(f)
		if err != nil {
			continue
		}
		var head struct {
			Name     string `yaml:"name"`
			Services map[string]struct {
				ContainerName string `yaml:"container_name"`
			} `yaml:"services"`
		}
		// The rest of a file counts where a part of it is not as it should be.
		if err := yaml.Unmarshal(text, &head); err != nil && !errors.As(err, new(*yaml.TypeError)) {
			continue
		}
		if n := expand(head.Name); n != "" && env["COMPOSE_PROJECT_NAME"] == "" {
			project = n
		}
		for svc, says := range head.Services {
			services[svc] = cmp.Or(expand(says.ContainerName), services[svc])
		}
	}
	project = cmp.Or(project, rules.ProjectName(app))
	for svc, called := range services {
		containers = append(containers, cmp.Or(called, project+"-"+svc+"-1"))
	}
	return project, containers
}

// refuse notes a use of something that is another application's. app is "" for what belongs
// to no single one.
func (o *others) refuse(app, format string, args ...any) {
	if app = cmp.Or(app, level.Everything); o.s.set.others.Allow(o.s.req.App, func(name string) bool { return name == app }) {
		return
	}
	pair := o.s.req.App + ":" + app
	o.problems = append(o.problems, fmt.Sprintf(format, args...)+": refused unless ALLOW_OTHERS in "+confName+" has "+pair)
}

// owner returns the application that a project belongs to, "" if that is this one or none.
func (o *others) owner(project string) string { return o.claims[project] }

// ownerOf returns the application that a container belongs to, "" if that is this one or none.
func (o *others) ownerOf(c container.Summary) string {
	if app := o.owned[c.ID]; app != "" {
		if app == o.s.req.App {
			return ""
		}
		return app
	}
	return o.owner(c.Labels[labelProject])
}

// named returns the application whose project would make something of this name, "" if that
// is this one or none.
func (o *others) named(name string) string {
	if strings.HasPrefix(name, o.project+"_") {
		return ""
	}
	for _, p := range slices.Sorted(maps.Keys(o.claims)) {
		if strings.HasPrefix(name, p+"_") {
			return o.claims[p]
		}
	}
	return ""
}

// volumeOwner returns the application that a volume of the engine belongs to, "" if that is
// this one or none. A volume without a name has no label of a project.
func (o *others) volumeOwner(v volume.Volume) string {
	if p := v.Labels[labelProject]; p != "" || !isAnonymous(v.Name) {
		return o.owner(p)
	}
	for _, c := range o.all {
		for _, m := range c.Mounts {
			if m.Name == v.Name && o.ownerOf(c) != "" {
				return o.ownerOf(c)
			}
		}
	}
	return ""
}

func (o *others) check(ctx context.Context, pl *plan) error {
	o.checkProject(pl.name)
	for _, name := range pl.model.names() {
		for _, part := range pl.model.Services[name].Containers() {
			if err := o.service(ctx, pl, name, part); err != nil {
				return err
			}
		}
		o.checkNames(pl, name)
	}
	for _, objects := range []map[string]fileObject{pl.model.Configs, pl.model.Secrets} {
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			if f := objects[key].File; f != "" {
				o.path(key+" names", f)
			}
		}
	}
	return nil
}

func (o *others) service(ctx context.Context, pl *plan, name string, svc rules.Service) error {
	for _, v := range svc.Volumes {
		switch source := v.Text("source"); v.Text("type") {
		case "bind":
			readOnly, _ := v["read_only"].(bool)
			o.mount("service "+name+" mounts", source, readOnly)
		case "volume":
			o.volume(name, pl.model.Volumes[source])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Networks)) {
		if n := pl.model.Networks[key]; n.Name != "" {
			if err := o.network(ctx, name, n.Name); err != nil {
				return err
			}
		}
	}
	if mode := svc.NetworkMode; mode != "" && !strings.Contains(mode, ":") {
		if err := o.network(ctx, name, mode); err != nil {
			return err
		}
	}
	for _, mode := range append([]string{svc.NetworkMode, svc.Pid, svc.Ipc}, svc.VolumesFrom...) {
		if of, ok := strings.CutPrefix(mode, "container:"); ok {
			o.container(name, of)
		}
	}
	for _, link := range svc.Links {
		o.container(name, link)
	}
	return nil
}

func (o *others) checkProject(name string) {
	if app := o.owner(name); app != "" {
		o.refuse(app, "the project %s, with its volumes and networks, is that of application %s: give the compose files another name:", name, app)
	}
}

// checkNames refuses a name of a container that is another application's: only one can have it.
func (o *others) checkNames(pl *plan, service string) {
	for _, n := range pl.model.Services[service].containerNames(pl.name, service) {
		if app := o.called[n]; app != "" {
			o.problems = append(o.problems, fmt.Sprintf("service %s needs a container with the name %s, which is one of application %s: give it another container_name:", service, n, app))
		}
	}
}

// volume checks a volume that a service mounts.
func (o *others) volume(service string, m volumeModel) {
	if m.Name == "" {
		return
	}
	options := m.DriverOpts
	i := slices.IndexFunc(o.volumes, func(v volume.Volume) bool { return v.Name == m.Name })
	switch {
	case i < 0:
		if app := o.named(m.Name); app != "" {
			o.refuse(app, "service %s mounts the volume %s, which has a name of application %s", service, m.Name, app)
		}
	default:
		on := o.volumes[i]
		if app := o.volumeOwner(on); app != "" {
			o.refuse(app, "service %s mounts the volume %s of application %s", service, m.Name, app)
		}
		if on.Labels[labelProject] != "" { // it stays as it is, whatever the files say
			options = maps.Clone(on.Options)
			maps.Copy(options, m.DriverOpts)
		}
	}
	for _, value := range options {
		for _, at := range pathsOf(value) {
			o.path("service "+service+" mounts, with the volume "+m.Name+",", at)
		}
	}
}

// pathsOf are the paths that an option of a volume may name. The engine's working directory
// is /, so a relative one starts there.
func pathsOf(option string) (list []string) {
	for _, word := range strings.FieldsFunc(option, func(r rune) bool { return strings.ContainsRune(",:=", r) }) {
		list = append(list, filepath.Join("/", word))
	}
	return list
}

// network checks a network that a service is on. The engine takes an ID for a name.
func (o *others) network(ctx context.Context, service, name string) error {
	on, err := o.s.engine.Client().NetworkInspect(ctx, name, network.InspectOptions{})
	app := ""
	switch {
	case docker.IsNotFound(err):
		app = o.named(name)
	case err != nil:
		return fmt.Errorf("network %s: %w", name, err)
	default:
		app = o.owner(on.Labels[labelProject])
	}
	if app != "" {
		o.refuse(app, "service %s is on the network %s of application %s", service, name, app)
	}
	return nil
}

// container checks a container whose namespaces or volumes a service uses, or that it is
// linked to: NAME, or NAME and options. As for the engine, a name goes before the beginning
// of an ID.
func (o *others) container(service, ref string) {
	ref, _, _ = strings.Cut(ref, ":")
	if ref == "" {
		return
	}
	isNamed := func(c container.Summary) bool { return slices.Contains(c.Names, "/"+ref) }
	named := slices.ContainsFunc(o.all, isNamed)
	for _, c := range o.all {
		if is := isNamed(c) || !named && strings.HasPrefix(c.ID, ref); !is {
			continue
		}
		if app := o.ownerOf(c); app != "" {
			o.refuse(app, "service %s uses the container %s of application %s", service, name(c), app)
		}
	}
}

// path checks a path of this device.
func (o *others) path(who, path string) { o.mount(who, path, false) }

// mount checks a path of this device that a service mounts. Log shippers and monitors mount
// the engine's directories to read them: that is as much as mounting / to read it.
func (o *others) mount(who, path string, readOnly bool) {
	at, err := withoutLinks(path)
	if err != nil {
		o.refuse("", "%s %s: %v", who, path, err)
		return
	}
	if rules.IsRootOfDevice(at) {
		return // that is a matter of what services may do to the device
	}
	for _, dir := range o.own {
		if _, in := below(at, dir); in {
			return
		}
	}
	for _, v := range o.volumes {
		if v.Mountpoint == "" {
			continue
		}
		app := o.volumeOwner(v)
		if _, in := below(at, filepath.Dir(v.Mountpoint)); in {
			if app != "" {
				o.refuse(app, "%s %s, which is in the volume %s of application %s", who, path, v.Name, app)
			}
			return
		}
	}
	for _, p := range o.places {
		if p.whole && readOnly {
			continue
		}
		if _, above := below(p.dir, at); above && isDirectory(p.dir) {
			o.refuse(p.app, "%s %s, which has %s", who, path, p.what)
			return
		}
		rel, in := below(at, p.dir)
		if !in {
			continue
		}
		app := p.app
		if first, _, _ := strings.Cut(rel, "/"); app == "" && !p.whole && names.Check(first) == nil && first != o.s.req.App {
			app = first
		}
		o.refuse(app, "%s %s, which is in %s", who, path, p.what)
		return
	}
}

// below returns the path below a directory of something, and whether it is there at all. The
// directory may have several paths: what counts is that it is the same one.
func below(path, dir string) (rel string, ok bool) {
	target, err := os.Stat(dir)
	for at := path; ; at = filepath.Dir(at) {
		if at == dir {
			rel, err := filepath.Rel(at, path)
			return rel, err == nil
		}
		if err == nil {
			if fi, serr := os.Stat(at); serr == nil && os.SameFile(fi, target) {
				rel, err := filepath.Rel(at, path)
				return rel, err == nil
			}
		}
		if at == "/" || at == "." {
			return "", false
		}
	}
}

// maxLinks bounds how many links a path may lead through, as the kernel does.
const maxLinks = 40

// withoutLinks follows the links of a path as far as they lead. What does not exist yet
// counts as what it is called. It cannot follow all links: those of a process in /proc may
// lead into the file system of a container, whatever their text is.
func withoutLinks(path string) (real string, err error) {
	real, rest := "/", strings.Split(filepath.Clean("/"+path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		at := filepath.Join(real, name)
		fi, err := os.Lstat(at)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			real = at
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s leads through more than %d links", path, maxLinks)
		}
		to, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		if ofProcess.MatchString(at) {
			return "", fmt.Errorf("%s leads through %s, which may be in a container", path, at)
		}
		if filepath.IsAbs(to) {
			real = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return real, nil
}

// ofProcess matches what /proc has of a process.
var ofProcess = regexp.MustCompile(`^/proc/[0-9]+/`)
