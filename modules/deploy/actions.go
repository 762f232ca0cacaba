package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// barrier makes everything durable that the orchestrator and the store wrote for
// the deployment.
func (e *Engine) barrier(ctx context.Context, a *store.App) error {
	d := a.Deployment
	id := d.To
	if journal.Phase(d.Phase) == journal.RollingBack || journal.Phase(d.Phase) == journal.RolledBack {
		if id = d.From; id == "" {
			return nil
		}
	}
	t, err := e.target(ctx, a, id)
	if err != nil {
		return err
	}
	if err := t.makeDurable(ctx); err != nil {
		return err
	}
	if journal.Phase(d.Phase) != journal.Downloading {
		return nil
	}
	t.r.Complete = true
	if err := a.PutRelease(t.r); err != nil {
		return err
	}
	return a.SyncRelease(id)
}

// makeDurable makes everything durable that the orchestrator wrote.
func (t *target) makeDurable(ctx context.Context) error {
	if t.info.Has(submodules.FeatureSync) {
		if err := t.client().Sync(ctx, t.request()); err != nil {
			return fmt.Errorf("make durable: %w", err)
		}
	} else {
		sysSync()
	}
	t.e.suspects().DropDurable(t.r.Orchestrator)
	return nil
}

// rollout starts the new release.
func (e *Engine) rollout(ctx context.Context, a *store.App) error {
	t, err := e.target(ctx, a, a.Deployment.To)
	if err != nil {
		return err
	}
	if !e.starts(a, t.r.ID) {
		return t.replaceStopped(ctx)
	}
	if err := a.Point(t.r.ID); err != nil {
		return err
	}
	e.Log.Info("rolling out", "app", a.Name, "release", t.r.ID)
	return t.client().Rollout(ctx, t.request())
}

// check makes sure, right before the commit, that the new release is healthy. It
// may have been rolled out days ago, and the machine may have lost power.
func (e *Engine) check(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if err := e.reverify(ctx, a); err != nil {
		return err
	}
	starts := e.starts(a, d.To)
	if d.BootID == e.bootID() {
		if !starts {
			return nil
		}
		t, err := e.target(ctx, a, d.To)
		if err != nil {
			return err
		}
		if ok, err := t.healthy(ctx); err != nil || ok {
			return err
		}
		e.Log.Warn("the application is not healthy; rolling it out again", "app", a.Name)
	} else {
		e.Log.Info("the machine was restarted since the installation; rolling out again", "app", a.Name)
	}
	if err := e.rollout(ctx, a); err != nil {
		return err
	}
	if starts {
		if err := e.moments().Status(ctx, hooks.InDeployment(a, policy.HookStatus, d.To)); err != nil {
			return err
		}
	}
	return e.barrier(ctx, a)
}

// recheck starts the previous release again if the machine was restarted since
// the rollback.
func (e *Engine) recheck(ctx context.Context, a *store.App) error {
	if a.Deployment.BootID == e.bootID() {
		return nil
	}
	if err := e.revert(ctx, a); err != nil {
		return err
	}
	return e.barrier(ctx, a)
}

// healthy asks for the health of a release. For a sub-module without HEALTHY,
// the success of its ROLLOUT counts.
func (t *target) healthy(ctx context.Context) (ok bool, err error) {
	ok, err = t.client().Healthy(ctx, t.request())
	if errors.Is(err, submodules.ErrUsage) {
		return true, nil
	}
	return ok, err
}

// revert starts the previous release again. If there was none, it removes the
// new one, but not its data.
func (e *Engine) revert(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if d.From == "" {
		return e.revertFirst(ctx, a)
	}
	t, err := e.target(ctx, a, d.From)
	if err != nil {
		return err
	}
	if err := e.moments().Leaving(ctx, a); err != nil {
		return err
	}
	if err := a.Point(t.r.ID); err != nil {
		return err
	}
	e.Log.Info("rolling back", "app", a.Name, "release", t.r.ID)
	if d.Overwrites {
		if err := t.loadCopies(ctx); err != nil {
			return err
		}
	}
	req := t.request()
	req.FailedDir = a.ReleaseManifests(d.To)
	err = t.client().Rollback(ctx, req)
	if err == nil {
		err = t.ensureRunning(ctx)
	}
	if err != nil && e.neednotRun(a, t.r.ID) && failedToStart(err) && ctx.Err() == nil {
		e.Log.Warn("the previous release did not run, and does not start now", "app", a.Name, "release", t.r.ID, "error", err)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("the previous release did not start again: %w", err)
	}
	if gone, err := a.Release(d.To); err == nil {
		if err := e.restoreNames(ctx, a, gone, t.r); err != nil {
			return err
		}
	}
	if err := t.stayStopped(ctx); err != nil {
		return err
	}
	return e.moments().Returned(ctx, a)
}

func (e *Engine) revertFirst(ctx context.Context, a *store.App) error {
	t, err := e.target(ctx, a, a.Deployment.To)
	if errors.Is(err, store.ErrNoRelease) {
		return a.Point("") // an earlier call has done the rest
	}
	if err != nil {
		return err
	}
	if err := e.moments().Leaving(ctx, a); err != nil {
		return err
	}
	e.Log.Info("removing the failed first release", "app", a.Name, "release", t.r.ID)
	// A sub-module may find the application only by this path.
	if err := a.Point(t.r.ID); err != nil {
		return err
	}
	if err := t.client().Stop(ctx, t.request()); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.Log.Warn("stop", "app", a.Name, "error", err) // PURGE may still succeed
	}
	if err := t.purge(ctx, false, submodules.OptionFirst); err != nil {
		return err
	}
	if err := e.restoreNames(ctx, a, t.r, nil); err != nil {
		return err
	}
	return a.Point("")
}
