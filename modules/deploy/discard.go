package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// prune removes the releases that are neither current nor kept, and the shell
// reference's files. It runs after the commit: an error is logged, and the next
// prune tries again.
func (e *Engine) prune(ctx context.Context, a *store.App) error {
	n := e.Keep
	if n < 0 {
		n = DefaultKeep
	}
	if a.HasFailed(a.Current) {
		n++ // the way back stays
	}
	if len(a.Kept) > n {
		a.Kept = a.Kept[:n]
		if err := a.Save(); err != nil {
			e.Log.Warn("the journal could not be written", "app", a.Name, "error", err)
			return nil
		}
	}
	e.discardOthers(ctx, a)
	e.dropCopies(a)
	if err := a.DropLegacy(); err != nil {
		e.Log.Warn("old files could not be removed", "app", a.Name, "error", err)
	}
	return nil
}

// tidy removes releases that an earlier call could not remove because the engine
// was down or the disk full. Without a current release it removes nothing: after
// damage to the store, these releases may be all that is left.
func (e *Engine) tidy(ctx context.Context, a *store.App) {
	if a.Deployment == nil && a.Current != "" {
		e.discardOthers(ctx, a)
		e.dropCopies(a)
	}
}

// discardOthers removes the releases that are not retained.
func (e *Engine) discardOthers(ctx context.Context, a *store.App) {
	ids, err := a.Releases()
	if err != nil {
		e.Log.Warn("old releases could not be removed", "app", a.Name, "error", err)
		return
	}
	for _, id := range ids {
		if !isReferenced(a, id) {
			e.discardRelease(ctx, a, id)
		}
	}
}

// discardFailed removes the release of a failed deployment.
func (e *Engine) discardFailed(ctx context.Context, a *store.App) {
	d := a.Deployment
	if d.Reused || d.To == a.Current || slices.Contains(a.Kept, d.To) {
		return
	}
	if e.discardRelease(ctx, a, d.To) && store.Number(d.To) == a.Sequence {
		// Nothing is left of the release: reuse its number. end saves this.
		a.Sequence--
	}
}

// discardRelease deletes the components that only this release has, then its
// directory. On an error it returns false and keeps the directory: a later prune
// reads from it what to delete.
func (e *Engine) discardRelease(ctx context.Context, a *store.App, id string) bool {
	r, err := a.Release(id)
	switch {
	case errors.Is(err, store.ErrNoRelease):
	case err != nil:
		e.Log.Warn("the release stays", "app", a.Name, "release", id, "error", err)
		return false
	default:
		if !r.Complete {
			// Parts of deleted components may stay in the engine, such as a
			// layer whose image was not made yet when the engine was killed.
			if err := e.damaged().Add(r); err != nil {
				e.Log.Warn("the release stays until the next cleanup", "app", a.Name, "release", id, "error", err)
				return false
			}
		}
		err := e.deleteComponents(ctx, a, r)
		if diskspace.Exhausted(err) && e.spendReserve(a) {
			err = e.deleteComponents(ctx, a, r)
		}
		if err != nil {
			e.Log.Warn("the release stays until the next cleanup", "app", a.Name, "release", id, "error", err)
			return false
		}
	}
	if err := a.RemoveRelease(id); err != nil {
		e.Log.Warn("the release stays until the next cleanup", "app", a.Name, "release", id, "error", err)
		return false
	}
	return true
}

func (e *Engine) deleteComponents(ctx context.Context, a *store.App, r *store.Release) error {
	if len(r.Components) == 0 {
		return nil
	}
	t, err := e.targetOf(ctx, a, r)
	if err != nil {
		return err
	}
	used, err := referencesTo(e.Store, a, r.ID, t.info.Has(submodules.FeatureComponents))
	if err != nil {
		return err
	}
	for _, c := range r.Components {
		still, stays := used(c)
		if stays {
			continue
		}
		req := submodules.DeleteRequest{Request: t.request(), URL: c.URL}
		// Name this component alone, because two components of a release may
		// share a URL, and the names under which other releases need it.
		req.Components = forSubmodule(append([]store.Component{c}, still...))
		err := t.client().Delete(ctx, req)
		if err != nil && !errors.Is(err, submodules.ErrNotFound) {
			return fmt.Errorf("delete %s: %w", c.URL, err)
		}
	}
	return nil
}
