package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file holds what an operator can do without the Mender client.

// ErrOpen: a deployment of the application is under way.
var ErrOpen = errors.New("a deployment is under way")

// GoBack starts and commits a kept release of an application, and keeps the
// release that it replaces. which is the kept release's name, its number or its
// artifact's name; "" is the newest that was installed before the current release.
// The application must have no open deployment. If the kept release does not become
// healthy, GoBack starts the release that ran before, and the error says so.
func (e *Engine) GoBack(ctx context.Context, name, which string) (to *store.Release, err error) {
	release, err := e.lock(ctx, "rollback of "+name)
	if err != nil {
		return nil, err
	}
	defer release()
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
	id, err := a.FindKept(which)
	if err != nil {
		return nil, err
	}
	t, err := e.target(ctx, a, id)
	if err != nil {
		return nil, err
	}
	r := t.r
	if e.MayGoBack != nil {
		if err := e.MayGoBack(r); err != nil {
			return nil, err
		}
	}
	if t.info.Has(submodules.FeatureVerify) {
		problems, err := t.verify(ctx)
		if err != nil {
			return nil, err
		}
		if len(problems) > 0 {
			return nil, unfit("release %s is not whole (%s); install an older artifact", r.ID, problems[0])
		}
	}
	d := e.newDeployment(name, a.NextID("back-to-"+r.ID))
	d.ArtifactName, d.From, d.To, d.Reused = r.ArtifactName, a.Current, r.ID, true
	a.Deployment = d
	first := journal.Loaded
	if t.hasCopies() {
		first = journal.Downloading
	}
	if err := e.enter(a, first); err != nil {
		return nil, err
	}
	if err := e.startKept(ctx, t); err != nil {
		undo := context.WithoutCancel(ctx)
		for _, ev := range []journal.Event{journal.EventRollback, journal.EventCleanup} {
			if uerr := e.handleEvent(undo, a, ev, r.ArtifactName); uerr != nil {
				return nil, errors.Join(err, uerr)
			}
		}
		return nil, err
	}
	return r, e.handleEvent(ctx, a, journal.EventCleanup, r.ArtifactName)
}

// startKept starts and commits the release of an open deployment. The release is
// on the device already, except for components that a later release overwrote.
func (e *Engine) startKept(ctx context.Context, t *target) error {
	ctx, stop := watchAbort(ctx, t.a)
	defer stop()
	events := []journal.Event{journal.EventInstall, journal.EventCommit}
	if phaseOf(t.a) == journal.Downloading {
		if err := t.reload(ctx); err != nil {
			return abortCause(ctx, err)
		}
		events = slices.Insert(events, 0, journal.EventReceived)
	}
	for _, ev := range events {
		if err := e.handleEvent(ctx, t.a, ev, t.r.ArtifactName); err != nil {
			return err
		}
	}
	return nil
}

// Resumed is the result of Resume for one application.
type Resumed struct {
	App     string
	Phase   journal.Phase // the phase it was in
	Waiting bool          // it was left as it is: a client or a person decides
	Started bool          // it did not run, and was started
	Err     error
}

// Resume ends the deployments in which a call was interrupted, and starts again what
// should run and does not. Resume holds the lock, so no other call works on them. A deployment that waits for its client
// stays open, unless driver is its driver: then the caller knows that this
// client waits for nothing, and installed is the artifact that the client
// believes is installed. With driver "", all waiting deployments stay.
func (e *Engine) Resume(ctx context.Context, driver, installed string) ([]Resumed, error) {
	release, err := e.lock(ctx, "resume")
	if err != nil {
		return nil, err
	}
	defer release()
	if err := e.finishRepairs(ctx); err != nil {
		return nil, err
	}
	unloaded := e.undoDoomed(ctx)
	e.tidyLeft(ctx)
	if err := e.Store.DropAborts(); err != nil {
		e.Log.Warn("requests to abort that nobody waits for stay", "error", err)
	}
	names, err := e.Store.Apps()
	if err != nil {
		return nil, err
	}
	var out []Resumed
	for _, name := range e.inOrder(names) {
		if e.Store.Legacy(name) || isGone(e.Store, name) {
			continue
		}
		a, err := e.open(name)
		if err != nil {
			out = append(out, Resumed{App: name, Err: err})
			continue
		}
		if a.Deployment == nil {
			started, err := e.resumeIdle(ctx, a)
			if started || err != nil {
				out = append(out, Resumed{App: name, Started: started, Err: err})
			}
			continue
		}
		r := Resumed{App: name, Phase: phaseOf(a)}
		switch {
		case waitsForLeader(e.Store, a):
			r.Waiting = true
		case driver != "" && a.Deployment.Driver == driver || a.Deployment.Leader != nil:
			r.Err = e.settleApp(ctx, a, installed)
		case r.Phase == journal.Loaded && a.Deployment.Overwrites && a.Deployment.BootID != e.bootID():
			// What the boot started may be of either release. No client installs
			// after a restart what it had downloaded before.
			r.Err = e.settleApp(ctx, a, "")
		case r.Phase == journal.Loaded, r.Phase == journal.Installed, r.Phase == journal.Committed:
			r.Waiting = true
		default:
			r.Err = e.settleApp(ctx, a, "")
		}
		switch {
		case r.Err != nil:
		case runsCurrent(a):
			r.Started, r.Err = e.startIfDead(ctx, a)
		case phaseOf(a) == journal.Installed:
			r.Started, r.Err = e.rolloutIfDead(ctx, a)
		}
		out = append(out, r)
	}
	if unloaded != nil {
		e.Log.Error("what was loaded of staged artifacts could not be deleted", "error", unloaded)
	}
	return out, nil
}

// runsCurrent reports whether what should run of a is its current release, and no call that
// follows rolls anything out by itself.
func runsCurrent(a *store.App) bool {
	p := phaseOf(a)
	return p == journal.None || p == journal.Committed || p == journal.Loaded && !a.Deployment.Overwrites
}

// resumeIdle finishes a purge, removes what an earlier call left, starts an application
// that does not run, that a backup had stopped or that an operator's decision was about to
// start again, and stops one that the machine's restart started although an operator had
// stopped it. It reports whether it started one that did not run.
func (e *Engine) resumeIdle(ctx context.Context, a *store.App) (started bool, err error) {
	if a.Purge != "" {
		return false, e.finishPurge(ctx, a)
	}
	e.tidy(ctx, a)
	if !a.Stopped && !a.Deciding {
		if err := e.data(a, false).GoOn(ctx); err != nil {
			return false, err
		}
		return e.startIfDead(ctx, a)
	}
	t, err := e.target(ctx, a, a.Current)
	if err != nil {
		return false, err
	}
	if a.Stopped {
		return false, t.stop(ctx)
	}
	if err := t.client().Start(ctx, t.request()); err != nil {
		return false, err
	}
	return false, a.Save()
}

// Installed is an installed application that is backed up. Nothing changes it meanwhile.
type Installed struct {
	App     *store.App
	Release *store.Release
	Temp    string // a directory for temporary files
	// Save writes a component to a file, and CopyData the data into a directory.
	Save     func(ctx context.Context, c store.Component, path string) error
	CopyData func(ctx context.Context, dir string) ([]appdata.Place, error)
}

// Backup calls f with each of the applications, in the order in which they can be installed,
// between their hooks pre-backup and post-backup.
func (e *Engine) Backup(ctx context.Context, names []string, f func(*Installed) error) error {
	release, err := e.lock(ctx, "backup")
	if err != nil {
		return err
	}
	defer release()
	var list []*target // all of them, before hooks are run
	for _, name := range facts.InOrder(e.Store, e.Log, names) {
		t, err := e.installedTarget(ctx, name)
		if err != nil {
			return err
		}
		list = append(list, t)
	}
	for _, t := range list {
		if err := t.backUp(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", t.app, err)
		}
	}
	return nil
}

func (t *target) backUp(ctx context.Context, f func(*Installed) error) (err error) {
	m := t.e.hooks()
	defer m.DropHandover(t.a)
	tmp, err := t.e.Store.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := t.e.permit(ctx, hooks.OfCurrent(t.a, policy.HookPreBackup, hooks.OpBackup)); err != nil {
		return err
	}
	err = f(&Installed{App: t.a, Release: t.r, Temp: tmp, Save: t.save, CopyData: t.e.data(t.a, false).Snapshot})
	return errors.Join(err, m.Try(context.WithoutCancel(ctx), hooks.OfCurrent(t.a, policy.HookPostBackup, hooks.OpBackup)))
}

// Restore gives an application that is loaded for the first time what it had when it was
// backed up: change is called with it after the hook pre-restore of its release.
func (e *Engine) Restore(ctx context.Context, name string, change func(*store.App) error) error {
	release, err := e.lock(ctx, "restore of "+name)
	if err != nil {
		return err
	}
	defer release()
	a, err := e.open(name)
	if err != nil {
		return err
	}
	if d := a.Deployment; phaseOf(a) != journal.Loaded || d.From != "" || d.Leader != nil {
		return fmt.Errorf("%w: %s is not loaded for the first time", ErrOpen, name)
	}
	if err := e.permit(ctx, hooks.OfRestore(a)); err != nil {
		return err
	}
	if err := change(a); err != nil {
		return err
	}
	return a.Save()
}

// Restored runs the hook post-restore of an application that is restored.
func (e *Engine) Restored(ctx context.Context, name string) error {
	t, release, err := e.operate(ctx, name, "restore of "+name)
	if err != nil {
		return err
	}
	defer release()
	defer e.hooks().DropHandover(t.a)
	return e.hooks().Try(ctx, hooks.OfCurrent(t.a, policy.HookPostRestore, hooks.OpRestore))
}
