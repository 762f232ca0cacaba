package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	dimage "github.com/docker/docker/api/types/image"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Check implements submodules.Checker. It makes the checks of prepare, with the
// components of the request in the place of loaded images, and compares each service
// with what runs.
func (s *session) Check(ctx context.Context, _ submodules.Request) (submodules.Changes, error) {
	var none submodules.Changes
	// The directory may be any: an application's containers run from another one.
	pl, err := s.read(ctx, func(_ string, all []container.Summary) []container.Summary { return s.owned(all) })
	if err != nil {
		return none, err
	}
	if err := s.checkNames(ctx, pl); err != nil {
		return none, err
	}
	images := map[string]string{} // the engine's ID of each service's image; "" if it is to be loaded
	for _, name := range pl.model.names() {
		if images[name], err = s.imageOf(ctx, name, pl.model.Services[name].Image); err != nil {
			return none, err
		}
	}
	var old *project // what runs; nil if its files cannot be read
	if len(pl.existing) > 0 {
		old, err = s.readProject(ctx, pl.compose, s.manifestsOf(pl.existing), runsAs(pl.existing), false)
		if err == nil {
			old.oldData = map[string]bool{}
			for rel := range oldMounts(appDirectory(s.req.App, old.dir), pl.existing) {
				old.oldData[rel] = true
			}
			err = s.decrypt(ctx, old)
		}
		if err != nil {
			s.req.Logf("warning: the files of what runs cannot be read, so every service counts as changed: %v", err)
			old = nil
		}
	}
	all, err := s.inspect(ctx, pl.existing)
	if err != nil {
		return none, err
	}
	var done map[string]bool
	if len(pl.existing) > 0 {
		done = pl.model.done(all, readEnded(endedFile(s.req.App, s.manifestsOf(pl.existing))).ids)
	}
	changes, err := pl.changes(ctx, old, images, pinned(all), done)
	if err != nil {
		return none, err
	}
	if err := s.checkHealth(ctx, pl, images); err != nil {
		return none, err
	}
	changes.HealthyWithin = int(s.set.deadline.Seconds())
	return changes, nil
}

// checkHealth finds how long the release may take to become healthy. What an image says
// that is not loaded is not known.
func (s *session) checkHealth(ctx context.Context, pl *plan, images map[string]string) error {
	pl.schedules = map[string]schedule{}
	for name, id := range images {
		var img dimage.InspectResponse
		if id != "" {
			var err error
			if img, err = s.engine.Client().ImageInspect(ctx, id); err != nil {
				return fmt.Errorf("service %s: %w", name, err)
			}
		}
		pl.schedule(name, img)
	}
	s.setDeadline(pl)
	s.warnLate(ctx, pl, s.set.deadline)
	return nil
}

// imageOf returns the engine's ID of the image that a service would run from, "" if
// it is a component that is not loaded.
func (s *session) imageOf(ctx context.Context, service, ref string) (string, error) {
	if err := imagestore.CheckName(ref); err != nil {
		return "", submodules.Mark(err, submodules.ErrContent)
	}
	if comp, ok := s.component(ref); ok {
		id, err := imagestore.ParseIdentity(comp)
		if err != nil {
			return "", err
		}
		img, err := s.engine.Find(ctx, s.req.App, id, comp.URL)
		if errors.Is(err, submodules.ErrNotFound) {
			return "", nil
		}
		return img.ID, err
	}
	img, err := s.engine.Inspect(ctx, ref)
	if errors.Is(err, submodules.ErrNotFound) {
		return "", missingImage(service, ref)
	}
	return img.ID, err
}

// changes compares the services of a project with those that run.
// pinned are the processors of its containers, and done the jobs that have ended.
func (pl *plan) changes(ctx context.Context, old *project, images, pinned map[string]string, done map[string]bool) (c submodules.Changes, err error) {
	moved := pl.moved()
	for _, r := range pl.renewals {
		c.Networks = append(c.Networks, r.key)
	}
	c.Volumes = pl.volumes
	running := map[string][]container.Summary{}
	for _, ct := range pl.existing {
		name := ct.Labels[labelService]
		running[name] = append(running[name], ct)
		if _, ok := pl.model.Services[name]; !ok && !slices.Contains(c.Removes, name) {
			c.Removes = append(c.Removes, name)
		}
	}
	now, err := pl.definitions()
	if err != nil {
		return c, err
	}
	var was map[string][]byte
	if old != nil {
		if was, err = old.definitions(); err != nil {
			return c, err
		}
	}
	again := map[string]bool{} // whose containers Compose makes again
	for _, name := range pl.model.names() {
		if pl.model.Services[name].off {
			if len(running[name]) > 0 {
				c.Removes = append(c.Removes, name)
			}
			continue
		}
		up := slices.ContainsFunc(running[name], func(ct container.Summary) bool { return ct.State == container.StateRunning })
		same := old != nil && len(running[name]) == pl.model.Services[name].containers() && old.name == pl.name && !moved[name]
		for _, ct := range running[name] {
			same = same && ct.Labels[labelProject] == pl.name && images[name] != "" && ct.ImageID == images[name] && pinned[ct.ID] == pl.model.Services[name].CPUSet
		}
		if same = same && bytes.Equal(now[name], was[name]); same {
			if same, err = pl.sameMounts(old, name); err != nil {
				return c, err
			}
		}
		if !same && len(running[name]) > 0 {
			again[name] = true
		}
		switch {
		case same && (up || done[name]):
			c.Keeps = append(c.Keeps, name)
		case up:
			c.Restarts = append(c.Restarts, name)
		default:
			c.Starts = append(c.Starts, name)
		}
	}
	slices.Sort(c.Removes)
	if len(c.Keeps) == 0 || len(again) == 0 {
		return c, nil
	}
	version, err := pl.compose.version(ctx)
	if err != nil {
		return c, fmt.Errorf("docker compose version: %w", err)
	}
	pl.takeAlong(&c, version, again, done)
	return c, nil
}

// takeAlong adds what Compose restarts or makes again with a service that it makes again; one
// that it only starts takes nothing along. A
// service that uses a namespace or the volumes of another one names its container, so it is
// made again. What services that only depend on it get has changed over the versions:
//
//   - before 2.30 they are made again, and those that depend on them
//     (github.com/docker/compose/pull/12122);
//   - before 2.35 they are restarted (github.com/docker/compose/pull/12649);
//   - since then they are restarted if depends_on says restart: true, as links do.
func (pl *plan) takeAlong(c *submodules.Changes, version string, again, done map[string]bool) {
	all, direct := before(version, 2, 30), before(version, 2, 35)
	restarts := map[string]bool{}
	for more := true; more; {
		more = false
		for _, name := range c.Keeps {
			svc := pl.model.Services[name]
			for other := range again {
				if again[name] {
					continue
				}
				on, depends := svc.DependsOn[other]
				switch {
				case svc.shares(other), depends && all && !done[name]:
					again[name], more = true, true
				case depends && (direct || on.Restart) && !done[name]:
					restarts[name] = true
				}
			}
		}
	}
	var keeps []string
	for _, name := range c.Keeps {
		if again[name] || restarts[name] {
			c.Restarts = append(c.Restarts, name)
		} else {
			keeps = append(keeps, name)
		}
	}
	c.Keeps = keeps
	slices.Sort(c.Restarts)
}

// shares reports whether a service uses a namespace or the volumes of another one.
func (s service) shares(other string) bool {
	for _, mode := range []string{s.NetworkMode, s.Pid, s.Ipc} {
		if mode == "service:"+other {
			return true
		}
	}
	return slices.ContainsFunc(s.VolumesFrom, func(from string) bool {
		name, _, _ := strings.Cut(from, ":")
		return name == other
	})
}

// definitions are what Compose compares of the services, by name, wherever the manifests
// are: not how images are made or pulled, and not the number of containers (docker/compose,
// pkg/compose/hash.go).
func (p *project) definitions() (map[string][]byte, error) {
	var printed struct {
		Services map[string]map[string]json.RawMessage `json:"services"`
	}
	if err := json.Unmarshal(p.text, &printed); err != nil {
		return nil, fmt.Errorf("docker compose config: %w", err)
	}
	out := map[string][]byte{}
	for name, service := range printed.Services {
		for _, key := range []string{"build", "pull_policy", "scale"} {
			delete(service, key)
		}
		var deploy map[string]json.RawMessage
		if json.Unmarshal(service["deploy"], &deploy) == nil && deploy != nil {
			delete(deploy, "replicas")
			service["deploy"], _ = json.Marshal(deploy) // what was read can be written
		}
		definition, err := json.Marshal(service)
		if err != nil {
			return nil, fmt.Errorf("docker compose config: %w", err)
		}
		out[name] = bytes.ReplaceAll(definition, []byte(p.dir), []byte("{manifests}"))
	}
	return out, nil
}

// sameMounts reports whether what a service mounts from the manifests has the same
// content in another project.
func (p *project) sameMounts(old *project, name string) (bool, error) {
	was, err := old.withoutData(name)
	if err != nil {
		return false, err
	}
	now, err := p.withoutData(name)
	if err != nil {
		return false, err
	}
	before, err := old.mounted(was, true)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	after, err := p.mounted(now, true)
	return before == after, err
}

// withoutData returns a service without its mounts of data.
func (p *project) withoutData(name string) (service, error) {
	svc := p.model.Services[name]
	var volumes []mount
	for _, v := range svc.Volumes {
		data, err := p.isData(v.Text("source"))
		if err != nil {
			return svc, err
		}
		if v.Text("type") != "bind" || !data {
			volumes = append(volumes, v)
		}
	}
	svc.Volumes = volumes
	return svc, nil
}
