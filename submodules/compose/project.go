package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// project is a Compose project as Compose itself understands its files.
type project struct {
	dir   string
	files []string // given with -f
	env   string   // given with --env-file; "" where there is no .env
	here  string   // the variable PWD
	name  string
	model model
	// text is what Compose prints of the project: the model and more.
	text []byte
	// images are references that replace those of the files, by service.
	images map[string]string
	// sealed are the secrets that the manifests hold encrypted, by name.
	sealed map[string]sealedSecret
	// marked are the services that have our labels in their files or images.
	marked map[string]bool
	// data is the directory of the application's data; "" where the manifests are not in
	// mender-app's store.
	data string
	// oldData are paths in the manifests that older versions had data at.
	oldData map[string]bool
	// oldPaths are the services whose containers mount data by a path of older versions.
	oldPaths map[string]bool
	// owner is the user of this machine that the root of containers is.
	owner int
	// byName are volumes without a name that services get by their names, by service and path.
	byName map[string]map[string]string
	// sums are the labels of networks that are made here, by the networks' keys.
	sums map[string]string
	// mounts is the directory of what services mount from the manifests.
	mounts string
}

// model is the part that we need of `docker compose config --format json`.
type model struct {
	Name     string                  `json:"name"`
	Services map[string]service      `json:"services"`
	Networks map[string]networkModel `json:"networks"`
	Volumes  map[string]volumeModel  `json:"volumes"`
	Configs  map[string]fileObject   `json:"configs"`
	Secrets  map[string]fileObject   `json:"secrets"`
}

// service is a service as Compose prints it. What app-gen judges too is in rules.Service.
type service struct {
	rules.Service
	ContainerName string                `json:"container_name"`
	Restart       string                `json:"restart"`
	Labels        map[string]string     `json:"labels"`
	Configs       []source              `json:"configs"`
	Ports         []json.RawMessage     `json:"ports"`
	Healthcheck   *healthcheck          `json:"healthcheck"`
	DependsOn     map[string]dependency `json:"depends_on"`

	CPUSet string `json:"cpuset"` // the processors that it runs on; "" for all
	limits

	off      bool // it is switched off
	reserved bool // it runs on processors that the device reserves
}

type healthcheck struct {
	Disable       bool     `json:"disable"`
	Test          any      `json:"test"` // a list; ["NONE"] is none
	Interval      duration `json:"interval"`
	Timeout       duration `json:"timeout"`
	StartPeriod   duration `json:"start_period"`
	StartInterval duration `json:"start_interval"`
	Retries       uint64   `json:"retries"`
}

// none reports whether the files switch off the health check of the image.
func (h *healthcheck) none() bool { return h.Disable || fmt.Sprint(h.Test) == "[NONE]" }

// duration is a time as Compose prints it, such as 1m30s.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	n, err := time.ParseDuration(string(text))
	*d = duration(max(n, 0))
	return err
}

type dependency struct {
	Condition string `json:"condition"`
	Restart   bool   `json:"restart"` // of the dependent, with the other service
}

// What a service may wait for until another one is so.
const (
	conditionHealthy   = "service_healthy"
	conditionCompleted = "service_completed_successfully"
)

// mount is an entry of volumes in its long form.
type mount = rules.Mount

type source struct {
	Source string `json:"source"`
}

type fileObject = rules.File

// containers is the number of containers a service has.
func (s service) containers() int {
	if s.off {
		return 0
	}
	return s.Replicas()
}

// mayEnd reports whether a service may end by itself if its restart policy lets it.
// A service that publishes ports, or has a health check in the Compose files, must
// stay, unless another service waits for its end. A health check of its image does
// not count: jobs are often run from a service's image.
func (m model) mayEnd(service string) bool {
	if m.awaited(service) {
		return true
	}
	s := m.Services[service]
	checked := s.Healthcheck != nil && !s.Healthcheck.none()
	return len(s.Ports) == 0 && !checked
}

// awaited reports whether another service waits until this one has ended.
func (m model) awaited(service string) bool {
	for _, other := range m.Services {
		if other.DependsOn[service].Condition == conditionCompleted {
			return true
		}
	}
	return false
}

// names returns the services, sorted.
func (m model) names() []string {
	var names []string
	for n := range m.Services {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// content marks an error that is in the files themselves.
func content(err error) error {
	var r *rules.Refused
	if errors.As(err, &r) {
		return submodules.Mark(err, submodules.ErrContent)
	}
	return err
}

// rules is the project as far as app-gen judges it too.
func (m model) rules() *rules.Model {
	r := &rules.Model{Services: map[string]rules.Service{}, Networks: map[string]rules.Network{}, Volumes: map[string]rules.Volume{}, Configs: m.Configs, Secrets: m.Secrets}
	for name, s := range m.Services {
		r.Services[name] = s.Service
	}
	for name, n := range m.Networks {
		r.Networks[name] = rules.Network{Name: n.Name, Driver: n.Driver}
	}
	for name, v := range m.Volumes {
		r.Volumes[name] = rules.Volume{DriverOpts: v.DriverOpts}
	}
	return r
}

// checkLevel refuses what an application may not reach on the device. A field that nobody
// knows does not keep one from starting that was accepted before. existing are containers of
// the application.
func (s *session) checkLevel(p *project, existing []container.Summary) error {
	err := rules.CheckLevel(p.text, p.dir, s.set.levels.Of(s.req.App), p.written(existing)...)
	if err != nil && s.mustStart && rules.CheckLevel(p.text, p.dir, rules.Trusted) != nil {
		s.req.Logf("warning: %v", err)
		return nil
	}
	return content(err)
}

// written are the directories of data that containers may write, as paths in the manifests.
func (p *project) written(existing []container.Summary) (list []string) {
	for _, c := range existing {
		for _, m := range c.Mounts {
			rel, err := filepath.Rel(p.data, m.Source)
			if p.data != "" && m.Type == "bind" && m.RW && err == nil && filepath.IsLocal(rel) {
				list = append(list, filepath.Join(p.dir, rel))
			}
		}
	}
	return list
}

// checkModel refuses what a device never runs, and what its operator forbids.
func (p *project) checkModel(set settings) error {
	return content(p.model.rules().Check(p.dir, set.rules()))
}

// invalid is an error in the manifests themselves.
func invalid(format string, args ...any) error {
	return submodules.Mark(fmt.Errorf(format, args...), submodules.ErrContent)
}

// maxRead bounds how long Compose may take to read the files. A slow device
// takes some seconds for a large project.
const maxRead = 2 * time.Minute

// readProcessor is the processor time that it may take. It usually takes a second, and a
// few on a small device.
const readProcessor = 30 * time.Second

// bounded keeps the first bytes of a command's output, and ends the command when
// there are more.
type bounded struct {
	submodules.Capped
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	n, err := b.Capped.Write(p)
	if b.Over {
		b.full()
	}
	return n, err
}

// readProject lets Compose read the files in dir, and refuses what cannot be
// installed. existing is the project of the containers that already run from dir, if
// any. strict refuses files outside the manifests before Compose reads them.
func (s *session) readProject(ctx context.Context, c *command, dir, existing string, strict bool) (*project, error) {
	files, err := rules.FindFiles(dir)
	if err != nil {
		return nil, content(err)
	}
	p := &project{dir: dir, files: files, images: map[string]string{}, marked: map[string]bool{}}
	in, err := inStore(s.req.App, dir)
	if err == nil && in {
		p.mounts, err = s.mountsBase(ctx, dir)
	}
	if err == nil && (in || !ownDirectory(s.req.App, dir)) { // the link, or the directory of a release
		p.data, p.owner, err = s.dataBase(ctx, dir)
	}
	if err != nil {
		return nil, err
	}
	shipped, err := variables(dir, s.req.Values)
	if err != nil {
		return nil, err
	}
	if p.env, err = writeEnv(shipped, s.req.TempDir); err != nil {
		return nil, err
	}
	p.here = rules.Here(shipped)
	layers, err := writeLayers(s.req.Overrides, s.req.TempDir)
	if err != nil {
		return nil, err
	}
	if strict {
		env := c.environ()
		env["PWD"] = p.here
		err := rules.CheckFiles(p.dir, p.files, layers, s.set.rules(), func(name string) (string, bool) {
			if v, ok := env[name]; ok {
				return v, true
			}
			v, ok := shipped[name]
			return v, ok
		})
		if err != nil {
			return nil, content(err)
		}
	}
	named, err := rules.Named(p.dir, p.files)
	if err != nil {
		return nil, content(err)
	}
	if !named {
		// A name in the files wins; -p would override it.
		if p.name = existing; p.name == "" {
			p.name = rules.ProjectName(s.req.App)
		}
	}
	p.files = append(p.files, layers...)
	readCtx, cancel := context.WithTimeout(ctx, maxRead)
	defer cancel()
	var out bounded
	var said *tail
	for try := 1; ; try++ {
		out, said = bounded{Capped: submodules.Capped{Max: rules.MaxModel}, full: cancel}, &tail{}
		err = p.run(readCtx, c.limited(readProcessor), &out, said, "config", "--format", "json")
		if !wasKilled(err) || try == killTries {
			break
		}
	}
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return nil, err
		case out.Over: // that is why it was ended
		case errors.Is(err, errOverrun):
			return nil, fmt.Errorf("the compose files in %s: %w", dir, err)
		case wasKilled(err):
			return nil, fmt.Errorf("the compose files in %s: Docker Compose was killed while it read them; is there too little memory? (%w)", dir, err)
		case readCtx.Err() != nil:
			return nil, invalid("Docker Compose does not read the compose files in %s within %v", dir, maxRead)
		default:
			return nil, s.blame(ctx, c, dir, existing, strict, invalid("the compose files in %s are not valid: %w", dir, said.reason(err)))
		}
	}
	if out.Over {
		return nil, invalid("the compose files in %s come to more than %d MiB when their aliases and extensions are followed", dir, rules.MaxModel>>20)
	}
	if err := json.Unmarshal(out.Bytes(), &p.model); err != nil {
		return nil, fmt.Errorf("docker compose config: %w", err)
	}
	p.text = out.Bytes()
	if p.name == "" {
		p.name = p.model.Name
	}
	if p.name == "" {
		return nil, errors.New("docker compose config: no project name")
	}
	s.switchOff(p)
	if err := s.reserve(p, strict); err != nil {
		return nil, err
	}
	return p, content(p.model.rules().CheckServices(p.dir))
}

// reserve gives services the processors that the device reserves for them. What cannot be
// done is an error if strict is set. A rollback goes on without it.
func (s *session) reserve(p *project, strict bool) error {
	labels := map[string]map[string]string{}
	for name, svc := range p.model.Services {
		labels[name] = svc.Labels
	}
	services, list, problems := reservedCPUs(s.req.CPUSet, labels, submodules.OnlineCPUs())
	for _, err := range problems {
		if strict {
			return err
		}
		if s.back {
			s.req.Logf("warning: %v", err)
		}
	}
	for _, name := range services {
		svc := p.model.Services[name]
		svc.CPUSet, svc.reserved = list, true
		p.model.Services[name] = svc
	}
	return nil
}

// switchOff gives the services that are switched off no containers. Compose then stops
// and removes what runs of them, and other services do not wait for them.
func (s *session) switchOff(p *project) {
	for _, name := range s.req.Disabled {
		svc, ok := p.model.Services[name]
		if !ok {
			s.req.Logf("warning: service %s is to be switched off, and the compose files do not have it", name)
			continue
		}
		svc.off = true
		p.model.Services[name] = svc
	}
}

// run runs a Compose command on the project.
func (p *project) run(ctx context.Context, c *command, stdout, stderr io.Writer, args ...string) error {
	in := *c
	in.env = append(slices.Clip(c.env), "PWD="+p.here)
	return in.run(ctx, p.dir, stdout, stderr, p.args(args...)...)
}

// args are the arguments of a Compose command on the project.
func (p *project) args(more ...string) []string {
	args := []string{"--project-directory", p.dir}
	if p.env != "" {
		args = append(args, "--env-file", p.env)
	}
	if p.name != "" {
		args = append(args, "-p", p.name)
	}
	for _, f := range p.files {
		args = append(args, "-f", f)
	}
	return append(args, more...)
}
