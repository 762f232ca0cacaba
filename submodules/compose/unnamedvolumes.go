package compose

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// A volume without a name is data of the application, as one with a name is. The engine
// knows whose it is only as long as a container mounts it: by its labels, it is nobody's. So
// it is written down before a container may go. PURGE finds it again, and so does a service
// whose container is gone: it was switched off, a release did not have it, the application
// was purged without its data, or somebody removed the container. Where Compose makes a
// container again, it hands such volumes on by itself.

// unnamedName is the file for that, beside the manifests. PURGE leaves it as long as one of
// its volumes is there.
const unnamedName = "volumes-unnamed.json"

// unnamedVolume is a volume without a name that a container of the application has, or had.
type unnamedVolume struct {
	Name    string `json:"name"` // the engine's
	Service string `json:"service"`
	Path    string `json:"path"` // where the service has it
	// ByName: the service gets it by its name from now on. That is a part of the service's
	// definition for Compose, so it stays as long as the volume does.
	ByName bool `json:"by_name,omitempty"`
}

// unnamedOf returns the volumes without a name that containers mount.
func unnamedOf(list []container.Summary) (volumes []unnamedVolume) {
	for _, c := range list {
		for _, m := range c.Mounts {
			if m.Type == "volume" && isAnonymous(m.Name) {
				volumes = addUnnamed(volumes, unnamedVolume{Name: m.Name, Service: c.Labels[labelService], Path: m.Destination})
			}
		}
	}
	return volumes
}

// addUnnamed adds volumes that are not in the list.
func addUnnamed(list []unnamedVolume, more ...unnamedVolume) []unnamedVolume {
	for _, v := range more {
		if !slices.ContainsFunc(list, func(o unnamedVolume) bool { return o.Name == v.Name }) {
			list = append(list, v)
		}
	}
	return list
}

// noteUnnamed writes down the volumes without a name that the application's containers mount,
// after those noted before that are still there, and returns all of them. It is durable when
// it returns. base is the application's directory in the store; without one, nothing is
// written.
func (s *session) noteUnnamed(ctx context.Context, base string, list []container.Summary) (volumes []unnamedVolume, err error) {
	if base == "" || !isDirectory(base) {
		return unnamedOf(list), nil
	}
	old, volumes, err := s.notedUnnamed(ctx, base)
	if err != nil {
		return nil, err
	}
	volumes = addUnnamed(volumes, unnamedOf(list)...)
	if slices.Equal(volumes, old) {
		return volumes, nil
	}
	return volumes, writeUnnamed(base, volumes)
}

// notedUnnamed returns the volumes in the file, and those of them that still exist.
func (s *session) notedUnnamed(ctx context.Context, base string) (noted, exist []unnamedVolume, err error) {
	if noted, err = readUnnamed(filepath.Join(base, unnamedName)); err != nil {
		return nil, nil, err
	}
	for _, v := range noted {
		_, err := s.engine.Client().VolumeInspect(ctx, v.Name)
		if docker.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		exist = append(exist, v)
	}
	return noted, exist, nil
}

// writeUnnamed replaces the file in the application's directory, or removes it if there are
// no volumes.
func writeUnnamed(base string, volumes []unnamedVolume) error {
	path := filepath.Join(base, unnamedName)
	if len(volumes) == 0 {
		return durable.Remove(path)
	}
	return writeNote(path, volumes)
}

// readUnnamed reads the file. A missing or damaged one has no volumes.
func readUnnamed(path string) (volumes []unnamedVolume, err error) {
	if ok, err := readNote(path, &volumes); !ok {
		return nil, err
	}
	return slices.DeleteFunc(volumes, func(v unnamedVolume) bool { return !isAnonymous(v.Name) }), nil
}

// bringBack notes the volumes without a name of the containers, and finds those that
// services get by their names: services with one container that is gone. Of two that such a
// service had at a path, the later one counts. A full disk stops no release.
func (s *session) bringBack(ctx context.Context, pl *plan) {
	base := appDirectory(s.req.App, pl.dir)
	volumes, err := s.noteUnnamed(ctx, base, pl.existing)
	if err != nil {
		s.req.Logf("warning: volumes without a name are not written down: %v", err)
	}
	made, used := map[string]bool{}, map[string]bool{}
	for _, c := range pl.existing {
		if c.Labels[labelProject] == pl.name {
			made[c.Labels[labelService]] = true
		}
	}
	for _, c := range pl.everything {
		for _, m := range c.Mounts {
			used[m.Name] = true
		}
	}
	was := slices.Clone(volumes)
	for i := range slices.Backward(volumes) {
		v := &volumes[i]
		svc := pl.model.Services[v.Service]
		if svc.containers() != 1 || !slices.Contains(pl.unnamed[v.Service], v.Path) || pl.byName[v.Service][v.Path] != "" {
			continue
		}
		if !v.ByName && (made[v.Service] || used[v.Name]) {
			continue
		}
		if !v.ByName {
			s.req.Logf("service %s gets the volume %s again, which it had in %s", v.Service, v.Name, v.Path)
		}
		v.ByName = true
		if pl.byName[v.Service] == nil {
			pl.byName[v.Service] = map[string]string{}
		}
		pl.byName[v.Service][v.Path] = v.Name
	}
	if slices.Equal(was, volumes) || base == "" {
		return
	}
	if err := writeUnnamed(base, volumes); err != nil {
		s.req.Logf("warning: the containers of services that got volumes by their names will be made again: %v", err)
	}
}

// unnamedPaths returns where a service gets volumes without a name: from its definition, and
// from its image.
func (s service) unnamedPaths(image map[string]struct{}) []string {
	paths := slices.Collect(maps.Keys(image))
	for _, v := range s.Volumes {
		at := slices.Index(paths, v.Text("target"))
		switch unnamed := v.Text("type") == "volume" && v.Text("source") == ""; {
		case at < 0 && unnamed:
			paths = append(paths, v.Text("target"))
		case at >= 0 && !unnamed:
			paths = slices.Delete(paths, at, at+1)
		}
	}
	slices.Sort(paths)
	return paths
}
