package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// A sub-module without the feature stage keeps a component under its URL alone:
// LOAD overwrites what the running release uses. Promise 1 of docs/DESIGN.md still
// holds:
//
//  1. Before the first LOAD, SAVE copies each component that will be overwritten
//     for every release on the device that needs it. The copies are made
//     durable; then the journal says so (Deployment.Overwrites). Until then the
//     update can be refused, and nothing has changed.
//  2. From then on, giving up the update means a rollback (see planFor): the
//     copies are loaded again, and the previous release is started with them.
//  3. Each component of a release on the device is therefore either in place or
//     copied. The current release's components are in place: the end of a
//     deployment removes their copies.

// copyOverwritten copies what loading incoming will overwrite. If there is
// anything, it notes so in the journal. A nil incoming means that the components
// are not known: then all components of the previous release are copied.
func (t *target) copyOverwritten(ctx context.Context, incoming []store.Component) error {
	if t.info.Has(submodules.FeatureStage) {
		return nil
	}
	d := t.a.Deployment
	ids, err := t.a.Releases()
	if err != nil {
		return err
	}
	overwrites := false
	for _, id := range ids {
		if id == t.r.ID || !isReferenced(t.a, id) {
			continue
		}
		other, err := t.e.target(ctx, t.a, id)
		if err != nil {
			// The preflight has logged this. A rollback to this release is not
			// possible.
			t.e.Log.Warn("the components of a release are not copied", "app", t.app, "release", id, "error", err)
			continue
		}
		if other.r.Orchestrator != t.r.Orchestrator {
			continue
		}
		for _, c := range other.r.Components {
			if incoming == nil && id != d.From || incoming != nil && !overwritten(c, incoming) {
				continue
			}
			there, err := other.copyComponent(ctx, c)
			if err != nil {
				return unfit("the update would overwrite %s, which release %s needs, and copying it failed: %w", c.URL, id, err)
			}
			overwrites = overwrites || there
		}
	}
	if !overwrites {
		return nil
	}
	d.Overwrites = true
	return t.a.Save()
}

// overwritten reports whether loading incoming writes to the place of a
// component. Equal content counts as well: a LOAD that is killed leaves half of
// it.
func overwritten(c store.Component, incoming []store.Component) bool {
	return slices.ContainsFunc(incoming, func(n store.Component) bool { return n.URL == c.URL })
}

// copyComponent copies one component of the release. there is false if the
// sub-module does not have the component: then nothing can be lost.
func (t *target) copyComponent(ctx context.Context, c store.Component) (there bool, err error) {
	if _, ok := t.a.Saved(t.r.ID, c.URL); ok {
		return true, nil
	}
	t.e.Log.Info("copying what the update will overwrite", "app", t.app, "release", t.r.ID, "component", c.URL)
	err = t.a.SaveComponent(t.r.ID, c.URL, func(path string) error { return t.save(ctx, c, path) })
	if errors.Is(err, submodules.ErrNotFound) {
		t.e.Log.Warn("a component of the release is missing", "app", t.app, "release", t.r.ID, "component", c.URL)
		return false, nil
	}
	var failed *submodules.CallError
	if err != nil && !errors.As(err, &failed) { // which names the call itself
		err = fmt.Errorf("%s %s: %w", t.r.Orchestrator, submodules.VerbSave, err)
	}
	return err == nil, err
}

// save writes a component to a file.
func (t *target) save(ctx context.Context, c store.Component, path string) error {
	return t.client().Save(ctx, submodules.SaveRequest{Request: t.only(c).request(), URL: c.URL, Path: path})
}

// copyForDownload is copyOverwritten for a download. It refuses the artifact if
// the copies leave too little space for it.
func (t *target) copyForDownload(ctx context.Context, m *artifact.Metadata) error {
	list := releaseComponents(m.Components)
	if len(m.Images) == 0 && list == nil {
		list = []store.Component{} // only the manifests change
	}
	if err := t.copyOverwritten(ctx, list); err != nil {
		return err
	}
	if !t.a.Deployment.Overwrites {
		return nil
	}
	if _, err := t.checkSpace(ctx, m, nil); err != nil {
		return fmt.Errorf("%w, with copies of the components that it would overwrite", err)
	}
	return nil
}

// loadCopies loads the copies that a release has: its components are in place
// afterwards.
func (t *target) loadCopies(ctx context.Context) error {
	for _, c := range t.r.Components {
		path, ok := t.a.Saved(t.r.ID, c.URL)
		if !ok {
			continue
		}
		t.e.Log.Info("loading the copy of an overwritten component", "app", t.app, "release", t.r.ID, "component", c.URL)
		req := submodules.LoadRequest{Request: t.only(c).request(), URL: c.URL, Path: path}
		if err := t.client().Load(ctx, req); err != nil {
			return fmt.Errorf("load the copy of %s: %w", c.URL, err)
		}
	}
	return nil
}

// hasCopies reports whether a release has any copies.
func (t *target) hasCopies() bool {
	return slices.ContainsFunc(t.r.Components, func(c store.Component) bool {
		_, ok := t.a.Saved(t.r.ID, c.URL)
		return ok
	})
}

// reload loads a kept release's copies again, in the phase Downloading.
func (t *target) reload(ctx context.Context) error {
	var copied []store.Component
	for _, c := range t.r.Components {
		if _, ok := t.a.Saved(t.r.ID, c.URL); ok {
			copied = append(copied, c)
		}
	}
	if err := t.copyOverwritten(ctx, copied); err != nil {
		return err
	}
	return t.loadCopies(ctx)
}

// ensureRunning starts the release after a rollback by a sub-module without the
// feature stage, unless HEALTHY says that the release runs.
func (t *target) ensureRunning(ctx context.Context) error {
	if t.info.Has(submodules.FeatureStage) {
		return nil
	}
	ok, err := t.client().Healthy(ctx, t.request())
	if err == nil && ok {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	t.e.Log.Warn("the previous release is not known to be healthy; rolling it out", "app", t.app, "release", t.r.ID)
	return t.client().Rollout(ctx, t.request())
}

// dropCopies removes the copies of the current release and of its data. If that fails, they stay
// until the end of the next deployment.
func (e *Engine) dropCopies(a *store.App) {
	if a.Current == "" {
		return
	}
	if err := a.DropSaved(a.Current); err != nil {
		e.Log.Warn("copies of components could not be removed", "app", a.Name, "release", a.Current, "error", err)
	}
	if err := appdata.Drop(a, a.Current); err != nil {
		e.Log.Warn("the copy of its data could not be removed", "app", a.Name, "release", a.Current, "error", err)
	}
}
