package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file holds what an operator does with an installed application between two
// updates. Each operation is refused while a deployment is open, and can be
// repeated after a kill.

// ErrRunning: the application must be stopped first.
var ErrRunning = errors.New("it is not stopped")

// operate takes the lock for what an operator does with an application, and finds its
// current release.
func (e *Engine) operate(ctx context.Context, name, who string) (*target, func(), error) {
	release, err := e.lock(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	t, err := e.installedTarget(ctx, name)
	if err != nil {
		release()
		return nil, nil, err
	}
	return t, release, nil
}

// installedTarget opens an application for an operator and finds its current
// release. The caller holds the lock.
func (e *Engine) installedTarget(ctx context.Context, name string) (*target, error) {
	if err := e.checkHold(); err != nil {
		return nil, err
	}
	a, err := e.open(name)
	if err != nil {
		return nil, err
	}
	if a.Deployment != nil {
		return nil, open(a.Deployment)
	}
	if a.Purge != "" {
		return nil, fmt.Errorf("%s is being purged: run mender-app purge %s again", name, name)
	}
	if a.Current == "" {
		return nil, fmt.Errorf("%w: %s has no installed release", store.ErrNoRelease, name)
	}
	return e.target(ctx, a, a.Current)
}

// Stop stops an application. It stays stopped until Start or an update, even if
// the machine restarts.
func (e *Engine) Stop(ctx context.Context, name string) error {
	t, release, err := e.operate(ctx, name, "stop of "+name)
	if err != nil {
		return err
	}
	defer release()
	defer e.hooks().DropHandover(t.a)
	if err := e.permit(ctx, hooks.OfCurrent(t.a, policy.HookPreStop, hooks.OpStop)); err != nil {
		return err
	}
	if err := t.stop(ctx); err != nil {
		return err
	}
	t.a.Stopped = true
	if err := t.a.Save(); err != nil {
		return err
	}
	return e.hooks().Try(ctx, hooks.OfCurrent(t.a, policy.HookPostStop, hooks.OpStop))
}

func (t *target) stop(ctx context.Context) error {
	return t.client().Stop(ctx, submodules.StopRequest{Request: t.request()})
}

// Start starts an application that is stopped or runs only in part. It returns
// when the application is healthy.
func (e *Engine) Start(ctx context.Context, name string) error {
	t, release, err := e.operate(ctx, name, "start of "+name)
	if err != nil {
		return err
	}
	defer release()
	if why := t.a.Off[t.r.ID]; why != "" && !e.Automatic {
		return unfit("%s is disabled: %s; mender-app reconcile starts it when that is changed", name, why)
	}
	return t.startAgain(ctx, !e.starts(t.a, t.r.ID)) // it may never have been rolled out
}

// Restart stops an application, or one of its services, and starts it again. It returns
// when the application is healthy. If it is killed, the next Start or Resume starts what it
// stopped.
func (e *Engine) Restart(ctx context.Context, name, service string) error {
	t, release, err := e.operate(ctx, name, "restart of "+name)
	if err != nil {
		return err
	}
	defer release()
	defer e.hooks().DropHandover(t.a)
	if t.a.Stopped {
		return unfit("%s is stopped: mender-app start %s starts it", name, name)
	}
	if service != "" {
		if err := t.checkSwitchable(ctx, service); err != nil {
			return err
		}
		if slices.Contains(t.request().Disabled, service) {
			return unfit("service %s of %s is switched off: mender-app service enable %s %s starts it", service, name, name, service)
		}
	}
	if err := e.permit(ctx, hooks.OfCurrent(t.a, policy.HookPreStop, hooks.OpStop)); err != nil {
		return err
	}
	t.a.Deciding = true
	if err := t.a.Save(); err != nil {
		return err
	}
	if service == "" {
		err = t.stop(ctx)
	} else {
		req := t.request()
		req.Disabled = append(slices.Clone(req.Disabled), service) // its containers are removed
		err = t.client().Start(ctx, req)
		t.a.Deciding = true // the call ended it, and the service is still to be started
	}
	return errors.Join(err, t.startAgain(context.WithoutCancel(ctx), false))
}

// StartIfDown starts an application again of which something that should run does not, and
// writes that to the history. It does nothing for one that is healthy, stopped, or failed,
// except that with reapply it rolls one out again that is not as it would be started now.
func (e *Engine) StartIfDown(ctx context.Context, name string, reapply bool) (did bool, err error) {
	t, release, err := e.operate(ctx, name, "reconcile of "+name)
	if err != nil {
		return false, err
	}
	defer release()
	if t.a.Stopped || t.a.HasFailed(t.a.Current) {
		return false, nil
	}
	ok, err := t.healthy(ctx)
	if err == nil && ok && reapply {
		ok, err = t.asStarted(ctx)
	}
	if err != nil || ok {
		return false, err
	}
	return true, t.bringUp(ctx, reapply)
}

// bringUp starts an application again that should run and does not, or rolls it out, and
// writes that to the history.
func (t *target) bringUp(ctx context.Context, rollout bool) error {
	e := t.e
	d := e.newDeployment(t.app, "reconcile-"+fmt.Sprint(e.now().UnixNano()))
	d.From, d.To, d.ArtifactName = t.r.ID, t.r.ID, t.r.ArtifactName
	e.Log.Info("something of the application does not run, or has changed: starting it again", "app", t.app)
	if err := t.startAgain(ctx, rollout); err != nil {
		return err
	}
	return e.Remember(e.Store, journal.RecordOf(t.app, d, store.StatusReconciled, e.now()))
}

// startIfDead starts the current release again if it should run and something of it does
// not, such as a container whose network the engine lost. An application whose release
// failed, or that an operator or its policy keeps stopped, stays as it is. So does one
// about which the sub-module cannot tell.
func (e *Engine) startIfDead(ctx context.Context, a *store.App) (did bool, err error) {
	if a.Current == "" || a.Stopped || a.HasFailed(a.Current) || !e.starts(a, a.Current) {
		return false, nil
	}
	t, err := e.target(ctx, a, a.Current)
	if err != nil {
		return false, err
	}
	if dead, err := t.dead(ctx); err != nil || !dead {
		return false, err
	}
	return true, t.bringUp(ctx, false)
}

// rolloutIfDead is startIfDead for a new release that waits for its commit.
func (e *Engine) rolloutIfDead(ctx context.Context, a *store.App) (did bool, err error) {
	d := a.Deployment
	if !e.starts(a, d.To) {
		return false, nil
	}
	t, err := e.target(ctx, a, d.To)
	if err != nil {
		return false, err
	}
	if dead, err := t.dead(ctx); err != nil || !dead {
		return false, err
	}
	e.Log.Info("something of the application does not run: rolling out again", "app", a.Name)
	return true, e.rolloutAgain(ctx, a)
}

// dead reports whether something of a release does not run. It is false where the
// sub-module cannot tell.
func (t *target) dead(ctx context.Context) (bool, error) {
	alive, err := t.client().Alive(ctx, t.request())
	if err != nil {
		if !errors.Is(err, submodules.ErrUsage) { // a sub-module may lack the verb
			t.e.Log.Warn("whether the application runs is not known", "app", t.app, "error", err)
		}
		return false, ctx.Err()
	}
	return !alive, nil
}

// startAgain starts the current release, or rolls it out.
func (t *target) startAgain(ctx context.Context, rollout bool) error {
	e := t.e
	if t.a.Deployment == nil {
		defer e.hooks().DropHandover(t.a)
	}
	if err := e.permit(ctx, hooks.OfCurrent(t.a, policy.HookPreStart, hooks.OpStart)); err != nil {
		return err
	}
	start := t.client().Start
	if rollout {
		start = t.client().Rollout
	}
	if err := start(ctx, t.request()); err != nil {
		return err
	}
	ok, err := t.healthy(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return submodules.Mark(fmt.Errorf("%s was started but is not healthy", t.app), submodules.ErrUnhealthy)
	}
	if err := e.hooks().Status(ctx, hooks.OfCurrent(t.a, policy.HookStatus, hooks.OpStart)); err != nil {
		return err
	}
	t.a.Stopped = false
	t.a.Failed = slices.DeleteFunc(slices.Clone(t.a.Failed), func(id string) bool { return id == t.r.ID })
	if err := t.a.Save(); err != nil {
		return err
	}
	return e.hooks().Try(ctx, hooks.OfCurrent(t.a, policy.HookPostStart, hooks.OpStart))
}

// SwitchService switches a service of an application on or off, also in later releases
// that keep it (keep.services). It returns when the application is healthy as it is then;
// if it does not get so, the service is switched back. A stopped application stays stopped.
func (e *Engine) SwitchService(ctx context.Context, name, service string, on bool) error {
	t, release, err := e.operate(ctx, name, "switching a service of "+name)
	if err != nil {
		return err
	}
	defer release()
	if err := t.checkSwitchable(ctx, service); err != nil {
		return err
	}
	return t.decide(ctx, service+" is switched back", func() (func() error, error) { return settings.ChooseService(t.a, service, on) })
}

// checkSwitchable refuses a service that the application does not have, or that its
// sub-module cannot start and stop alone.
func (t *target) checkSwitchable(ctx context.Context, service string) error {
	if !t.info.Has(submodules.FeatureServices) || !t.info.Has(submodules.FeatureCheck) {
		return unfit("the sub-module %s cannot switch services: update it", t.r.Orchestrator)
	}
	req := t.request()
	req.Disabled = nil
	all, err := t.client().Check(ctx, req)
	if err != nil {
		return err
	}
	return settings.CheckService(t.app, service, all)
}

// decide carries out what an operator decided. choose makes the record of it durable: after
// a kill, mender-app resume or start or the same command goes on. If the application does
// not get healthy, back takes the record back.
func (t *target) decide(ctx context.Context, undone string, choose func() (back func() error, err error)) error {
	t.a.Deciding = !t.a.Stopped
	back, err := choose()
	if err != nil || t.a.Stopped {
		return err
	}
	if err = t.client().Start(ctx, t.request()); err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", undone, err), back(),
			t.client().Start(context.WithoutCancel(ctx), t.request()))
	}
	return errors.Join(err, t.a.Save())
}

// What Purge keeps, in the state of an application.
const (
	purgeKeepsData = "keep-data"
	purgeAll       = "data"
)

// Purge removes a stopped application with all its releases: what the application
// owns and, if data is set, the data that it has stored. The history stays. With
// force it stops the application first. The next call of Purge or Resume, or the
// next installation, finishes a purge that was interrupted.
func (e *Engine) Purge(ctx context.Context, name string, data, force bool) error {
	release, err := e.lock(ctx, "purge of "+name)
	if err != nil {
		return err
	}
	defer release()
	if err := e.checkHold(); err != nil {
		return err
	}
	a, err := e.open(name)
	if errors.Is(err, store.ErrNoApp) && e.mayBeLeft(name, data) {
		return e.purgeLeft(ctx, name, data, false)
	}
	if err != nil {
		return err
	}
	if a.Purge == "" {
		if a.Deployment != nil {
			return open(a.Deployment)
		}
		if a.Current != "" && !a.Stopped && !force {
			return fmt.Errorf("%s: %w", name, ErrRunning)
		}
		if !force {
			if err := e.checkNeeded(a); err != nil {
				return err
			}
		}
		// A person who insists goes on where a hook refuses.
		ask := e.permit
		if force {
			ask = e.hooks().Try
		}
		if err := ask(ctx, hooks.OfCurrent(a, policy.HookPrePurge, hooks.OpPurge)); err != nil {
			return err
		}
		if err := e.endRepair(ctx, a.Name); err != nil {
			return err
		}
		a.Purge = purgeKeepsData
	}
	if data {
		a.Purge = purgeAll
	}
	if err := a.Save(); err != nil {
		return err
	}
	return e.finishPurge(ctx, a)
}

// checkNeeded refuses to remove an application that the policy of another one needs.
func (e *Engine) checkNeeded(a *store.App) error {
	names, err := e.Store.Apps()
	if err != nil {
		return err
	}
	r := policy.Request{Operation: policy.Remove, Mode: policy.ByHand, Installed: facts.Installed(e.Store, e.Log, names)}
	i := slices.IndexFunc(r.Installed, func(app policy.App) bool { return app.Name == a.Name })
	if i < 0 {
		return nil
	}
	r.App = r.Installed[i]
	d := policy.Decide(r)
	for _, w := range d.Warnings {
		e.Log.Warn(w.String(), "app", a.Name)
	}
	if d.Refused != nil {
		return unfit("%s, or --force", d.Refused)
	}
	return nil
}

// finishPurge begins or continues the purge that the application's state names.
func (e *Engine) finishPurge(ctx context.Context, a *store.App) error {
	started, changed := e.now(), journal.Changes(a, a.Current, "")
	e.Log.Info("removing the application", "app", a.Name, "data", a.Purge == purgeAll)
	from := a.Current
	if from != "" {
		if err := e.purgeCurrent(ctx, a); err != nil {
			return err
		}
		a.Current, a.Kept = "", nil
		if err := a.Save(); err != nil {
			return err
		}
	}
	if err := a.Point(""); err != nil {
		return err
	}
	e.discardOthers(ctx, a)
	e.dropContent(a)
	left, err := a.Releases()
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s is gone, and components of release %s could not be deleted: run mender-app purge %s again", a.Name, left[0], a.Name)
	}
	d := e.newDeployment(a.Name, "purge-"+fmt.Sprint(a.Sequence))
	d.From, d.Started, d.Changed = from, started, changed
	if err := e.Remember(e.Store, journal.RecordOf(a.Name, d, store.StatusPurged, e.now())); err != nil {
		return err
	}
	return a.Forget()
}

func (e *Engine) purgeCurrent(ctx context.Context, a *store.App) error {
	t, err := e.target(ctx, a, a.Current)
	if err != nil {
		return err
	}
	// A sub-module may find the application only by this path.
	if err := a.Point(t.r.ID); err != nil {
		return err
	}
	if err := t.stop(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.Log.Warn("stop", "app", a.Name, "error", err) // PURGE may still succeed
	}
	if err := t.purge(ctx, submodules.PurgeRequest{Data: a.Purge == purgeAll}); err != nil {
		return err
	}
	if err := e.restoreNames(ctx, a, t.r, nil); err != nil {
		return err
	}
	return e.hooks().Try(ctx, hooks.OfCurrent(a, policy.HookPostPurge, hooks.OpPurge)) // while its file is still there
}

// purge removes everything that the application owns in the engine, and its data if req
// says so.
func (t *target) purge(ctx context.Context, req submodules.PurgeRequest) error {
	if err := t.e.forgetLoaded(ctx, t.a); err != nil {
		return err
	}
	req.Request = t.request()
	if t.info.Protocol == "1.0" {
		req.Dir, req.First = "", false // PURGE had no directory and no options then
	}
	return t.client().Purge(ctx, req)
}

// stayStopped stops a release that a rollback started, if an operator had stopped
// the application before.
func (t *target) stayStopped(ctx context.Context) error {
	if !t.a.Stopped {
		return nil
	}
	t.e.Log.Info("an operator has stopped it: stopping it again", "app", t.app)
	return t.stop(ctx)
}
