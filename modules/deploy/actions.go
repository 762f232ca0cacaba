package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// act takes one step. Each can be taken again.
func (e *Engine) act(ctx context.Context, a *store.App, step journal.Action) error {
	action, ok := map[journal.Action]func(context.Context, *store.App) error{
		journal.EnterLoaded:      e.entering(journal.Loaded),
		journal.EnterInstalling:  e.entering(journal.Installing),
		journal.EnterInstalled:   e.entering(journal.Installed),
		journal.EnterCommitted:   e.enterCommitted,
		journal.EnterCleaning:    e.enterCleaning,
		journal.EnterRollingBack: e.enterRollingBack,
		journal.EnterRolledBack:  e.enterRolledBack,
		journal.EnterFailed:      e.enterFailed,

		journal.RunPreRolloutHooks: e.ask,
		journal.WaitUntilReady:     e.waitUntilReady,
		journal.RunPreReboot:       e.runPreReboot,
		journal.RunPostReboot:      e.runPostReboot,
		journal.Reverify:           e.reverify,
		journal.Barrier:            e.barrier,
		journal.CopyData:           e.copyData,
		journal.MigrateData:        e.migrateData,
		journal.Rollout:            e.rollout,
		journal.RestoreData:        e.restoreData,
		journal.Revert:             e.revert,
		journal.Check:              e.checkAll,
		journal.Recheck:            e.recheck,
		journal.Prune:              e.prune,
		journal.Discard:            e.discard,
		journal.InstallMembers:     e.installMembers,
		journal.UndoMembers:        e.undoMembers,
		journal.CommitMembers:      e.commitMembers,
		journal.End:                e.end,
	}[step]
	if !ok {
		return fmt.Errorf("unknown action %q", step)
	}
	return action(ctx, a)
}

// entering enters a phase that changes nothing else.
func (e *Engine) entering(p journal.Phase) func(context.Context, *store.App) error {
	return func(_ context.Context, a *store.App) error { return e.enter(a, p) }
}

// becomesCurrent makes the new release the current one. The previous one and older ones
// are kept; a failed release is never kept for rollback.
func becomesCurrent(a *store.App) {
	d := a.Deployment
	kept := slices.DeleteFunc(slices.Clone(a.Kept), func(id string) bool { return id == d.To || id == d.From })
	if d.From != "" && !a.HasFailed(d.From) && !a.IsGone(d.From) {
		kept = slices.Insert(kept, 0, d.From)
	}
	a.Current, a.Kept = d.To, kept
}

func (e *Engine) enterCommitted(_ context.Context, a *store.App) error {
	becomesCurrent(a)
	return e.enter(a, journal.Committed)
}

func (e *Engine) enterFailed(_ context.Context, a *store.App) error {
	becomesCurrent(a)
	a.Failed = append(a.Failed, a.Current)
	return e.enter(a, journal.Failed)
}

func (e *Engine) enterCleaning(_ context.Context, a *store.App) error {
	a.Stopped = !a.HasFailed(a.Current) && !e.starts(a, a.Current)
	return e.enter(a, journal.Cleaning)
}

func (e *Engine) enterRollingBack(_ context.Context, a *store.App) error {
	comesBack(a)
	return e.enter(a, journal.RollingBack)
}

func (e *Engine) enterRolledBack(_ context.Context, a *store.App) error {
	comesBack(a)
	return e.enter(a, journal.RolledBack)
}

// comesBack makes the previous release the current one, if the new one was committed.
func comesBack(a *store.App) {
	d := a.Deployment
	if a.Current != d.From {
		a.Current = d.From
		a.Kept = slices.DeleteFunc(a.Kept, func(id string) bool { return id == d.From })
	}
	if d.Reused && !slices.Contains(a.Kept, d.To) {
		a.Kept = slices.Insert(a.Kept, 0, d.To)
	}
}

// ask asks everyone who may refuse the new release, before anything that runs is changed.
func (e *Engine) ask(ctx context.Context, a *store.App) error {
	t, err := e.target(ctx, a, a.Deployment.To)
	if err != nil {
		return err
	}
	if err := e.askAgain(a, t.r); err != nil {
		return err
	}
	if err := t.checkManifests(ctx, a.ReleaseManifests(t.r.ID)); err != nil {
		return err
	}
	if err := e.data(a, false).Check(ctx); err != nil {
		return unfit("%w", err)
	}
	return e.runPreRollout(ctx, a)
}

func (e *Engine) waitUntilReady(ctx context.Context, a *store.App) error {
	if !e.starts(a, a.Deployment.To) {
		return nil
	}
	return e.hooks().Ready(ctx, a)
}

func (e *Engine) runPreReboot(ctx context.Context, a *store.App) error {
	return e.hooks().Run(ctx, hooks.InDeployment(a, policy.HookPreReboot, a.Deployment.To))
}

func (e *Engine) runPostReboot(ctx context.Context, a *store.App) error {
	return e.hooks().Run(ctx, hooks.InDeployment(a, policy.HookPostReboot, a.Deployment.To))
}

func (e *Engine) copyData(ctx context.Context, a *store.App) error { return e.data(a, false).Copy(ctx) }
func (e *Engine) migrateData(ctx context.Context, a *store.App) error {
	return e.data(a, false).Migrate(ctx)
}
func (e *Engine) restoreData(ctx context.Context, a *store.App) error {
	return e.data(a, false).Restore(ctx)
}

// checkAll makes sure, before the commit, that the members and the new release are well.
func (e *Engine) checkAll(ctx context.Context, a *store.App) error {
	if err := e.checkMembers(ctx, a); err != nil {
		return err
	}
	return e.check(ctx, a)
}

// discard removes the release of a failed deployment, and what was kept for it.
func (e *Engine) discard(ctx context.Context, a *store.App) error {
	e.discardFailed(ctx, a)
	e.dropCopies(a)
	return nil
}

// barrier makes everything durable that the orchestrator and the store wrote for
// the deployment.
func (e *Engine) barrier(ctx context.Context, a *store.App) error {
	d := a.Deployment
	id := d.To
	if d.Phase == journal.RollingBack || d.Phase == journal.RolledBack {
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
	if d.Phase != journal.Downloading {
		return nil
	}
	t.r.Complete = true
	if err := a.PutRelease(t.r); err != nil {
		return err
	}
	if err := a.CopyRelease(id); err != nil {
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
	t.e.damaged().DropDurable(t.r.Orchestrator)
	return nil
}

// rollout starts the new release.
func (e *Engine) rollout(ctx context.Context, a *store.App) error {
	if err := e.handlesData(a, ""); err != nil {
		return err
	}
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
	return e.rolloutAgain(ctx, a)
}

// rolloutAgain rolls out a new release that was rolled out before, and makes it durable.
func (e *Engine) rolloutAgain(ctx context.Context, a *store.App) error {
	if err := e.rollout(ctx, a); err != nil {
		return err
	}
	if to := a.Deployment.To; e.starts(a, to) {
		if err := e.hooks().Status(ctx, hooks.InDeployment(a, policy.HookStatus, to)); err != nil {
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
	if err := e.handlesData(a, ""); err != nil {
		return err
	}
	if d.From == "" {
		return e.revertFirst(ctx, a)
	}
	t, err := e.target(ctx, a, d.From)
	if err != nil {
		return err
	}
	if err := e.hooks().Leaving(ctx, a); err != nil {
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
	err = t.client().Rollback(ctx, submodules.RollbackRequest{Request: t.request(), FailedDir: a.ReleaseManifests(d.To)})
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
	return e.hooks().Returned(ctx, a)
}

func (e *Engine) revertFirst(ctx context.Context, a *store.App) error {
	t, err := e.target(ctx, a, a.Deployment.To)
	if errors.Is(err, store.ErrNoRelease) {
		return a.Point("") // an earlier call has done the rest
	}
	if err != nil {
		return err
	}
	if err := e.hooks().Leaving(ctx, a); err != nil {
		return err
	}
	e.Log.Info("removing the failed first release", "app", a.Name, "release", t.r.ID)
	// A sub-module may find the application only by this path.
	if err := a.Point(t.r.ID); err != nil {
		return err
	}
	if err := t.client().Stop(ctx, submodules.StopRequest{Request: t.request()}); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.Log.Warn("stop", "app", a.Name, "error", err) // PURGE may still succeed
	}
	if err := t.purge(ctx, submodules.PurgeRequest{First: true}); err != nil {
		return err
	}
	if err := e.restoreNames(ctx, a, t.r, nil); err != nil {
		return err
	}
	return a.Point("")
}

// enter writes a new phase to the journal.
func (e *Engine) enter(a *store.App, p journal.Phase) error {
	d := a.Deployment
	if err := durable.Point("enter." + string(p)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	journal.Enter(d, p, e.now())
	d.BootID = e.bootID()
	e.Meter.Count(d)
	if d.Changed == nil && (p == journal.Cleaning || p == journal.RolledBack || p == journal.Failed) {
		d.Changed = journal.Changes(a, d.From, d.To)
	}
	e.Transcript.Follow(e.Store, a.Name, d.Number, string(d.Phase))
	e.Log.Debug("phase", "app", a.Name, "state", string(p))
	if err := a.Save(); err != nil {
		return err
	}
	e.Entered(a.Name, d)
	return nil
}

// end ends the deployment: it is in the history then, and no longer in the journal.
func (e *Engine) end(ctx context.Context, a *store.App) error {
	if err := e.endAbort(ctx, a); err != nil {
		return err
	}
	return e.toHistory(a)
}

func (e *Engine) toHistory(a *store.App) error {
	d := a.Deployment
	e.Meter.Count(d)
	if err := e.Remember(e.Store, journal.RecordOf(a.Name, d, journal.StatusOf(d, a.HasFailed(d.To)), e.now())); err != nil {
		return err
	}
	e.hooks().DropHandover(a)
	if d.Phase == journal.Cleaning && !a.HasFailed(d.To) {
		e.dropContent(a)
	}
	a.Deployment = nil
	a.Failed = slices.DeleteFunc(slices.Clone(a.Failed), func(id string) bool { return id != a.Current })
	if a.Current == "" && len(a.Kept) == 0 {
		// The first installation failed: the history has its record.
		if left, err := a.Releases(); err == nil && len(left) == 0 {
			return a.Forget()
		}
	}
	return a.Save()
}
