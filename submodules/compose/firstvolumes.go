package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// A first installation that fails leaves nothing, so the volumes and directories for data
// that it made go with it. Before they are made, the first ROLLOUT writes down which are not
// there yet: those that are there may have data of an earlier installation.

// madeName is the file for that, beside the manifests.
const madeName = "volumes-made.json"

// made is the file.
type made struct {
	Release     string   `json:"release"` // the directory of the release's manifests
	Volumes     []string `json:"volumes"`
	Directories []string `json:"directories,omitempty"` // below that of the application's data
}

// madeFile returns the path of the file, and the release that the manifests are of; "" if
// they are not in mender-app's store.
func (s *session) madeFile() (path, release string) {
	dir, err := filepath.Abs(s.req.Dir)
	if s.req.Dir == "" || err != nil || !ownDirectory(s.req.App, dir) {
		return "", ""
	}
	if release, err = filepath.EvalSymlinks(dir); err != nil {
		release = ""
	}
	return filepath.Join(filepath.Dir(dir), madeName), release
}

// noteMade writes down the volumes that a first release will make. It is durable when it
// returns. The note of an earlier release goes as soon as another one is rolled out.
func (s *session) noteMade(ctx context.Context, pl *plan) error {
	path, release := s.madeFile()
	if path == "" || s.back {
		return nil
	}
	old, err := readMade(path)
	if err != nil {
		return err
	}
	if old.Release == release {
		return nil // the same ROLLOUT was interrupted
	}
	note := made{Release: release}
	for _, v := range pl.model.Volumes {
		if len(pl.existing) > 0 || v.External {
			continue
		}
		_, err := s.engine.Client().VolumeInspect(ctx, v.Name)
		if docker.IsNotFound(err) {
			note.Volumes = append(note.Volumes, v.Name)
		} else if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	if len(pl.existing) == 0 {
		all, err := pl.dataDirectories()
		if err != nil {
			return err
		}
		for _, rel := range all {
			if !isDirectory(filepath.Join(pl.data, rel)) {
				note.Directories = append(note.Directories, rel)
			}
		}
	}
	if len(note.Volumes)+len(note.Directories) == 0 {
		if old.Release == "" {
			return nil
		}
		return durable.Remove(path)
	}
	return writeNote(path, note)
}

// madeFirst returns what the release in the request's directory made.
func (s *session) madeFirst() (made, error) {
	path, release := s.madeFile()
	if path == "" {
		return made{}, nil
	}
	note, err := readMade(path)
	if err != nil || note.Release != release {
		return made{}, err
	}
	return note, nil
}

func (s *session) forgetMade() error {
	path, _ := s.madeFile()
	if path == "" {
		return nil
	}
	if err := durable.Remove(path); !errors.Is(err, fs.ErrNotExist) { // nothing of the application is there
		return err
	}
	return nil
}

// readMade reads the file. A missing or damaged one names no release.
func readMade(path string) (note made, err error) {
	if ok, err := readNote(path, &note); !ok {
		return made{}, err
	}
	return note, nil
}
