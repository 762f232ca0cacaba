package compose

import (
	"context"
	"path/filepath"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Repair implements submodules.Orchestrator.
func (Orchestrator) Repair(ctx context.Context, r submodules.Request) (apps []string, err error) {
	err = with(ctx, r, func(s *session) error {
		spec := docker.RepairSpec{
			App: r.App, Dir: r.Dir, Source: r.Path, Finish: r.HasOption(submodules.OptionFinish), Owner: owner, TempDir: r.TempDir,
		}
		for _, c := range r.Components {
			if c.Type != "image" || c.Digest == "" {
				continue
			}
			id, err := imagestore.ParseIdentity(c)
			if err != nil {
				return err
			}
			spec.Want = append(spec.Want, imagestore.Damaged{URL: c.URL, Identity: id})
		}
		apps, err = s.engine.Repair(ctx, spec)
		return err
	})
	return apps, err
}

// owner is the application that a container is of: the one it is marked with,
// or in whose manifests it was made.
func owner(c container.Summary) (app string, ok bool) {
	if oneoff(c) {
		return "", false
	}
	if app, ok := c.Labels[labelApp]; ok {
		return app, submodules.CheckName(app) == nil
	}
	dir := c.Labels[labelDir]
	app = filepath.Base(filepath.Dir(dir))
	return app, ownDirectory(app, dir) && submodules.CheckName(app) == nil
}

// Storage implements submodules.Orchestrator.
func (Orchestrator) Storage(ctx context.Context, r submodules.Request) (dirs []string, err error) {
	err = with(ctx, r, func(s *session) error {
		dirs, err = s.engine.Storage(ctx)
		return err
	})
	return dirs, err
}
