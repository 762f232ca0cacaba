package compose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/projectfiles"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Volumes implements submodules.VolumeLister. It names the volumes whose whole content is
// in a directory of this machine, and that only the application uses.
func (s *session) Volumes(ctx context.Context) (list []submodules.Volume, err error) {
	dir, err := s.directory()
	if err != nil {
		return nil, err
	}
	c, err := s.findCompose(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return nil, err
	}
	ours := s.owned(all)
	if err := namedVolumesOnly(ours); err != nil {
		return nil, err
	}
	was := runsAs(ours)
	p, err := s.readProject(ctx, c, dir, was, false)
	if err != nil {
		return nil, err
	}
	if named, err := projectfiles.Named(dir, p.files); err != nil || !named && was != "" && was != projectfiles.Name(s.req.App) {
		return nil, cmp.Or(err, invalid("only the containers say that the project is %s, and they are removed: write name: %s into the compose files", was, was))
	}
	if !strings.HasPrefix(s.engine.Host(), "unix://") {
		s.req.Logf("the engine is on another machine, and its volumes with it")
		return nil, nil
	}
	for _, key := range slices.Sorted(maps.Keys(p.model.Volumes)) {
		v, reason, err := s.volume(ctx, p, key)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			s.req.Logf("volume %s is left out: %s", key, reason)
			continue
		}
		list = append(list, v)
	}
	return list, nil
}

// volume finds a volume of the project. reason says why it is left out.
func (s *session) volume(ctx context.Context, p *project, key string) (v submodules.Volume, reason string, err error) {
	v.Name = key
	m := p.model.Volumes[key]
	if m.External {
		return v, "it is external, so it is not the application's own", nil
	}
	if m.Driver != "" && m.Driver != "local" || len(m.DriverOpts) > 0 {
		return v, "its content is not in a directory of the engine", nil
	}
	on, err := s.engine.Client().VolumeInspect(ctx, m.Name)
	if docker.IsNotFound(err) {
		return v, "", nil
	}
	if err != nil {
		return v, "", fmt.Errorf("volume %s: %w", m.Name, err)
	}
	switch {
	case on.Labels[labelProject] != p.name:
		return v, fmt.Sprintf("%s was not made for the project %s", m.Name, p.name), nil
	case on.Driver != "local" || len(on.Options) > 0:
		return v, "its content is not in a directory of the engine", nil
	}
	users, err := s.engine.Client().ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("volume", m.Name))})
	if err != nil {
		return v, "", fmt.Errorf("list containers: %w", err)
	}
	ours := s.owned(users)
	for _, c := range users {
		if !slices.ContainsFunc(ours, func(o container.Summary) bool { return o.ID == c.ID }) {
			return v, fmt.Sprintf("the container %s uses it too, and is not the application's", name(c)), nil
		}
	}
	v.Dir = on.Mountpoint
	return v, "", nil
}

// namedVolumesOnly refuses containers with anonymous volumes: who removes the container
// loses the way to them.
func namedVolumesOnly(list []container.Summary) error {
	for _, c := range list {
		for _, m := range c.Mounts {
			if m.Type == "volume" && isAnonymous(m.Name) {
				return invalid("the service %s stores %s in a volume without a name, which would be lost: name it in the compose files", c.Labels[labelService], m.Destination)
			}
		}
	}
	return nil
}

// isAnonymous reports whether a volume has no name but the 64 hex digits of the engine.
func isAnonymous(volume string) bool {
	return len(volume) == 64 && strings.Trim(volume, "0123456789abcdef") == ""
}
