package manifests

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// This file says what a device with one engine does not do, or does only if somebody
// prepared it.

// plainDevice warns of networks that need a swarm, and notes networks and volumes that
// must be on the device.
func (c *composer) plainDevice(p *types.Project) {
	for _, name := range slices.Sorted(maps.Keys(p.Networks)) {
		n, at := p.Networks[name], c.index.find("networks", name)
		switch {
		case bool(n.External):
			c.note(at, "network %q must be on the device before: docker network create %s; without external, the application has its own", name, n.Name)
		case n.Driver == "overlay":
			c.warn(c.index.find("networks", name, "driver"), "network %q: the driver overlay needs a swarm, which a device has not: leave driver out", name)
		case !slices.Contains(builtInDrivers, n.Driver):
			c.note(c.index.find("networks", name, "driver"), "network %q: the plugin %s must be on the device", name, n.Driver)
		case n.DriverOpts["parent"] != "":
			c.note(c.index.find("networks", name, "driver_opts"), "network %q: the device needs the network interface %s", name, n.DriverOpts["parent"])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Volumes)) {
		switch v := p.Volumes[name]; {
		case bool(v.External):
			c.note(c.index.find("volumes", name), "volume %q must be on the device before: docker volume create %s; without external, the application has its own", name, v.Name)
		case v.Driver != "" && v.Driver != "local":
			c.note(c.index.find("volumes", name, "driver"), "volume %q: the plugin %s must be on the device", name, v.Driver)
		}
	}
}

// externalObject refuses a config or secret that a swarm would have. Compose stops at it when
// a service uses it.
func (c *composer) externalObject(p *types.Project, key, one, name string) error {
	for _, service := range p.ServiceNames() {
		s := p.Services[service]
		uses := slices.ContainsFunc(s.Configs, func(r types.ServiceConfigObjConfig) bool { return key == "configs" && r.Source == name }) ||
			slices.ContainsFunc(s.Secrets, func(r types.ServiceSecretConfig) bool { return key == "secrets" && r.Source == name })
		if uses {
			return &Error{Place: c.index.find(key, name), Text: fmt.Sprintf("%s %q of service %q is external: a swarm has such, a device has not", one, name, service),
				Hint: "give it a file: beside the Compose file, or the absolute path of one on the device"}
		}
	}
	return nil
}

// builtInDrivers are the network drivers of an engine without plugins.
var builtInDrivers = []string{"", "bridge", "host", "none", "macvlan", "ipvlan", "overlay"}

// driveLetter matches what Compose takes for a path of Windows.
var driveLetter = regexp.MustCompile(`^[A-Za-z]:[/\\]`)

// plainService warns of what Compose ignores outside of a swarm, and notes what must be on
// the device.
func (c *composer) plainService(s types.ServiceConfig) error {
	at := func(keys ...string) Place { return c.index.find(append([]string{"services", s.Name}, keys...)...) }
	who := fmt.Sprintf("service %q", s.Name)
	for _, v := range s.Volumes {
		if path := v.Target; driveLetter.MatchString(path) {
			return &Error{Place: at("volumes"), Text: fmt.Sprintf("%s: Compose takes the volume %s for a path of Windows", who, path), Hint: "give the volume a name of two letters or more"}
		}
		if v.Type == types.VolumeTypeBind && filepath.IsAbs(v.Source) && v.Bind != nil && !bool(v.Bind.CreateHostPath) {
			c.note(at("volumes"), "%s: %s must be on the device before", who, v.Source)
		}
	}
	c.othersThings(who, s, at)
	if d := s.Deploy; d != nil {
		ignored := func(is bool, key string) {
			if is {
				c.warn(at("deploy", key), "%s: deploy.%s is for a swarm, and a device ignores it: leave it out", who, key)
			}
		}
		ignored(len(d.Placement.Constraints)+len(d.Placement.Preferences) > 0 || d.Placement.MaxReplicas > 0, "placement")
		ignored(d.UpdateConfig != nil, "update_config")
		ignored(d.RollbackConfig != nil, "rollback_config")
		ignored(d.EndpointMode != "", "endpoint_mode")
		ignored(d.Mode == "global" || d.Mode == "global-job" || d.Mode == "replicated-job", "mode")
		if r := d.Resources.Reservations; r != nil && len(r.Devices) > 0 {
			c.note(at("deploy", "resources", "reservations", "devices"), "%s: the device needs this hardware and its runtime, as of a GPU", who)
		}
	}
	if len(s.Gpus) > 0 {
		c.note(at("gpus"), "%s: the device needs a GPU and its runtime", who)
	}
	for _, d := range s.Devices {
		c.note(at("devices"), "%s: %s must be on the device, or the service does not start", who, d.Source)
	}
	return nil
}

// ofOthers are directories in which a device has what belongs to its applications, where they
// are by default.
var ofOthers = []string{"/data/mender-app", "/data/mender-app-data", "/data/mender-app-mounts", "/run/mender-app/secrets", "/var/run/mender-app/secrets", "/data/mender-docker-compose", "/var/lib/docker", "/var/lib/containerd"}

// ofEngines are those that services may mount to read them.
var ofEngines = []string{"/var/lib/docker", "/var/lib/containerd"}

// othersThings warns of what a device refuses unless its operator allows the pair of
// applications.
func (c *composer) othersThings(who string, s types.ServiceConfig, at func(keys ...string) Place) {
	const unless = "a device refuses this release unless ALLOW_OTHERS in its mender-app-docker-compose.conf allows it"
	container := func(key, name string) {
		c.warn(at(key), "%s: %s %s: if the container is another application's, %s", who, key, name, unless)
	}
	for _, m := range []struct{ key, value string }{{"network_mode", s.NetworkMode}, {"pid", s.Pid}, {"ipc", s.Ipc}} {
		if strings.HasPrefix(m.value, "container:") {
			container(m.key, m.value)
		}
	}
	for _, from := range s.VolumesFrom {
		if strings.HasPrefix(from, "container:") {
			container("volumes_from", from)
		}
	}
	for _, link := range s.ExternalLinks {
		container("external_links", link)
	}
	for _, v := range s.Volumes {
		for _, dir := range ofOthers {
			if v.Type != types.VolumeTypeBind || !filepath.IsAbs(v.Source) || v.ReadOnly && slices.Contains(ofEngines, dir) {
				continue
			}
			_, in := relative(dir, v.Source)
			if _, above := relative(filepath.Clean(v.Source), dir); in || above && filepath.Clean(v.Source) == filepath.Dir(dir) {
				c.warn(at("volumes"), "%s: %s is where a device has what belongs to applications: %s", who, v.Source, unless)
				break
			}
		}
	}
}

// together makes one error of several, so that all of them can be mended at once.
func together(errs []*Error) error {
	if len(errs) == 0 {
		return nil
	}
	all := *errs[0]
	for _, e := range errs[1:] {
		all.Text += "; " + e.Error()
		if e.Hint != "" && e.Hint != errs[0].Hint {
			all.Text += " (" + e.Hint + ")"
		}
	}
	return &all
}
