package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// A project may have a name of its own in its Compose files. When the application is gone,
// nothing says any more that the volumes of that project are its data. So PURGE writes down
// those that it leaves, and a later PURGE with data finds them.

// keptName is the file for that, beside the manifests.
const keptName = "volumes-kept.json"

// keptVolume is a volume that a PURGE has left.
type keptVolume struct {
	Name    string `json:"name"`
	Project string `json:"project"`
}

// noteKept writes down the volumes of projects that do not bear the application's name. It is
// durable when it returns. base is the application's directory in the store.
func (s *session) noteKept(ctx context.Context, base string, projects map[string]bool) error {
	var kept []keptVolume
	for _, p := range slices.Sorted(maps.Keys(projects)) {
		if p == rules.ProjectName(s.req.App) {
			continue
		}
		names, err := s.finder().Data(ctx, map[string]bool{p: true})
		if err != nil {
			return err
		}
		for _, name := range names {
			kept = append(kept, keptVolume{name, p})
		}
	}
	if len(kept) == 0 || !isDirectory(base) {
		return nil
	}
	return writeNote(filepath.Join(base, keptName), kept)
}

// kept returns the names of the volumes that an earlier PURGE has left and that are still of
// the same project, unless it is among shared. A missing or damaged file has none.
func (s *session) kept(ctx context.Context, base string, shared map[string]bool) (names []string, err error) {
	var list []keptVolume
	if ok, err := readNote(filepath.Join(base, keptName), &list); !ok {
		return nil, err
	}
	for _, k := range list {
		if k.Name == "" || k.Project == "" || shared[k.Project] {
			continue
		}
		v, err := s.engine.Client().VolumeInspect(ctx, k.Name)
		if docker.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", k.Name, err)
		}
		if v.Labels[labelProject] == k.Project {
			names = append(names, k.Name)
		}
	}
	return names, nil
}

// left names what PURGE with data would remove of an application that has no containers and
// no manifests. Of one that is installed it names nothing.
func (s *session) left(ctx context.Context) (data []string, err error) {
	store := s.storeOf("")
	if store == "" {
		return nil, nil
	}
	dir := filepath.Join(store, s.req.App, "manifests")
	base := filepath.Dir(dir)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return nil, err
	}
	shared := s.shared(dir, all, nil)
	projects := s.projectsOf(nil)
	maps.DeleteFunc(projects, func(p string, _ bool) bool { return shared[p] })
	named, err := s.finder().Data(ctx, projects)
	if err != nil {
		return nil, err
	}
	kept, err := s.kept(ctx, base, shared)
	if err != nil {
		return nil, err
	}
	for _, name := range append(named, kept...) {
		if text := "volume " + name; !slices.Contains(data, text) {
			data = append(data, text)
		}
	}
	_, unnamed, err := s.notedUnnamed(ctx, base)
	if err != nil {
		return nil, err
	}
	for _, v := range unnamed {
		data = append(data, fmt.Sprintf("volume %s (%s of service %s)", v.Name, v.Path, v.Service))
	}
	at, _, err := s.dataBase(ctx, dir)
	if err != nil {
		return nil, err
	}
	mounts, err := s.mountsBase(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, at := range []string{at, mounts} {
		if isDirectory(at) {
			data = append(data, "directory "+at)
		}
	}
	return data, nil
}
