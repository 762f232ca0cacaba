package deploy

import (
	"context"
	"log/slog"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store"
)

// This file finds the images of other applications whose names a failed release has
// taken. Two applications may ship different images under one name (redis:7): a release
// takes the name when it is rolled out, and a rollback must give it back to the image
// that the other application recorded. It must not know how names are given.

// restoreImageNames gives the names back that only the failed release of an application has, and
// not the one before, which may be nil. give names an image of another application's
// release again.
//
// It runs after the rollback, which has succeeded. A failure is only logged, because the
// other application's next ROLLOUT takes its names back too. An error is returned only if
// the call is cancelled.
func restoreImageNames(ctx context.Context, s *store.Store, log *slog.Logger, app string, failed, before *store.Release,
	give func(ctx context.Context, a *store.App, r *store.Release, c store.Component) error,
) error {
	names := map[string]bool{} // in the short form: a name may be written in full
	for _, c := range failed.Components {
		names[image.FamiliarRef(c.URL)] = true
	}
	if before != nil {
		for _, c := range before.Components {
			delete(names, image.FamiliarRef(c.URL))
		}
	}
	if len(names) == 0 {
		return nil
	}
	apps, err := s.Apps()
	if err != nil {
		log.Warn("names of other applications' images are not restored", "error", err)
		return nil
	}
	for _, other := range apps {
		if other == app || s.Legacy(other) {
			continue
		}
		if err := restoreNamesOf(ctx, s, other, failed.Orchestrator, names, give); err != nil {
			if ctx.Err() != nil {
				return err
			}
			log.Warn("names of images are not restored", "app", other, "error", err)
		}
	}
	return nil
}

// restoreNamesOf gives the names back to the images of one application.
func restoreNamesOf(ctx context.Context, s *store.Store, app, orchestrator string, names map[string]bool,
	give func(ctx context.Context, a *store.App, r *store.Release, c store.Component) error,
) error {
	a, err := s.App(app)
	if err != nil {
		return err
	}
	id := a.Pointed()
	if id == "" {
		return nil
	}
	r, err := a.Release(id)
	if err != nil || r.Orchestrator != orchestrator {
		return err
	}
	for _, c := range r.Components {
		if !names[image.FamiliarRef(c.URL)] || c.Digest == "" {
			continue
		}
		if err := give(ctx, a, r, c); err != nil {
			return err
		}
	}
	return nil
}
