package manifests

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/reach"
	"github.com/mender-app/mender-app/submodules/level"
)

// Reach is what a service or pod can touch beyond its own containers and the
// files that are shipped with it.
type Reach struct {
	By          string `json:"by"`                     // `service "web"`, `Deployment "web"`
	Privileged  bool   `json:"privileged,omitempty"`   // a container or hook of it
	HostPID     bool   `json:"host_pid,omitempty"`     // it sees the device's processes
	HostNetwork bool   `json:"host_network,omitempty"` // it uses the device's network interfaces
	HostIPC     bool   `json:"host_ipc,omitempty"`
	HostRoot    bool   `json:"host_root,omitempty"` // it mounts / of the device
	// Outside are files and directories of the device that are not in the
	// manifests: bind mounts, host paths, env files, configs and secrets.
	Outside      []string `json:"outside,omitempty"`
	Devices      []string `json:"devices,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"` // added ones
	// Options are security options that take protection away.
	Options []string `json:"options,omitempty"`
	// Programs are programs of the device that the orchestrator runs.
	Programs []string `json:"programs,omitempty"`
}

// Words lists what is reached, the most dangerous first, one short text each.
func (r *Reach) Words() []string {
	var list []string
	for _, b := range []struct {
		set  bool
		text string
	}{
		{r.Privileged, "privileged"}, {r.HostRoot, "mounts / of the device"}, {r.HostPID, "host pid"},
		{r.HostNetwork, "host network"}, {r.HostIPC, "host ipc"},
	} {
		if b.set {
			list = append(list, b.text)
		}
	}
	add := func(kind string, texts []string) {
		if len(texts) > 0 {
			list = append(list, kind+" "+strings.Join(texts, ", "))
		}
	}
	add("runs", r.Programs)
	add("capabilities", r.Capabilities)
	add("security options", r.Options)
	add("devices", r.Devices)
	add("outside of the manifests:", r.Outside)
	return list
}

// outside notes a path of the device.
func (r *Reach) outside(p string) {
	if path.Clean(p) == "/" {
		r.HostRoot = true
	}
	r.Outside = append(r.Outside, p)
}

// clean sorts the lists and says whether anything is reached.
func (r *Reach) clean() bool {
	for _, list := range []*[]string{&r.Outside, &r.Devices, &r.Capabilities, &r.Options, &r.Programs} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return len(r.Words()) > 0
}

// ComposeReach lists what the active services of the compose project in dir can
// reach. Unlike Compose it accepts projects that a device would refuse. It takes
// variables from the project's own .env only, as a device does.
func ComposeReach(ctx context.Context, dir string) ([]Reach, error) {
	c, project, err := shippedProject(ctx, dir)
	if err != nil {
		return nil, err
	}
	var list []Reach
	for _, name := range project.ServiceNames() {
		s := project.Services[name]
		r := Reach{By: fmt.Sprintf("service %q", name)}
		c.containerReach(&r, project, &s.ContainerSpec)
		for i := range s.PreStart {
			c.containerReach(&r, project, &s.PreStart[i].ContainerSpec)
		}
		for _, hooks := range [][]types.ServiceHook{s.PostStart, s.PreStop} {
			for _, h := range hooks {
				r.Privileged = r.Privileged || h.Privileged
			}
		}
		if s.Provider != nil {
			r.Programs = append(r.Programs, s.Provider.Type)
		}
		if s.Deploy != nil && s.Deploy.Resources.Reservations != nil {
			for _, d := range s.Deploy.Resources.Reservations.Devices {
				r.Devices = append(r.Devices, strings.Join(append([]string{cmp.Or(d.Driver, "device")}, d.Capabilities...), " "))
			}
		}
		if r.clean() {
			list = append(list, r)
		}
	}
	return list, nil
}

// shippedProject loads the project in dir with the variables of its own .env only.
func shippedProject(ctx context.Context, dir string) (*composer, *types.Project, error) {
	dir, err := realDir(dir)
	if err != nil {
		return nil, nil, err
	}
	c := newComposer(dir, ComposeOptions{})
	if err := c.environment(); err != nil {
		return nil, nil, err
	}
	files, err := c.files()
	if err != nil {
		return nil, nil, err
	}
	project, err := c.load(ctx, files)
	return c, project, err
}

// ComposeLevel returns the level that a device must give the application in dir, and for
// what: see package level.
func ComposeLevel(ctx context.Context, dir string) (level string, why []string, err error) {
	c, project, err := shippedProject(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	text, err := project.WithoutUnnecessaryResources().MarshalJSON()
	if err != nil {
		return "", nil, err
	}
	needs, err := rules.Needs(text, c.dir)
	if err != nil {
		return "", nil, err
	}
	top := rules.Confined
	for _, n := range needs {
		if n.Level > top {
			top, why = n.Level, nil
		}
		if n.Level == top {
			why = append(why, n.String())
		}
	}
	return top.String(), why, nil
}

// KubernetesLevel is ComposeLevel for the manifests in dir, in a namespace; "" is the
// device's choice.
func KubernetesLevel(dir, namespace string) (top string, why []string, err error) {
	objects, err := manifest.Read(dir, func(io.Reader) ([]byte, error) { return nil, nil }) // what is encrypted is the device's to judge
	if err != nil {
		return "", nil, deviceRefuses(err)
	}
	at := level.Confined
	for _, n := range reach.Needs(objects, namespace) {
		if n.Level > at {
			at, why = n.Level, nil
		}
		if n.Level == at {
			why = append(why, n.String())
		}
	}
	return at.String(), why, nil
}

func (c *composer) containerReach(r *Reach, p *types.Project, s *types.ContainerSpec) {
	r.Privileged = r.Privileged || s.Privileged
	r.HostPID = r.HostPID || s.Pid == "host"
	r.HostNetwork = r.HostNetwork || s.NetworkMode == "host"
	r.HostIPC = r.HostIPC || s.Ipc == "host"
	for name := range s.Networks {
		n := p.Networks[name]
		r.HostNetwork = r.HostNetwork || n.Name == "host" || n.Driver == "host"
	}
	for _, mode := range append([]string{s.Pid, s.Ipc, s.NetworkMode}, s.VolumesFrom...) {
		if strings.HasPrefix(mode, "container:") { // of another application, or of none
			r.Outside = append(r.Outside, mode)
		}
	}
	for _, o := range []struct{ name, value string }{{"uts", s.Uts}, {"userns", s.UserNSMode}, {"cgroup", s.Cgroup}} {
		if o.value == "host" {
			r.Options = append(r.Options, o.name+"=host")
		}
	}
	if s.CgroupParent != "" {
		r.Options = append(r.Options, "cgroup_parent="+s.CgroupParent)
	}
	for _, o := range s.SecurityOpt {
		if !strings.HasPrefix(o, "no-new-privileges") || strings.HasSuffix(o, "false") {
			r.Options = append(r.Options, o)
		}
	}
	r.Capabilities = append(r.Capabilities, s.CapAdd...)
	for _, d := range s.Devices {
		r.Devices = append(r.Devices, d.Source)
	}
	for _, rule := range s.DeviceCgroupRules {
		r.Devices = append(r.Devices, "rule "+rule)
	}
	for _, d := range s.Gpus {
		r.Devices = append(r.Devices, strings.Join(append([]string{cmp.Or(d.Driver, "gpu")}, d.Capabilities...), " "))
	}
	if s.UseAPISocket {
		r.outside("/var/run/docker.sock")
	}
	for _, v := range s.Volumes {
		switch v.Type {
		case types.VolumeTypeBind, types.VolumeTypeNamedPipe:
			c.pathReach(r, v.Source)
		case types.VolumeTypeVolume:
			// a named volume of the local driver may be a bind mount
			if o := p.Volumes[v.Source].DriverOpts; strings.HasPrefix(o["device"], "/") {
				r.outside(o["device"])
			}
		}
	}
	for _, f := range s.EnvFiles {
		c.pathReach(r, f.Path)
	}
	for _, f := range s.LabelFiles {
		c.pathReach(r, f)
	}
	for _, f := range s.Configs {
		c.pathReach(r, p.Configs[f.Source].File)
	}
	for _, f := range s.Secrets {
		c.pathReach(r, p.Secrets[f.Source].File)
	}
}

// pathReach notes a path that is not in the manifests directory.
func (c *composer) pathReach(r *Reach, name string) {
	if name == "" {
		return
	}
	if _, inside := relative(c.dir, name); !inside || ofDevice(name) {
		r.outside(name)
	}
}

// KubernetesReach lists what the pods of the manifests in dir can reach. Unlike
// Kubernetes it accepts manifests that a device would refuse, as long as they
// are YAML.
func KubernetesReach(dir string) ([]Reach, error) {
	k := &kube{reach: map[string]*Reach{}}
	if err := k.read(dir); err != nil {
		return nil, err
	}
	var list []Reach
	for _, who := range slices.Sorted(maps.Keys(k.reach)) {
		if r := k.reach[who]; r.clean() {
			list = append(list, *r)
		}
	}
	return list, nil
}
