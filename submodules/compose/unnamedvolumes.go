package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// A volume without a name is data of the application, as one with a name is. The engine
// knows whose it is only as long as a container mounts it: by its labels, it is nobody's. So
// it is written down before a container may go, and PURGE finds it again.

// unnamedName is the file for that, beside the manifests. PURGE leaves it as long as one of
// its volumes is there.
const unnamedName = "volumes-unnamed.json"

// maxUnnamed bounds the file, in bytes.
const maxUnnamed = 1 << 20

// unnamedVolume is a volume without a name that a container of the application has, or had.
type unnamedVolume struct {
	Name    string `json:"name"` // the engine's
	Service string `json:"service"`
	Path    string `json:"path"` // where the service has it
}

// unnamedOf returns the volumes without a name that containers mount, sorted.
func unnamedOf(list []container.Summary) (volumes []unnamedVolume) {
	for _, c := range list {
		for _, m := range c.Mounts {
			if m.Type == "volume" && isAnonymous(m.Name) {
				volumes = append(volumes, unnamedVolume{m.Name, c.Labels[labelService], m.Destination})
			}
		}
	}
	return sortUnnamed(volumes)
}

// sortUnnamed sorts by the engine's names, and leaves one of each.
func sortUnnamed(volumes []unnamedVolume) []unnamedVolume {
	slices.SortStableFunc(volumes, func(a, b unnamedVolume) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(volumes, func(a, b unnamedVolume) bool { return a.Name == b.Name })
}

// noteUnnamed writes down the volumes without a name that the application's containers mount,
// beside those noted before that are still there, and returns all of them. It is durable when
// it returns. base is the application's directory in the store; without one, nothing is
// written.
func (s *session) noteUnnamed(ctx context.Context, base string, list []container.Summary) ([]unnamedVolume, error) {
	volumes := unnamedOf(list)
	if base == "" || !isDirectory(base) {
		return volumes, nil
	}
	path := filepath.Join(base, unnamedName)
	old, err := readUnnamed(path)
	if err != nil {
		return volumes, err
	}
	for _, v := range old {
		_, err := s.engine.Client().VolumeInspect(ctx, v.Name)
		if docker.IsNotFound(err) {
			continue
		}
		if err != nil {
			return volumes, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		volumes = append(volumes, v)
	}
	volumes = sortUnnamed(volumes)
	switch {
	case slices.Equal(volumes, old):
		return volumes, nil
	case len(volumes) == 0:
		return nil, durable.Remove(path)
	}
	data, err := json.MarshalIndent(volumes, "", "  ")
	if err != nil {
		return volumes, err
	}
	return volumes, durable.WriteFile(path, append(data, '\n'), 0o600)
}

// readUnnamed reads the file. A missing or damaged one has no volumes.
func readUnnamed(path string) (volumes []unnamedVolume, err error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxUnnamed {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, &volumes) != nil {
		return nil, nil
	}
	return slices.DeleteFunc(volumes, func(v unnamedVolume) bool { return !isAnonymous(v.Name) }), nil
}

// keepTrack is noteUnnamed for calls that go on without: the volumes stay, and only a later
// PURGE does not find those whose containers are gone by then.
func (s *session) keepTrack(ctx context.Context, dir string, list []container.Summary) {
	if _, err := s.noteUnnamed(ctx, appDirectory(s.req.App, dir), list); err != nil {
		s.req.Logf("warning: volumes without a name are not written down: %v", err)
	}
}
