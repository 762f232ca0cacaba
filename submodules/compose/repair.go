package compose

import (
	"context"
	"path/filepath"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Repair implements submodules.Orchestrator.
func (Orchestrator) Repair(ctx context.Context, r submodules.Request) (apps []string, err error) {
	q, err := imagestore.NewRepairRequest(r)
	if err != nil {
		return nil, err
	}
	err = with(ctx, r, func(s *session) error {
		apps, err = imagestore.Repair(ctx, s.engine.RepairStore(r.TempDir, owner), q)
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
		return app, names.Check(app) == nil
	}
	dir := c.Labels[labelDir]
	app = filepath.Base(filepath.Dir(dir))
	return app, ownDirectory(app, dir) && names.Check(app) == nil
}

// Storage implements submodules.Orchestrator.
func (Orchestrator) Storage(ctx context.Context, r submodules.Request) (dirs []string, err error) {
	err = with(ctx, r, func(s *session) error {
		dirs, err = s.engine.Storage(ctx)
		return err
	})
	return dirs, err
}

// Engine implements submodules.Orchestrator.
func (Orchestrator) Engine(ctx context.Context, r submodules.Request) (e submodules.Engine, err error) {
	err = with(ctx, r, func(s *session) error {
		e.Name, e.Version, err = s.engine.Version(ctx)
		return err
	})
	return e, err
}
