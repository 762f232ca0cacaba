package manifests

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

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
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Volumes)) {
		if v := p.Volumes[name]; bool(v.External) {
			c.note(c.index.find("volumes", name), "volume %q must be on the device before: docker volume create %s; without external, the application has its own", name, v.Name)
		}
	}
}

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
