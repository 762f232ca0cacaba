package deploy

import (
	"context"
	"os"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file finds the images of other applications whose names a failed release has
// taken. Two applications may ship different images under one name (redis:7): a release
// takes the name when it is rolled out, and a rollback must give it back to the image
// that the other application recorded.

// restoreNames gives the names back that only the failed release of an application has, and
// not the previous one, which may be nil.
//
// It runs after the rollback, which has succeeded. A failure is only logged, because the
// other application's next ROLLOUT takes its names back too. An error is returned only if
// the call is cancelled.
func (e *Engine) restoreNames(ctx context.Context, a *store.App, failed, before *store.Release) error {
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
	apps, err := e.Store.Apps()
	if err != nil {
		e.Log.Warn("names of other applications' images are not restored", "error", err)
		return nil
	}
	for _, other := range apps {
		if other == a.Name || e.Store.Legacy(other) {
			continue
		}
		if err := e.restoreNamesOf(ctx, other, failed.Orchestrator, names); err != nil {
			if ctx.Err() != nil {
				return err
			}
			e.Log.Warn("names of images are not restored", "app", other, "error", err)
		}
	}
	return nil
}

// restoreNamesOf gives the names back to the images of one application.
func (e *Engine) restoreNamesOf(ctx context.Context, app, orchestrator string, names map[string]bool) error {
	a, err := e.Store.App(app)
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
		if err := e.restoreName(ctx, a, r, c); err != nil {
			return err
		}
	}
	return nil
}

// restoreName names an image again. It uses LOAD, which moves no content for a component
// that is present.
func (e *Engine) restoreName(ctx context.Context, a *store.App, r *store.Release, c store.Component) error {
	t, err := e.targetOf(ctx, a, r)
	if err != nil || !t.info.Has(submodules.FeatureComponents) {
		return err
	}
	e.Log.Info("restoring the name of an image", "app", a.Name, "component", c.URL)
	return t.client().Load(ctx, submodules.LoadRequest{Request: t.only(c).request(), URL: c.URL, Path: os.DevNull})
}
