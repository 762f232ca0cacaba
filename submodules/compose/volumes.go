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
	"github.com/docker/docker/api/types/volume"

	"github.com/docker/docker/client"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// volumeModel is a volume of a project as Compose prints it.
type volumeModel struct {
	Name       string            `json:"name"` // of the engine's volume
	External   bool              `json:"external"`
	Driver     string            `json:"driver"`
	DriverOpts map[string]string `json:"driver_opts"`
	Labels     map[string]string `json:"labels"`
}

// volumeFinder finds volumes.
type volumeFinder struct {
	Engine *client.Client
	// Ours returns those of a list of containers that are the application's.
	Ours func([]container.Summary) []container.Summary
	Log  func(format string, args ...any)
}

// Make makes those volumes of a project that are not there yet, as Compose makes them. It
// makes none that is not in a directory of this machine.
func (f volumeFinder) Make(ctx context.Context, project string, models map[string]volumeModel) error {
	for _, key := range slices.Sorted(maps.Keys(models)) {
		m := models[key]
		dir, reason, err := f.find(ctx, project, m)
		if err != nil {
			return err
		}
		if dir != "" || reason != "" {
			continue
		}
		// Compose also sets a hash of what the volume is made from. It takes a volume
		// without for its own.
		labels := maps.Clone(m.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelProject], labels[labelVolume] = project, key
		if _, err := f.Engine.VolumeCreate(ctx, volume.CreateOptions{Name: m.Name, Driver: "local", Labels: labels}); err != nil {
			return fmt.Errorf("make the volume %s: %w", m.Name, err)
		}
	}
	return nil
}

// Own lists the volumes of a project whose whole content is in a directory of this
// machine, and that only the application uses.
func (f volumeFinder) Own(ctx context.Context, project string, models map[string]volumeModel) (list []submodules.Volume, err error) {
	for _, key := range slices.Sorted(maps.Keys(models)) {
		dir, reason, err := f.find(ctx, project, models[key])
		if err != nil {
			return nil, err
		}
		if reason != "" {
			f.Log("volume %s is left out: %s", key, reason)
			continue
		}
		list = append(list, submodules.Volume{Name: key, Dir: dir})
	}
	return list, nil
}

// find finds the directory of a volume, "" if it is not made yet. reason says why the
// volume is left out.
func (f volumeFinder) find(ctx context.Context, project string, m volumeModel) (dir, reason string, err error) {
	if m.External {
		return "", "it is external, so it is not the application's own", nil
	}
	if m.Driver != "" && m.Driver != "local" || len(m.DriverOpts) > 0 {
		return "", "its content is not in a directory of the engine", nil
	}
	on, err := f.Engine.VolumeInspect(ctx, m.Name)
	if docker.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("volume %s: %w", m.Name, err)
	}
	switch {
	case on.Labels[labelProject] != project:
		return "", fmt.Sprintf("%s was not made for the project %s", m.Name, project), nil
	case on.Driver != "local" || len(on.Options) > 0:
		return "", "its content is not in a directory of the engine", nil
	}
	users, err := f.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("volume", m.Name))})
	if err != nil {
		return "", "", fmt.Errorf("list containers: %w", err)
	}
	ours := f.Ours(users)
	for _, c := range users {
		if !slices.ContainsFunc(ours, func(o container.Summary) bool { return o.ID == c.ID }) {
			return "", fmt.Sprintf("the container %s uses it too, and is not the application's", strings.TrimPrefix(strings.Join(c.Names, " "), "/")), nil
		}
	}
	return on.Mountpoint, "", nil
}

// Data lists the names of all volumes of projects.
func (f volumeFinder) Data(ctx context.Context, projects map[string]bool) (names []string, err error) {
	for _, p := range slices.Sorted(maps.Keys(projects)) {
		res, err := f.Engine.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelProject+"="+p))})
		if err != nil {
			return nil, fmt.Errorf("list volumes: %w", err)
		}
		for _, v := range res.Volumes {
			names = append(names, v.Name)
		}
	}
	return names, nil
}

// checkNamedVolumes refuses containers with anonymous volumes: who removes the container loses
// the way to them.
func checkNamedVolumes(list []container.Summary) error {
	for _, c := range list {
		for _, m := range c.Mounts {
			if m.Type == "volume" && isAnonymous(m.Name) {
				err := fmt.Errorf("the service %s stores %s in a volume without a name, which would be lost: name it in the compose files", c.Labels[labelService], m.Destination)
				return submodules.Mark(err, submodules.ErrContent)
			}
		}
	}
	return nil
}

// isAnonymous reports whether a volume has no name but the 64 hex digits of the engine.
func isAnonymous(volume string) bool {
	return len(volume) == 64 && strings.Trim(volume, "0123456789abcdef") == ""
}

// Differs says in what the engine's volume is not that of the model; "" if it is. A volume
// cannot be changed: to make it anew would lose its data.
func (m volumeModel) Differs(on volume.Volume) string {
	if want := cmp.Or(m.Driver, "local"); want != on.Driver {
		return fmt.Sprintf("its driver is %s, and the release says %s", on.Driver, want)
	}
	for _, key := range slices.Sorted(maps.Keys(m.DriverOpts)) {
		if want := m.DriverOpts[key]; want != on.Options[key] {
			return fmt.Sprintf("its option %s is %q, and the release says %q", key, on.Options[key], want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(on.Options)) {
		if _, ok := m.DriverOpts[key]; !ok && on.Driver == "local" {
			return fmt.Sprintf("it has the option %s, and the release does not say it", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		if want := m.Labels[key]; want != on.Labels[key] {
			return fmt.Sprintf("its label %s is %q, and the release says %q", key, on.Labels[key], want)
		}
	}
	return ""
}
