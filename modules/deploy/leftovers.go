package deploy

import (
	"context"
	"errors"
	"slices"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file removes what an older version left of first installations that failed: networks,
// and references to images. The store has forgotten such an application; its history has not.

// mayBeLeft reports whether the sub-modules may have something of an application that the
// store no longer has. Of one that was purged only its data can be left.
func (e *Engine) mayBeLeft(name string, data bool) bool {
	r, found, err := e.Store.Last(name)
	return err == nil && found && (data || r.Status != store.StatusPurged) && e.Installed != nil
}

// purgeLeft removes what the sub-modules have of an application that the store no longer
// has. With idle, those do it that can tell that nothing of it runs.
func (e *Engine) purgeLeft(ctx context.Context, name string, data, idle bool) error {
	for _, orchestrator := range e.Installed() {
		sub, info, err := e.orchestrator(ctx, orchestrator)
		if err != nil {
			return err
		}
		t := &target{e: e, app: name, r: &store.Release{Orchestrator: orchestrator}, sub: sub, info: info}
		if idle {
			if !info.Has(submodules.FeatureStatus) {
				continue
			}
			status, err := t.client().Status(ctx, submodules.Request{App: name})
			if err != nil || len(status.Services) > 0 {
				continue
			}
		}
		req := submodules.PurgeRequest{Request: submodules.Request{App: name}, Data: data}
		if info.Protocol != "1.0" { // PURGE had no directory then
			req.Dir = e.Store.LeftManifests(name)
		}
		err = t.client().Purge(ctx, req)
		if err != nil && !errors.Is(err, submodules.ErrRequirement) { // it cannot work here, so it has nothing
			return err
		}
	}
	return e.Store.DropEmpty(name)
}

// tidyLeft removes what failed first installations left, unless somebody runs the application
// again. An error is logged: the next call tries again.
func (e *Engine) tidyLeft(ctx context.Context) {
	if e.Installed == nil {
		return
	}
	names, err := e.Store.Remembered()
	if err != nil {
		e.Log.Warn("the history cannot be read", "error", err)
		return
	}
	apps, err := e.Store.Apps()
	if err != nil {
		return // Resume reports it
	}
	for _, name := range names {
		r, found, err := e.Store.Last(name)
		if slices.Contains(apps, name) || err != nil || !found || r.From != "" || r.Status != store.StatusRolledBack && r.Status != store.StatusFailed {
			continue
		}
		if err := e.purgeLeft(ctx, name, false, true); err != nil {
			e.Log.Warn("what a failed first installation left stays", "app", name, "error", err)
		}
	}
}
