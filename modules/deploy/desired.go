package deploy

import (
	"context"

	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/store"
)

// A release with desired_state = "stopped" or "loaded" in its policy is loaded and not
// started. Its installation stops the previous release, and it is committed as stopped.

// starts reports whether an installation starts a release.
func (e *Engine) starts(a *store.App, id string) bool {
	r, err := a.Release(id)
	return err != nil || a.Off[id] == "" && !r.Unstarted && facts.PolicyOf(e.Log, a.Name, r).Starts()
}

// staysLoaded reports whether a release that the device installs by itself now is only
// loaded: the one that it replaces is.
func (e *Engine) staysLoaded(a *store.App) bool {
	return e.Automatic && a.Current != "" && a.Stopped && a.Off[a.Current] == "" && !e.starts(a, a.Current)
}

// neednotRun reports whether a release did not run before the deployment either.
func (e *Engine) neednotRun(a *store.App, id string) bool {
	return a.HasFailed(id) || a.Stopped && !e.starts(a, id)
}

// leftToPerson reports whether the new release of a's deployment, which failed with err,
// stays as it is (failed.go).
func (e *Engine) leftToPerson(a *store.App, err error) bool {
	d := a.Deployment
	r, rerr := a.Release(d.To)
	if d.Reused || d.Leader != nil || rerr != nil || !failedToStart(err) {
		return false
	}
	return e.starts(a, r.ID) && !facts.PolicyOf(e.Log, a.Name, r).RollsBack()
}

// replaceStopped stops the previous release. The target's own is not started.
func (t *target) replaceStopped(ctx context.Context) error {
	if from := t.a.Deployment.From; from != "" {
		before, err := t.e.target(ctx, t.a, from)
		if err != nil {
			return err
		}
		// The sub-module may find what to stop only by this path.
		if err := t.a.Point(from); err != nil {
			return err
		}
		if err := before.stop(ctx); err != nil {
			return err
		}
	}
	t.e.Log.Info("the release is loaded and not started, as its policy says", "app", t.app, "release", t.r.ID)
	return t.a.Point(t.r.ID)
}
