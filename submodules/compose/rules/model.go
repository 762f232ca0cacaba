package rules

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/mender-app/mender-app/artifact/names"
)

// MaxModel bounds a project as Compose prints it, in bytes: in a few lines of YAML,
// aliases can name each other many times over.
const MaxModel = 8 << 20

// Model is the part of `docker compose config --format json` that is judged.
type Model struct {
	Services map[string]Service `json:"services"`
	Networks map[string]Network `json:"networks"`
	Volumes  map[string]Volume  `json:"volumes"`
	Configs  map[string]File    `json:"configs"`
	Secrets  map[string]File    `json:"secrets"`
}

// Service is a service as Compose prints it.
type Service struct {
	Image      string          `json:"image"`
	Build      json.RawMessage `json:"build"`
	PullPolicy string          `json:"pull_policy"`
	Scale      *int            `json:"scale"`
	Deploy     *struct {
		Replicas      *int            `json:"replicas"`
		RestartPolicy json.RawMessage `json:"restart_policy"`
		Resources     json.RawMessage `json:"resources"`
	} `json:"deploy"`
	Provider    json.RawMessage `json:"provider"`
	Models      json.RawMessage `json:"models"`
	Privileged  bool            `json:"privileged"`
	Pid         string          `json:"pid"`
	Ipc         string          `json:"ipc"`
	NetworkMode string          `json:"network_mode"`
	Networks    map[string]any  `json:"networks"`
	PreStart    []Service       `json:"pre_start"` // containers that run before it
	PostStart   []Hook          `json:"post_start"`
	PreStop     []Hook          `json:"pre_stop"`
	Volumes     []Mount         `json:"volumes"`
	VolumesFrom []string        `json:"volumes_from"`
	Links       []string        `json:"external_links"`
	Secrets     []secretUse     `json:"secrets"`
}

// Containers are the service and those that run before it.
func (s Service) Containers() []Service { return append([]Service{s}, s.PreStart...) }

// Network is a network as Compose prints it.
type Network struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
}

// Volume is a volume as Compose prints it.
type Volume struct {
	DriverOpts map[string]string `json:"driver_opts"`
}

// File is a config or a secret.
type File struct {
	File string `json:"file"`
}

// Hook is a command that Compose runs in a service's container.
type Hook struct {
	Privileged bool `json:"privileged"`
}

// Mount is an entry of volumes in its long form.
type Mount map[string]any

// Text returns the text of a key, "" if it is none.
func (m Mount) Text(key string) string {
	s, _ := m[key].(string)
	return s
}

// Replicas is the number of containers that the files give a service.
func (s Service) Replicas() int {
	if s.Scale != nil {
		return *s.Scale
	}
	if s.Deploy != nil && s.Deploy.Replicas != nil {
		return *s.Deploy.Replicas
	}
	return 1
}

// names returns the services, sorted.
func (m *Model) names() []string { return slices.Sorted(maps.Keys(m.Services)) }

// CheckServices refuses services that no device can run: it neither builds nor pulls.
// Unlike Check it holds also for a release that was accepted once. dir is for the message.
func (m *Model) CheckServices(dir string) error {
	if len(m.Services) == 0 {
		return refused("the compose files in %s have no service", dir)
	}
	for _, name := range m.names() {
		svc := m.Services[name]
		// With an image, build: only says how the image was made elsewhere: Compose
		// is called with --no-build.
		if svc.Image == "" && len(svc.Build) > 0 && string(svc.Build) != "null" {
			return refused("service %s has build: and no image:, and images are not built on the device; name an image that the artifact brings", name)
		}
		switch policy := svc.PullPolicy; {
		case policy == "always", policy == "build", policy == "refresh", policy == "daily", policy == "weekly", strings.HasPrefix(policy, "every_"):
			return refused("service %s has pull_policy: %s, and images are not pulled on the device; remove it or say missing", name, policy)
		}
		if svc.Image == "" {
			return refused("service %s has no image", name)
		}
	}
	return nil
}

// Check refuses configs and secrets from outside the manifests in dir, what a device never
// does, and what the operator forbids.
func (m *Model) Check(dir string, set Settings) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	c := fileCheck{dir: dir, real: real, allowed: set.Outside}
	for kind, objects := range map[string]map[string]File{"config": m.Configs, "secret": m.Secrets} {
		for _, o := range objects {
			if o.File == "" {
				continue
			}
			if err := c.inside(Reference{Kind: kind, Name: o.File, Base: dir}); err != nil {
				return err
			}
		}
	}
	if !slices.ContainsFunc(m.names(), func(name string) bool { return m.Services[name].Replicas() > 0 }) {
		return refused("no service has a container: each has replicas: 0 or scale: 0; switch services off with services.disabled in a policy, or give one a container")
	}
	for _, name := range m.names() {
		for _, c := range m.Services[name].Containers() {
			if _, err := reference.ParseAnyReference(c.Image); c.Image != "" && err != nil {
				return refused("service %s has the image %q, which is no image's name (%w): is a variable empty?", name, c.Image, err)
			}
		}
		for _, v := range m.Services[name].Volumes {
			rel, err := filepath.Rel(dir, v.Text("source"))
			if v.Text("type") == "bind" && err == nil && strings.HasPrefix(rel, "~") {
				return refused("service %s mounts %s, and an application on a device has no home directory: name a directory beside the Compose file, such as ./data, a volume, or an absolute path", name, rel)
			}
			if v.Text("type") == "bind" && err == nil && filepath.IsLocal(rel) {
				if err := names.CheckPath(rel); err != nil {
					return refused("service %s mounts a path that no device can have: %w", name, err)
				}
			}
		}
		if provider := m.Services[name].Provider; len(provider) > 0 && string(provider) != "null" {
			return refused("service %s has a provider: Compose would run a program on the device itself, as root and outside of any container; use a service with an image, or a hook", name)
		}
		if models := m.Services[name].Models; len(models) > 0 && string(models) != "null" {
			return refused("service %s has models: Compose would run docker model on the device itself, which fetches them from elsewhere; use a service with an image", name)
		}
		for _, r := range m.reach(name) {
			if slices.Contains(set.Refuse, r) {
				return refused("service %s has %s, and REFUSE in %s refuses that", name, r, ConfName)
			}
		}
	}
	return nil
}

// ReachKinds are the words that REFUSE may list.
var ReachKinds = []string{"privileged", "host-pid", "host-network", "mount-root"}

// reach lists those of ReachKinds that a service has.
func (m *Model) reach(name string) (kinds []string) {
	s := m.Services[name]
	if slices.ContainsFunc(append(s.PostStart, s.PreStop...), func(h Hook) bool { return h.Privileged }) {
		kinds = append(kinds, "privileged")
	}
	for _, c := range s.Containers() {
		kinds = append(kinds, m.reachOf(c)...)
	}
	return kinds
}

func (m *Model) reachOf(s Service) (kinds []string) {
	if s.Privileged {
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
		switch v.Text("type") {
		case "bind":
			sources = []string{v.Text("source")}
		case "volume": // of the local driver, it may be a mount of any kind
			opts := m.Volumes[v.Text("source")].DriverOpts
			for _, at := range append(layersOf(opts["o"]), opts["device"]) {
				if at != "" { // the engine's working directory is /
					sources = append(sources, filepath.Join("/", at))
				}
			}
		}
		if slices.ContainsFunc(sources, IsRootOfDevice) {
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
