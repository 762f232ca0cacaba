package compose

import (
	"context"
	"path/filepath"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Repair implements submodules.Session.
func (s *session) Repair(ctx context.Context, r submodules.RepairRequest) ([]string, error) {
	q, err := imagestore.NewRepairRequest(r)
	if err != nil {
		return nil, err
	}
	return imagestore.Repair(ctx, s.engine.RepairStore(s.req.TempDir, s.owner), q)
}

// owner returns the application that a container belongs to: the one that it is
// marked with, or from whose manifests it was made. Of mender-container-modules the
// project's name is the application's.
func (s *session) owner(c container.Summary) (app string, ok bool) {
	if oneoff(c) {
		return "", false
	}
	if app, ok := c.Labels[labelApp]; ok {
		return app, names.Check(app) == nil
	}
	dir := c.Labels[labelDir]
	if s.set.modules.Ran(dir) {
		app = c.Labels[labelProject]
		return app, names.Check(app) == nil
	}
	app = filepath.Base(filepath.Dir(dir))
	return app, ownDirectory(app, dir) && names.Check(app) == nil
}

// Storage implements submodules.Session.
func (s *session) Storage(ctx context.Context, _ submodules.Request) ([]string, error) {
	return s.engine.Storage(ctx)
}

// Engine implements submodules.Session.
func (s *session) Engine(ctx context.Context, _ submodules.Request) (e submodules.Engine, err error) {
	if e.Name, e.Version, err = s.engine.Version(ctx); err != nil {
		return e, err
	}
	if c, err := s.findCompose(ctx); err == nil { // what is missing, REQS says
		e.Compose, _ = c.version(ctx)
	}
	return e, nil
}
