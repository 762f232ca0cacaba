package compose

import (
	"context"
	"fmt"
	"maps"
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
