package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// barrier returns when everything that the orchestrator and the store wrote
// for the deployment is durable.
func (e *Engine) barrier(ctx context.Context, a *store.App) error {
	d := a.Deployment
	id := d.To
	if Phase(d.Phase) == RollingBack || Phase(d.Phase) == RolledBack {
		if id = d.From; id == "" {
			return nil
		}
	}
	r, o, info, err := e.release(ctx, a, id)
	if err != nil {
		return err
	}
	if info.Has(submodules.FeatureSync) {
		err = e.patiently(ctx, func() error {
			return e.call(ctx, submodules.VerbSync, callTimeout, func(ctx context.Context, tmp string) error {
				return o.Sync(ctx, request(a, r, tmp))
			})
		})
		if err != nil {
			return fmt.Errorf("make durable: %w", err)
		}
	} else {
		sysSync()
	}
	e.durable(r.Orchestrator)
	if Phase(d.Phase) != Downloading {
		return nil
	}
	r.Complete = true
	if err := a.PutRelease(r); err != nil {
		return err
	}
	return a.SyncRelease(id)
}

// rollout brings the new release up.
func (e *Engine) rollout(ctx context.Context, a *store.App) error {
	r, o, _, err := e.release(ctx, a, a.Deployment.To)
	if err != nil {
		return err
	}
	if err := a.Point(r.ID); err != nil {
		return err
	}
	e.Log.Info("rolling out", "app", a.Name, "release", r.ID)
	return e.patiently(ctx, func() error {
		return e.call(ctx, submodules.VerbRollout, e.rolloutTimeout(), func(ctx context.Context, tmp string) error {
			return o.Rollout(ctx, request(a, r, tmp))
		})
	})
}

// check makes sure, right before the commit, that the new release runs: days
// may have passed since it was rolled out, and the machine may have lost power.
func (e *Engine) check(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if err := e.vouch(ctx, a); err != nil {
		return err
	}
	if d.BootID == e.bootID() {
		ok, err := e.healthy(ctx, a, d.To)
		if err != nil || ok {
			return err
		}
		e.Log.Warn("the application is not healthy; rolling it out again", "app", a.Name)
	} else {
		e.Log.Info("the machine was restarted since the installation; rolling out again", "app", a.Name)
	}
	if err := e.rollout(ctx, a); err != nil {
		return err
	}
	return e.barrier(ctx, a)
}

// recheck brings the release before up again, if the machine was restarted since
// it was rolled back to.
func (e *Engine) recheck(ctx context.Context, a *store.App) error {
	if a.Deployment.BootID == e.bootID() {
		return nil
	}
	if err := e.revert(ctx, a); err != nil {
		return err
	}
	return e.barrier(ctx, a)
}

// healthy asks for the health of a release; a sub-module that cannot tell is
// taken at the word of its ROLLOUT.
func (e *Engine) healthy(ctx context.Context, a *store.App, id string) (ok bool, err error) {
	r, o, _, err := e.release(ctx, a, id)
	if err != nil {
		return false, err
	}
	err = e.patiently(ctx, func() error {
		return e.call(ctx, submodules.VerbHealthy, callTimeout, func(ctx context.Context, tmp string) error {
			ok, err = o.Healthy(ctx, request(a, r, tmp))
			return err
		})
	})
	if errors.Is(err, submodules.ErrUsage) {
		return true, nil
	}
	return ok, err
}

// revert brings the release before back; where there was none, nothing of the
// new one stays but its data.
func (e *Engine) revert(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if d.From == "" {
		return e.revertFirst(ctx, a)
	}
	r, o, _, err := e.release(ctx, a, d.From)
	if err != nil {
		return err
	}
	if err := a.Point(r.ID); err != nil {
		return err
	}
	e.Log.Info("rolling back", "app", a.Name, "release", r.ID)
	err = e.patiently(ctx, func() error {
		return e.call(ctx, submodules.VerbRollback, e.rolloutTimeout(), func(ctx context.Context, tmp string) error {
			req := request(a, r, tmp)
			req.FailedDir = a.ReleaseManifests(d.To)
			return o.Rollback(ctx, req)
		})
	})
	if err != nil {
		return fmt.Errorf("the release before did not come back: %w", err)
	}
	return nil
}

func (e *Engine) revertFirst(ctx context.Context, a *store.App) error {
	r, o, info, err := e.release(ctx, a, a.Deployment.To)
	if errors.Is(err, store.ErrNoRelease) {
		return a.Point("") // an earlier call has done the rest
	}
	if err != nil {
		return err
	}
	e.Log.Info("removing the failed first release", "app", a.Name, "release", r.ID)
	// A sub-module may know the application by this path only.
	if err := a.Point(r.ID); err != nil {
		return err
	}
	err = e.call(ctx, submodules.VerbStop, callTimeout, func(ctx context.Context, tmp string) error {
		return o.Stop(ctx, request(a, r, tmp))
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.Log.Warn("stop", "app", a.Name, "error", err) // PURGE decides
	}
	err = e.patiently(ctx, func() error {
		return e.call(ctx, submodules.VerbPurge, callTimeout, func(ctx context.Context, tmp string) error {
			req := request(a, r, tmp)
			if info.Protocol == "1.0" {
				req.Dir = "" // PURGE had no directory then
			}
			return o.Purge(ctx, req)
		})
	})
	if err != nil {
		return err
	}
	return a.Point("")
}
