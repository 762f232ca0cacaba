package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// This file says what of an application can be made again when the engine has lost it or
// somebody has changed it: everything but the content of volumes. ROLLOUT, ROLLBACK and
// START put it right before each try of `docker compose up`, which by itself leaves a
// container alone whose definition did not change.
//
// What can be put right without a new container is: a paused one goes on. For the others
// Compose makes a new one from the same definition, and gives it the volumes of the old
// one, also those without a name.

// remedy is what a container needs before `docker compose up`.
type remedy int

const (
	none     remedy = iota
	goOn            // it is paused
	end             // it restarts again and again: ended, up starts it at once and counts from 0
	replace         // Compose makes it again
	clearOut        // it never ran, or is being removed: Compose would fail on it
)

// inventory is what the engine has that containers refer to.
type inventory struct {
	networks   map[string]bool // IDs and names
	volumes    map[string]bool // names
	containers map[string]bool // IDs
	// users counts the containers that mount a volume, by its name.
	users map[string]int
	// copies is the directory of the application's copies of mounted files, "" if it is not on
	// this machine.
	copies string
}

// takeInventory asks the engine what it has, and inspects the containers of the project.
func (s *session) takeInventory(ctx context.Context, p *project) (inv inventory, mine []container.InspectResponse, err error) {
	inv = inventory{networks: map[string]bool{}, volumes: map[string]bool{}, containers: map[string]bool{}, users: map[string]int{}}
	cli := s.engine.Client()
	nets, err := cli.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return inv, nil, fmt.Errorf("list networks: %w", err)
	}
	for _, n := range nets {
		inv.networks[n.ID], inv.networks[n.Name] = true, true // Podman's containers have the name as an ID
	}
	vols, err := cli.VolumeList(ctx, volume.ListOptions{})
	if err != nil {
		return inv, nil, fmt.Errorf("list volumes: %w", err)
	}
	for _, v := range vols.Volumes {
		inv.volumes[v.Name] = true
	}
	all, err := s.containers(ctx, "")
	if err != nil {
		return inv, nil, err
	}
	for _, c := range all {
		inv.containers[c.ID] = true
		for _, m := range c.Mounts {
			inv.users[m.Name]++
		}
	}
	if c, err := p.copies(s.req.App); err == nil && c != nil && strings.HasPrefix(s.engine.Host(), "unix://") {
		inv.copies = c.base
	}
	mine, err = s.inspect(ctx, s.ofProject(p, all))
	return inv, mine, err
}

// remedy says what a container needs, and why. Its service's definition may have changed:
// up would then replace it anyway.
func (inv inventory) remedy(c container.InspectResponse) (remedy, string) {
	if c.ContainerJSONBase == nil || c.State == nil {
		return none, ""
	}
	switch c.State.Status {
	case container.StateDead, container.StateRemoving:
		return clearOut, "its removal was interrupted"
	case container.StateCreated:
		// It holds no data, unless it was to take over the volume without a name of one that
		// is gone.
		if !slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool {
			return isAnonymous(m.Name) && inv.users[m.Name] == 1
		}) {
			return clearOut, "it was made and never started"
		}
	}
	if lost := inv.lost(c); lost != "" {
		return replace, lost
	}
	switch {
	case c.State.Paused:
		return goOn, "somebody paused it"
	case c.State.Restarting:
		return end, "it restarts again and again"
	}
	return none, ""
}

// lost says what a container refers to that the engine no longer has; "" if it has it all.
func (inv inventory) lost(c container.InspectResponse) string {
	var mode container.NetworkMode
	if h := c.HostConfig; h != nil {
		mode = h.NetworkMode
		refs := []string{h.NetworkMode.ConnectedContainer(), h.PidMode.Container(), h.IpcMode.Container()}
		for _, from := range h.VolumesFrom {
			id, _, _ := strings.Cut(from, ":")
			refs = append(refs, id)
		}
		for _, id := range refs {
			// Compose writes IDs; a person may have written a name.
			if len(id) == 64 && !inv.containers[id] {
				return fmt.Sprintf("it belongs to container %.12s, which is gone", id)
			}
		}
	}
	for _, m := range c.Mounts {
		switch {
		case inv.isLostVolume(m):
			return fmt.Sprintf("its volume %s is gone", m.Name)
		case m.Type == "bind" && inv.isLostCopy(m.Source):
			return fmt.Sprintf("the copy of files that it mounts is gone from %s", m.Source)
		}
	}
	if c.NetworkSettings == nil || !mode.IsUserDefined() {
		return ""
	}
	connected := false
	for name, ep := range c.NetworkSettings.Networks {
		if ep == nil {
			continue
		}
		connected = true
		if ep.NetworkID != "" && !inv.networks[ep.NetworkID] {
			return fmt.Sprintf("its network %s is gone", name)
		}
		if c.State.Running && ep.EndpointID == "" {
			return fmt.Sprintf("it has lost its connection to the network %s", name)
		}
	}
	if !connected && c.State.Running {
		return "somebody disconnected it from its network"
	}
	return ""
}

// isLostVolume reports whether a container mounts a volume that is gone. Another driver than
// the engine's own may list its volumes again when it is back.
func (inv inventory) isLostVolume(m container.MountPoint) bool {
	return m.Type == "volume" && m.Name != "" && (m.Driver == "" || m.Driver == "local") && !inv.volumes[m.Name]
}

// isLostCopy reports whether a path is one of the application's copies of mounted files, and
// is gone. Other paths are the operator's: what is not there may never have been.
func (inv inventory) isLostCopy(path string) bool {
	rel, err := filepath.Rel(inv.copies, path)
	if inv.copies == "" || err != nil || !filepath.IsLocal(rel) {
		return false
	}
	_, err = os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// restore puts right what can be put right without Compose, and returns the services of
// which Compose has to make the containers again. before has what the containers went
// through before the call; said is what Compose said in the try before, "" if there was none.
func (s *session) restore(ctx context.Context, pl *plan, before map[string]bygone, said string) (services []string, err error) {
	if err := s.freeNames(ctx, pl, said); err != nil {
		return nil, err
	}
	inv, full, err := s.takeInventory(ctx, pl.project)
	if err != nil {
		return nil, err
	}
	s.tellLostData(pl, inv, full)
	// A container that is replaced takes along those that share its network.
	for again := true; again; {
		again = false
		for _, c := range full {
			why, text := inv.remedy(c)
			svc := serviceOf(c)
			if _, ok := pl.model.Services[svc]; why == replace && ok && !slices.Contains(services, svc) {
				s.req.Logf("making container %s again: %s", strings.TrimPrefix(c.Name, "/"), text)
				services = append(services, svc)
				delete(inv.containers, c.ID)
				again = true
			}
		}
	}
	for _, c := range full {
		why, text := inv.remedy(c)
		if why == none || why == replace {
			continue
		}
		if err := s.apply(ctx, c, why, text, before); err != nil {
			return nil, err
		}
	}
	slices.Sort(services)
	return services, nil
}

// apply carries out a remedy that needs no Compose.
func (s *session) apply(ctx context.Context, c container.InspectResponse, why remedy, text string, before map[string]bygone) error {
	cli, called := s.engine.Client(), strings.TrimPrefix(c.Name, "/")
	switch why {
	case goOn:
		s.req.Logf("container %s goes on: %s", called, text)
		err := cli.ContainerUnpause(ctx, c.ID)
		if err != nil && !docker.IsNotFound(err) && !strings.Contains(err.Error(), "is not paused") {
			return fmt.Errorf("unpause container %s: %w", called, err)
		}
	case end:
		s.req.Logf("container %s is started anew: %s", called, text)
		if err := cli.ContainerStop(ctx, c.ID, container.StopOptions{}); err != nil && !docker.IsNotFound(err) {
			return fmt.Errorf("stop container %s: %w", called, err)
		}
		delete(before, c.ID)
	case clearOut:
		s.req.Logf("removing container %s: %s", called, text)
		err := cli.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true})
		if err != nil && !docker.IsNotFound(err) && !docker.IsConflict(err) {
			return fmt.Errorf("remove container %s: %w", called, err)
		}
	}
	return nil
}

// tellLostData says which volumes are gone, in a line each: Compose makes them again, and
// they are empty. Of a release that ran before, every volume was there.
func (s *session) tellLostData(pl *plan, inv inventory, list []container.InspectResponse) {
	gone := map[string]bool{}
	for _, c := range list {
		for _, m := range c.Mounts {
			if inv.isLostVolume(m) {
				gone[m.Name] = true
			}
		}
	}
	if s.mustStart {
		for _, v := range pl.model.Volumes {
			if !v.External && !inv.volumes[v.Name] {
				gone[v.Name] = true
			}
		}
	}
	for _, name := range pl.told {
		delete(gone, name)
	}
	for name := range gone {
		s.req.Logf("warning: the engine has lost the volume %s, and with it its data: it is made again, empty", name)
		pl.told = append(pl.told, name)
	}
}

// What the engine says when a name of a network is taken by what should not be there.
var (
	danglingEndpoint = regexp.MustCompile(`endpoint with name (\S+) already exists in network (\S+)`)
	lostBridge       = regexp.MustCompile(`(?:could not find bridge|to bridge|interface) br-([0-9a-f]{12})`)
)

// freeNames removes what has the name of one of the project's networks or containers, and
// is of no use.
func (s *session) freeNames(ctx context.Context, pl *plan, said string) error {
	cli := s.engine.Client()
	if err := s.giveNamesBack(ctx, pl); err != nil {
		return err
	}
	if s.mustStart {
		if err := s.freeContainerNames(ctx, pl, said); err != nil {
			return err
		}
	}
	if m := danglingEndpoint.FindStringSubmatch(said); m != nil {
		net := strings.TrimRight(m[2], ".,;)")
		s.req.Logf("the network %s has a connection of %s that no container has: removing it", net, m[1])
		if err := cli.NetworkDisconnect(ctx, net, m[1], true); err != nil && !docker.IsNotFound(err) {
			return fmt.Errorf("disconnect %s from the network %s: %w", m[1], net, err)
		}
	}
	if strings.Contains(said, nameTaken) || heldPort.MatchString(said) {
		// Somebody started the release under another project's name.
		others := slices.DeleteFunc(slices.Clone(pl.existing), func(c container.Summary) bool { return c.Labels[labelProject] == pl.name })
		if err := s.remove(ctx, others); err != nil {
			return err
		}
	}
	if m := lostBridge.FindStringSubmatch(said); m != nil {
		nets, err := s.networks(ctx, filters.Arg("label", labelProject+"="+pl.name))
		if err != nil {
			return err
		}
		for _, n := range nets {
			if !strings.HasPrefix(n.ID, m[1]) {
				continue
			}
			s.req.Logf("removing the network %s: its bridge is gone", n.Name)
			if err := s.removeNetwork(ctx, n.ID); err != nil {
				return fmt.Errorf("remove the network %s: %w", n.Name, err)
			}
		}
	}
	taken, err := s.takenNetworks(ctx, pl)
	if err != nil {
		return err
	}
	if len(taken) == 0 {
		return nil
	}
	all, err := s.containers(ctx, "")
	if err != nil {
		return err
	}
	ours := s.mine(pl, all)
	for _, n := range taken {
		if err := usedNetwork(n, ours); err != nil {
			return err
		}
		s.req.Logf("removing the network %s: somebody made it, Compose would not take it, and no other container is connected to it", n.Name)
		if err := s.removeNetwork(ctx, n.ID); err != nil {
			return fmt.Errorf("remove the network %s: %w", n.Name, err)
		}
	}
	return nil
}

// takenNetworks returns networks that somebody made with the name of one of the project's.
func (s *session) takenNetworks(ctx context.Context, pl *plan) (taken []network.Inspect, err error) {
	for key, n := range pl.model.Networks {
		if n.External || n.Name == "" {
			continue
		}
		nets, err := s.networks(ctx, filters.Arg("name", n.Name))
		if err != nil {
			return nil, err
		}
		for _, on := range nets {
			if on.Name != n.Name || on.Labels[labelNetwork] == key || on.Labels[labelProject] == pl.name {
				continue
			}
			full, err := s.engine.Client().NetworkInspect(ctx, on.ID, network.InspectOptions{})
			if docker.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("network %s: %w", n.Name, err)
			}
			taken = append(taken, full)
		}
	}
	return taken, nil
}

func (s *session) networks(ctx context.Context, f ...filters.KeyValuePair) ([]network.Summary, error) {
	nets, err := s.engine.Client().NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(f...)})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	return nets, nil
}

// checkNames refuses a project if somebody else's container or network has a name or a port
// that it needs. START and ROLLBACK free the names of containers, because no other release could
// run instead.
func (s *session) checkNames(ctx context.Context, pl *plan) error {
	if !s.mustStart {
		for _, taken := range s.takenNames(pl, pl.everything) {
			called := name(taken.by)
			return submodules.Mark(fmt.Errorf("service %s needs the name %s, which a container has that is not this application's: remove it (docker rm --force %s) or give it another name (docker rename %s NAME)", taken.service, called, called, called), submodules.ErrRequirement)
		}
		if err := s.checkPorts(pl); err != nil {
			return err
		}
	}
	taken, err := s.takenNetworks(ctx, pl)
	if err != nil {
		return err
	}
	ours := s.mine(pl, pl.everything)
	for _, n := range taken {
		if err := usedNetwork(n, ours); err != nil {
			return err
		}
	}
	return nil
}

// usedNetwork says which container that is not ours uses a network that has a name of the
// project's, and that somebody made; nil for none.
func usedNetwork(n network.Inspect, ours map[string]bool) error {
	for id, ep := range n.Containers {
		if ours[id] {
			continue
		}
		return fmt.Errorf("the project needs a network %s of its own, and somebody made one that %s is connected to: disconnect it (docker network disconnect %s %s)", n.Name, ep.Name, n.Name, ep.Name)
	}
	return nil
}

// mine has the IDs of those of all containers that are the application's, or run from its
// directory.
func (s *session) mine(pl *plan, all []container.Summary) map[string]bool {
	ids := map[string]bool{}
	for _, c := range append(s.from(pl.dir, all), s.owned(all)...) {
		ids[c.ID] = true
	}
	return ids
}

// takenName is a name that a service needs, and that somebody else's container has.
type takenName struct {
	service string
	missing bool // the service has fewer containers than it needs
	by      container.Summary
}

// takenNames returns the names that the project's services need and that others of all
// containers have.
func (s *session) takenNames(pl *plan, all []container.Summary) (taken []takenName) {
	ours := s.mine(pl, all)
	have := map[string]int{} // by service
	for _, c := range all {
		if ours[c.ID] && c.Labels[labelProject] == pl.name {
			have[c.Labels[labelService]]++
		}
	}
	for _, svc := range pl.model.names() {
		service := pl.model.Services[svc]
		needs := service.containerNames(pl.name, svc)
		for _, c := range all {
			if !ours[c.ID] && c.Labels[labelProject] != pl.name && slices.Contains(needs, name(c)) {
				taken = append(taken, takenName{svc, have[svc] < service.containers(), c})
			}
		}
	}
	return taken
}

// freeContainerNames gives somebody else's containers other names where START or ROLLBACK
// needs theirs: nothing else about such a container changes, and it goes on. said is what
// Compose said in the try before.
func (s *session) freeContainerNames(ctx context.Context, pl *plan, said string) error {
	all, err := s.containers(ctx, "")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, c := range all {
		used[name(c)] = true
	}
	for _, taken := range s.takenNames(pl, all) {
		called := name(taken.by)
		// A service whose containers are there needs no name, unless they are made again.
		if !s.back && !taken.missing && !strings.Contains(said, nameTaken) {
			continue
		}
		other := called + "-other"
		for n := 2; used[other]; n++ {
			other = fmt.Sprintf("%s-other-%d", called, n)
		}
		used[other] = true
		s.req.Logf("warning: service %s needs the name %s, which a container has that is not this application's: that container is called %s now, and goes on", taken.service, called, other)
		if err := s.engine.Client().ContainerRename(ctx, taken.by.ID, other); err != nil && !docker.IsNotFound(err) {
			return fmt.Errorf("service %s needs the name %s, which a container has that is not this application's, and that cannot be given another one: %w: remove it (docker rm --force %s)", taken.service, called, err, called)
		}
	}
	return nil
}

// giveNamesBack renames those of the project's containers that have the name of another of its
// services, to which somebody or an older release gave it: Compose would fail to make that
// service's container.
func (s *session) giveNamesBack(ctx context.Context, pl *plan) error {
	all, err := s.containers(ctx, "")
	if err != nil {
		return err
	}
	needed, used := map[string]string{}, map[string]bool{} // services by names, and all names
	for svc, m := range pl.model.Services {
		for _, n := range m.containerNames(pl.name, svc) {
			needed[n] = svc
		}
	}
	for _, c := range all {
		used[name(c)] = true
	}
	rename := func(c container.Summary, to string) error {
		if err := s.engine.Client().ContainerRename(ctx, c.ID, to); err != nil && !docker.IsNotFound(err) {
			return fmt.Errorf("rename container %s to %s: %w", name(c), to, err)
		}
		return nil
	}
	var renamed []container.Summary
	for _, c := range s.ofProject(pl.project, all) {
		called, svc := name(c), c.Labels[labelService]
		of, ok := needed[called]
		if _, ours := pl.model.Services[svc]; !ok || !ours || of == svc {
			continue
		}
		s.req.Logf("container %s of service %s gets another name: this one is that of service %s", called, svc, of)
		if err := rename(c, fmt.Sprintf("%.12s_%s", c.ID, called)); err != nil { // as Compose calls those that it replaces
			return err
		}
		delete(used, called)
		renamed = append(renamed, c)
	}
	for _, c := range renamed {
		svc := c.Labels[labelService]
		for _, n := range pl.model.Services[svc].containerNames(pl.name, svc) {
			if used[n] {
				continue
			}
			if err := rename(c, n); err != nil {
				return err
			}
			used[n] = true
			break
		}
	}
	return nil
}

// containerNames are the names that Compose gives to the containers of a service.
func (s service) containerNames(project, service string) (names []string) {
	if s.ContainerName != "" {
		return []string{s.ContainerName}
	}
	for i := range s.containers() {
		names = append(names, fmt.Sprintf("%s-%s-%d", project, service, i+1))
	}
	return names
}

// removeNetwork removes a network that containers are connected to.
func (s *session) removeNetwork(ctx context.Context, id string) error {
	cli := s.engine.Client()
	on, err := cli.NetworkInspect(ctx, id, network.InspectOptions{})
	for who := range on.Containers {
		if err := cli.NetworkDisconnect(ctx, id, who, true); err != nil && !docker.IsNotFound(err) {
			return err
		}
	}
	if err == nil {
		err = cli.NetworkRemove(ctx, id)
	}
	if docker.IsNotFound(err) {
		return nil
	}
	return err
}

// nameTaken is what the engine says when another container has a name.
const nameTaken = "is already in use by container"

// recoverable matches the errors of an engine that is still busy with what was asked
// before, such as by a killed Compose, and of what restore puts right.
func recoverable(said string) bool {
	for _, s := range []string{nameTaken, "is already in progress", "is marked for removal", "No such container"} {
		if strings.Contains(said, s) {
			return true
		}
	}
	return danglingEndpoint.MatchString(said) || lostBridge.MatchString(said)
}

// incomplete says which services have a container that up left alone although the engine
// has lost something of it. up succeeded or failed; where it succeeded, each container has
// all networks of its service.
func (s *session) incomplete(ctx context.Context, pl *plan, succeeded bool) (services []string, err error) {
	inv, full, err := s.takeInventory(ctx, pl.project)
	if err != nil {
		return nil, err
	}
	podman := s.engine.Podman(ctx) // reports connections in its own way
	for _, c := range full {
		name := serviceOf(c)
		svc, ok := pl.model.Services[name]
		if !ok || svc.off || slices.Contains(services, name) {
			continue
		}
		lost := inv.lost(c)
		if lost == "" && succeeded && c.State.Running {
			lost = cmp.Or(pl.disconnected(name, c, podman), s.otherImage(ctx, pl.model, c))
		}
		if lost == "" && succeeded && !podman { // which reports limits in its own way
			lost = pl.unlimited(name, c)
		}
		if lost != "" {
			s.req.Logf("container %s cannot stay: %s", strings.TrimPrefix(c.Name, "/"), lost)
			services = append(services, name)
		}
	}
	return services, nil
}

// disconnected says which connection of a service its container does not have as the release
// says it; "" for none.
func (pl *plan) disconnected(service string, c container.InspectResponse, podman bool) string {
	if c.HostConfig == nil || c.NetworkSettings == nil || !c.HostConfig.NetworkMode.IsUserDefined() {
		return ""
	}
	for key, said := range pl.model.Services[service].Networks {
		n := pl.model.Networks[key].Name
		if n == "" {
			continue
		}
		ep := c.NetworkSettings.Networks[n]
		if ep == nil {
			return "somebody disconnected it from the network " + n
		}
		if podman {
			continue
		}
		// docker network connect gives it neither the names nor the address.
		options, _ := said.(map[string]any)
		names, _ := options["aliases"].([]any)
		for _, name := range append([]any{service}, names...) {
			if !slices.Contains(ep.Aliases, fmt.Sprint(name)) {
				return fmt.Sprintf("somebody connected it to the network %s, where it has no longer the name %v", n, name)
			}
		}
		if address, ok := options["ipv4_address"].(string); ok && (ep.IPAMConfig == nil || ep.IPAMConfig.IPv4Address != address) {
			return fmt.Sprintf("somebody connected it to the network %s, where it has no longer the address %s", n, address)
		}
	}
	return ""
}
