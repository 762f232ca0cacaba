package deploy

import (
	"context"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// restoreNames gives names back to the images of other applications. Two
// applications may ship different images under one name (redis:7). The failed
// release took the name when it was rolled out, and a rollback must give it back
// to the image that the other application recorded. A name that the previous
// release has too stays with that release.
//
// It runs after the rollback, which has succeeded. A failure is only logged,
// because the other application's next ROLLOUT takes its names back too. An
// error is returned only if the call is cancelled.
func (e *Engine) restoreNames(ctx context.Context, a *store.App, failed, before *store.Release) error {
	taken := map[string]bool{} // in the short form: a name may be written in full
	for _, c := range failed.Components {
		taken[image.FamiliarRef(c.URL)] = true
	}
	if before != nil {
		for _, c := range before.Components {
			delete(taken, image.FamiliarRef(c.URL))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	names, err := e.Store.Apps()
	if err != nil {
		e.Log.Warn("names of other applications' images are not restored", "error", err)
		return nil
	}
	for _, name := range names {
		if name == a.Name || e.Store.Legacy(name) {
			continue
		}
		if err := e.restoreNamesOf(ctx, name, failed.Orchestrator, taken); err != nil {
			if ctx.Err() != nil {
				return err
			}
			e.Log.Warn("names of images are not restored", "app", name, "error", err)
		}
	}
	return nil
}

// restoreNamesOf gives the taken names back to an application's images. It uses
// LOAD, which moves no content for a component that is present.
func (e *Engine) restoreNamesOf(ctx context.Context, name, orchestrator string, taken map[string]bool) error {
	a, err := e.Store.App(name)
	if err != nil {
		return err
	}
	id := a.Pointed()
	if id == "" {
		return nil
	}
	r, err := a.Release(id)
	if err != nil {
		return err
	}
	if r.Orchestrator != orchestrator || !slices.ContainsFunc(r.Components, func(c store.Component) bool { return taken[image.FamiliarRef(c.URL)] }) {
		return nil
	}
	t, err := e.targetOf(ctx, a, r)
	if err != nil || !t.info.Has(submodules.FeatureComponents) {
		return err
	}
	for _, c := range r.Components {
		if !taken[image.FamiliarRef(c.URL)] || c.Digest == "" {
			continue
		}
		e.Log.Info("restoring the name of an image", "app", name, "component", c.URL)
		req := t.only(c).request()
		req.URL, req.Path = c.URL, os.DevNull
		if err := t.call(ctx, submodules.VerbLoad, req, t.o.Load); err != nil {
			return err
		}
	}
	return nil
}
