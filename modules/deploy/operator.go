package deploy

import (
	"context"
	"errors"
	"slices"

	"github.com/mender-app/mender-app/modules/deploy/aborts"
	"github.com/mender-app/mender-app/modules/deploy/together"
	"github.com/mender-app/mender-app/modules/deploy/transition"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file holds what an operator can do without the Mender client.

// ErrOpen: a deployment of the application is under way.
var ErrOpen = errors.New("a deployment is under way")

// GoBack starts and commits a kept release of an application, and keeps the
// release that it replaces. which is the kept release's name, its number or its
// artifact's name; "" is the newest. The application must have no open
// deployment. If the kept release does not become healthy, GoBack starts the
// release that ran before, and the error says so.
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
	first := transition.Loaded
	if t.hasCopies() {
		first = transition.Downloading
	}
	if err := e.enter(a, first); err != nil {
		return nil, err
	}
	if err := e.startKept(ctx, t); err != nil {
		undo := context.WithoutCancel(ctx)
		for _, ev := range []transition.Event{transition.EventRollback, transition.EventCleanup} {
			if uerr := e.handleEvent(undo, a, ev, r.ArtifactName); uerr != nil {
				return nil, errors.Join(err, uerr)
			}
		}
		return nil, err
	}
	return r, e.handleEvent(ctx, a, transition.EventCleanup, r.ArtifactName)
}

// startKept starts and commits the release of an open deployment. The release is
// on the device already, except for components that a later release overwrote.
func (e *Engine) startKept(ctx context.Context, t *target) error {
	ctx, stop := aborts.Watch(ctx, t.a)
	defer stop()
	events := []transition.Event{transition.EventInstall, transition.EventCommit}
	if phaseOf(t.a) == transition.Downloading {
		if err := t.reload(ctx); err != nil {
			return aborts.Cause(ctx, err)
		}
		events = slices.Insert(events, 0, transition.EventReceived)
	}
	for _, ev := range events {
		if err := e.handleEvent(ctx, t.a, ev, t.r.ArtifactName); err != nil {
			return err
		}
	}
	return nil
}

// Resumed is what Resume found for one application.
type Resumed struct {
	App     string
	Phase   transition.Phase // the phase it was in
	Waiting bool             // it was left as it is: a client or a person decides
	Err     error
}

// Resume ends the deployments in which a call was interrupted. Resume holds the
// lock, so no other call works on them. A deployment that waits for its client
// stays as it is, unless driver is its driver: then the caller knows that this
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
	names, err := e.Store.Apps()
	if err != nil {
		return nil, err
	}
	var out []Resumed
	for _, name := range e.inOrder(names) {
		if e.Store.Legacy(name) || together.Gone(e.Store, name) {
			continue
		}
		a, err := e.open(name)
		if err != nil {
			out = append(out, Resumed{App: name, Err: err})
			continue
		}
		if a.Deployment == nil {
			if err := e.resumeIdle(ctx, a); err != nil {
				out = append(out, Resumed{App: name, Err: err})
			}
			continue
		}
		r := Resumed{App: name, Phase: phaseOf(a)}
		switch {
		case together.Waiting(e.Store, a):
			r.Waiting = true
		case driver != "" && a.Deployment.Driver == driver || a.Deployment.Leader != nil:
			r.Err = e.settleApp(ctx, a, installed)
		case r.Phase == transition.Loaded && a.Deployment.Overwrites && a.Deployment.BootID != e.bootID():
			// What the boot started may be of either release. No client installs
			// after a restart what it had downloaded before.
			r.Err = e.settleApp(ctx, a, "")
		case r.Phase == transition.Loaded, r.Phase == transition.Installed, r.Phase == transition.Committed:
			r.Waiting = true
		default:
			r.Err = e.settleApp(ctx, a, "")
		}
		out = append(out, r)
	}
	return out, nil
}

// resumeIdle finishes a purge, removes what an earlier call left, and stops an
// application that the machine's restart started although an operator had
// stopped it.
func (e *Engine) resumeIdle(ctx context.Context, a *store.App) error {
	if a.Purge != "" {
		return e.finishPurge(ctx, a)
	}
	e.tidy(ctx, a)
	if !a.Stopped {
		return nil
	}
	t, err := e.target(ctx, a, a.Current)
	if err != nil {
		return err
	}
	return t.stop(ctx)
}
