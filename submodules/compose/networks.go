package compose

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// networkModel is a network of a project as Compose prints it.
type networkModel struct {
	Name       string            `json:"name"`
	External   bool              `json:"external"`
	Driver     string            `json:"driver"`
	DriverOpts map[string]string `json:"driver_opts"`
	IPAM       struct {
		Driver string `json:"driver"`
		Config []pool `json:"config"`
	} `json:"ipam"`
	Internal   bool              `json:"internal"`
	Attachable bool              `json:"attachable"`
	EnableIPv4 *bool             `json:"enable_ipv4"`
	EnableIPv6 *bool             `json:"enable_ipv6"`
	Labels     map[string]string `json:"labels"`
}

// pool is a range of addresses.
type pool struct {
	Subnet       string            `json:"subnet"`
	Gateway      string            `json:"gateway"`
	IPRange      string            `json:"ip_range"`
	AuxAddresses map[string]string `json:"aux_addresses"`
}

// defaultNetworkDriver is the engine's.
const defaultNetworkDriver = "bridge"

// sum is a hash of what Compose makes the network from, but its name. The networks that
// are made here have it as a label. Without it, nobody could tell whether an engine has
// chosen a subnet or an option, or an older release has named it.
func (n networkModel) sum() string {
	n.Name, n.Driver = "", cmp.Or(n.Driver, defaultNetworkDriver)
	n.Labels = maps.Clone(n.Labels)
	delete(n.Labels, labelContent)
	text, _ := json.Marshal(n) // it cannot fail: texts and truth values
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:16])
}

// lacks says what the engine's network does not have of the model; "" if it has all. What
// the model does not say, the engine may have chosen. Podman reports options and ranges in
// its own way, so only a part is compared there.
func (n networkModel) lacks(on network.Inspect, podman bool) string {
	type property struct {
		what      string
		want, has any
	}
	list := []property{{"internal", n.Internal, on.Internal}, {"driver", cmp.Or(n.Driver, defaultNetworkDriver), on.Driver}}
	if !podman {
		list = append(list, property{"attachable", n.Attachable, on.Attachable})
		for _, key := range slices.Sorted(maps.Keys(n.DriverOpts)) {
			list = append(list, property{key, n.DriverOpts[key], on.Options[key]})
		}
		if n.IPAM.Driver != "" {
			list = append(list, property{"ipam.driver", n.IPAM.Driver, on.IPAM.Driver})
		}
	}
	if n.EnableIPv6 != nil {
		list = append(list, property{"enable_ipv6", *n.EnableIPv6, on.EnableIPv6})
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		if key != labelContent {
			list = append(list, property{"label " + key, n.Labels[key], on.Labels[key]})
		}
	}
	for _, p := range list {
		if p.want != p.has {
			return fmt.Sprintf("%s becomes %v, from %v", p.what, p.want, cmp.Or(fmt.Sprint(p.has), `""`))
		}
	}
	for _, want := range n.IPAM.Config {
		if want.Subnet != "" && !slices.ContainsFunc(on.IPAM.Config, func(has network.IPAMConfig) bool { return want.is(has, podman) }) {
			return "its subnet becomes " + want.Subnet
		}
	}
	return ""
}

// is reports whether the engine's range of addresses has what the model says.
func (p pool) is(on network.IPAMConfig, podman bool) bool {
	if !samePrefix(p.Subnet, on.Subnet) || p.Gateway != "" && p.Gateway != on.Gateway {
		return false
	}
	return podman || samePrefix(p.IPRange, on.IPRange) && (len(p.AuxAddresses) == 0 && len(on.AuxAddress) == 0 || maps.Equal(p.AuxAddresses, on.AuxAddress))
}

func samePrefix(a, b string) bool {
	pa, aerr := netip.ParsePrefix(a)
	pb, berr := netip.ParsePrefix(b)
	if aerr != nil || berr != nil {
		return a == b
	}
	return pa.Masked() == pb.Masked()
}

// renewal is a network that the release makes anew: no network can be changed.
type renewal struct {
	key, name, id string
	why           string
	ours          []container.Summary // on it, in any state, and those that share their network
	others        []string            // names of containers on it that are not the application's
}

// planNetworks compares the networks that the services use with those of the engine: it
// notes those that are to be made anew and, for override, the labels of those that have
// one or get one.
func (s *session) planNetworks(ctx context.Context, pl *plan) error {
	podman := s.engine.Podman(ctx)
	pl.sums, pl.renewals = map[string]string{}, nil
	mine := map[string]bool{pl.name: true}
	for _, c := range pl.existing {
		mine[c.Labels[labelProject]] = true
	}
	for _, key := range pl.model.usedNetworks() {
		n := pl.model.Networks[key]
		if n.External || n.Name == "" {
			continue
		}
		on, found, err := s.network(ctx, n.Name, mine)
		switch {
		case err != nil:
			return err
		case !found:
			pl.sums[key] = n.sum()
			continue
		case !mine[on.Labels[labelProject]]:
			continue // Compose warns, or refuses it
		}
		why, sum := n.lacks(on, podman), on.Labels[labelContent]
		switch {
		case on.Labels[labelNetwork] != key:
			why = fmt.Sprintf("the compose files call it %s, and no longer %s", key, on.Labels[labelNetwork])
		case why == "" && sum != "" && sum != n.sum():
			why = "what the compose files say of it changes"
		}
		if why == "" {
			if sum != "" {
				pl.sums[key] = sum
			}
			continue
		}
		pl.sums[key] = n.sum()
		r := renewal{key: key, name: n.Name, id: on.ID, why: why}
		s.findUsers(pl, &r)
		pl.renewals = append(pl.renewals, r)
	}
	return nil
}

// network inspects the network of that name, that of one of the projects if there are several.
func (s *session) network(ctx context.Context, name string, projects map[string]bool) (on network.Inspect, found bool, err error) {
	nets, err := s.networks(ctx, filters.Arg("name", name))
	if err != nil {
		return on, false, err
	}
	nets = slices.DeleteFunc(nets, func(n network.Summary) bool { return n.Name != name })
	if len(nets) == 0 {
		return on, false, nil
	}
	i := max(slices.IndexFunc(nets, func(n network.Summary) bool { return projects[n.Labels[labelProject]] }), 0)
	on, err = s.engine.Client().NetworkInspect(ctx, nets[i].ID, network.InspectOptions{})
	if docker.IsNotFound(err) {
		return on, false, nil
	}
	if err != nil {
		return on, false, fmt.Errorf("network %s: %w", name, err)
	}
	return on, true, nil
}

// findUsers finds the containers on a network.
func (s *session) findUsers(pl *plan, r *renewal) {
	ours := map[string]bool{}
	for _, c := range append(slices.Clone(pl.existing), s.owned(pl.everything)...) {
		ours[c.ID] = true
	}
	on := map[string]bool{}
	for _, c := range pl.everything {
		if c.NetworkSettings == nil {
			continue
		}
		for name, ep := range c.NetworkSettings.Networks {
			if ep != nil && (ep.NetworkID == r.id || ep.NetworkID == "" && name == r.name) {
				on[c.ID] = true
			}
		}
	}
	for _, c := range pl.everything {
		shared, _ := strings.CutPrefix(c.HostConfig.NetworkMode, "container:")
		switch {
		case !on[c.ID] && !on[shared]:
		case ours[c.ID]:
			r.ours = append(r.ours, c)
		default:
			r.others = append(r.others, name(c))
		}
	}
}

// usedNetworks are the networks that services use, sorted.
func (m model) usedNetworks() []string {
	used := map[string]bool{}
	for _, svc := range m.Services {
		for key := range svc.Networks {
			used[key] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// moved are the services whose containers cannot stay, because a network that they use is
// made anew, or they share that of a service that does.
func (pl *plan) moved() map[string]bool {
	moved := map[string]bool{}
	for _, r := range pl.renewals {
		for name, svc := range pl.model.Services {
			if _, ok := svc.Networks[r.key]; ok {
				moved[name] = true
			}
		}
	}
	for before := -1; before < len(moved); {
		before = len(moved)
		for name, svc := range pl.model.Services {
			if of, ok := strings.CutPrefix(svc.NetworkMode, "service:"); ok && moved[of] {
				moved[name] = true
			}
		}
	}
	return moved
}

// checkNetworks refuses a release that needs a network which is not there, or one anew that
// somebody else uses.
func (s *session) checkNetworks(ctx context.Context, pl *plan) error {
	for _, r := range pl.renewals {
		if len(r.others) > 0 {
			return submodules.Mark(fmt.Errorf("the network %s is to be made anew (%s), and the container %s uses it, which is not this application's: disconnect it (docker network disconnect %s %s), or give the network another name",
				r.name, r.why, r.others[0], r.name, r.others[0]), submodules.ErrRequirement)
		}
	}
	for _, key := range pl.model.usedNetworks() {
		n := pl.model.Networks[key]
		if !n.External {
			continue
		}
		_, err := s.engine.Client().NetworkInspect(ctx, n.Name, network.InspectOptions{})
		if docker.IsNotFound(err) && !s.inSwarm(ctx) {
			return submodules.Mark(fmt.Errorf("the network %s is external, and is not there: make it first (docker network create %s)", n.Name, n.Name), submodules.ErrRequirement)
		}
	}
	return nil
}

// inSwarm reports whether the engine belongs to a swarm: it shows the networks of the swarm
// only while it uses them.
func (s *session) inSwarm(ctx context.Context) bool {
	info, err := s.engine.Client().Info(ctx)
	return err != nil || info.Swarm.LocalNodeState != "" && info.Swarm.LocalNodeState != "inactive"
}

// renewNetworks removes the networks that are made anew. up makes them, and the containers
// that have lost them, with the volumes that they have.
func (s *session) renewNetworks(ctx context.Context, pl *plan) error {
	for _, r := range pl.renewals {
		s.req.Logf("making the network %s anew: %s", r.name, r.why)
		if len(r.others) > 0 {
			s.req.Logf("warning: %s loses the network %s", strings.Join(r.others, ", "), r.name)
		}
		if err := inParallel(r.ours, func(c container.Summary) error { return s.stop(ctx, c) }); err != nil {
			return err
		}
		if err := s.removeNetwork(ctx, r.id); err != nil {
			return fmt.Errorf("remove the network %s: %w", r.name, err)
		}
	}
	return nil
}

// verify compares the networks and containers with the model, when all are made: no success
// is reported for a release that is not what runs.
func (s *session) verify(ctx context.Context, pl *plan) error {
	podman := s.engine.Podman(ctx)
	for _, key := range pl.model.usedNetworks() {
		n := pl.model.Networks[key]
		if n.External || n.Name == "" {
			continue
		}
		on, found, err := s.network(ctx, n.Name, map[string]bool{pl.name: true})
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("the network %s of the release is not there", n.Name)
		}
		if why := n.lacks(on, podman); why != "" {
			return fmt.Errorf("the network %s is not that of the release: %s", n.Name, why)
		}
	}
	return nil
}

// checkVolumes warns of volumes that are not as the release says, and returns their names in
// the Compose files: to make them anew would lose their data. It refuses a release whose
// external volumes are not there.
func (s *session) checkVolumes(ctx context.Context, p *project) (differ []string, err error) {
	for _, key := range p.model.usedVolumes() {
		m := p.model.Volumes[key]
		on, err := s.engine.Client().VolumeInspect(ctx, m.Name)
		switch {
		case docker.IsNotFound(err) && m.External && !s.back:
			return nil, submodules.Mark(fmt.Errorf("the volume %s is external, and is not there: make it first (docker volume create %s)", m.Name, m.Name), submodules.ErrRequirement)
		case docker.IsNotFound(err) || err == nil && m.External:
			continue
		case err != nil:
			return nil, fmt.Errorf("volume %s: %w", m.Name, err)
		case !s.back && s.set.levels.Of(s.req.App) < rules.Trusted && len(on.Options) > 0 && on.Options["type"] != "tmpfs":
			return nil, invalid("the volume %s has options from an earlier release, which need the level trusted, and LEVEL in %s gives this application %s: give it another name", m.Name, confName, s.set.levels.Of(s.req.App))
		}
		if why := m.Differs(on); why != "" {
			s.req.Logf("warning: the volume %s stays as it is, because to make it anew would lose its data: %s; for a new one, give it another name in the compose files", m.Name, why)
			differ = append(differ, key)
		}
	}
	return differ, nil
}

// usedVolumes are the volumes of the project that services mount, sorted.
func (m model) usedVolumes() []string {
	used := map[string]bool{}
	for _, svc := range m.Services {
		for _, v := range svc.Volumes {
			if key := v.Text("source"); v.Text("type") == "volume" && m.Volumes[key].Name != "" {
				used[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}
