package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// call marks the two sides of a sub-module's call for tests, and gives it its
// deadline and temporary directory.
func (e *Engine) call(ctx context.Context, verb string, limit time.Duration, f func(ctx context.Context, tmp string) error) error {
	if err := durable.Point("call." + verb); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tmp, err := e.temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := f(ctx, tmp); err != nil {
		return err
	}
	return durable.Point("called." + verb)
}

// patiently repeats a call that failed for want of the engine: one that is being
// restarted comes back, and neither a commit nor a rollback should fail for it.
func (e *Engine) patiently(ctx context.Context, f func() error) error {
	patience := e.Patience
	if patience == 0 {
		patience = DefaultPatience
	}
	for end, pause := time.Now().Add(patience), time.Second/4; ; pause = min(2*pause, 5*time.Second) {
		err := f()
		var failed *submodules.CallError
		if err == nil || !errors.As(err, &failed) || failed.Code != submodules.CodeRequirement || time.Now().Add(pause).After(end) {
			return err
		}
		e.Log.Warn("the engine does not answer; waiting for it", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// temp makes a directory for temporary files on the store's file system, whose
// free space was checked. It is removed with the next call at the latest.
func (e *Engine) temp() (string, error) {
	dir := e.Store.Meta("tmp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "call-*")
}

// request is what every call about a release says.
func request(a *store.App, r *store.Release, tmp string) submodules.Request {
	return submodules.Request{
		App: a.Name, Dir: a.ManifestsDir(), Components: components(r.Components),
		Platform: r.Platform, Env: r.Env, TempDir: tmp,
	}
}

func components(list []store.Component) []submodules.Component {
	out := make([]submodules.Component, 0, len(list)) // never nil: an empty list says something
	for _, c := range list {
		out = append(out, submodules.Component{Type: c.Type, URL: c.URL, Digest: c.Digest, DiffIDs: c.DiffIDs})
	}
	return out
}

// orchestrator returns a release's sub-module and what it can do.
func (e *Engine) orchestrator(ctx context.Context, name string) (Orchestrator, submodules.Info, error) {
	o, err := e.Find(name)
	if err != nil {
		return nil, submodules.Info{}, err
	}
	if info, ok := e.infos[name]; ok {
		return o, info, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := o.Describe(ctx)
	if err != nil {
		return nil, submodules.Info{}, err
	}
	if e.infos == nil {
		e.infos = map[string]submodules.Info{}
	}
	e.infos[name] = info
	return o, info, nil
}

// release reads a release and its sub-module.
func (e *Engine) release(ctx context.Context, a *store.App, id string) (*store.Release, Orchestrator, submodules.Info, error) {
	r, err := a.Release(id)
	if err != nil {
		return nil, nil, submodules.Info{}, err
	}
	o, info, err := e.orchestrator(ctx, r.Orchestrator)
	return r, o, info, err
}

func (e *Engine) rolloutTimeout() time.Duration {
	if e.RolloutTimeout > 0 {
		return e.RolloutTimeout
	}
	return DefaultRolloutTimeout
}

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
