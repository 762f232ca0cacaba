package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
	if Phase(d.Phase) == RollingBack {
		if id = d.From; id == "" {
			return nil
		}
	}
	r, o, info, err := e.release(ctx, a, id)
	if err != nil {
		return err
	}
	if info.Has(submodules.FeatureSync) {
		err = e.call(ctx, submodules.VerbSync, callTimeout, func(ctx context.Context, tmp string) error {
			return o.Sync(ctx, request(a, r, tmp))
		})
		if err != nil {
			return fmt.Errorf("make durable: %w", err)
		}
	} else {
		sysSync()
	}
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
	return e.call(ctx, submodules.VerbRollout, e.rolloutTimeout(), func(ctx context.Context, tmp string) error {
		return o.Rollout(ctx, request(a, r, tmp))
	})
}

// check makes sure, right before the commit, that the new release runs: days
// may have passed since it was rolled out, and the machine may have lost power.
func (e *Engine) check(ctx context.Context, a *store.App) error {
	d := a.Deployment
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

// healthy asks for the health of a release; a sub-module that cannot tell is
// taken at the word of its ROLLOUT.
func (e *Engine) healthy(ctx context.Context, a *store.App, id string) (ok bool, err error) {
	r, o, _, err := e.release(ctx, a, id)
	if err != nil {
		return false, err
	}
	err = e.call(ctx, submodules.VerbHealthy, callTimeout, func(ctx context.Context, tmp string) error {
		ok, err = o.Healthy(ctx, request(a, r, tmp))
		return err
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
	err = e.call(ctx, submodules.VerbRollback, e.rolloutTimeout(), func(ctx context.Context, tmp string) error {
		req := request(a, r, tmp)
		req.FailedDir = a.ReleaseManifests(d.To)
		return o.Rollback(ctx, req)
	})
	if err != nil {
		return fmt.Errorf("the release before did not come back: %w", err)
	}
	return nil
}

func (e *Engine) revertFirst(ctx context.Context, a *store.App) error {
	r, o, _, err := e.release(ctx, a, a.Deployment.To)
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
	err = e.call(ctx, submodules.VerbPurge, callTimeout, func(ctx context.Context, tmp string) error {
		return o.Purge(ctx, request(a, r, tmp))
	})
	if err != nil {
		return err
	}
	return a.Point("")
}

// prune removes the releases that are neither current nor kept, and what is
// left of the shell reference's files. It is after the commit: what does not
// work is logged and tried again after the next one.
func (e *Engine) prune(ctx context.Context, a *store.App) {
	if n := e.keep(); len(a.Kept) > n {
		a.Kept = a.Kept[:n]
		if err := a.Save(); err != nil {
			e.Log.Warn("the journal could not be written", "app", a.Name, "error", err)
			return
		}
	}
	ids, err := a.Releases()
	if err != nil {
		e.Log.Warn("old releases stay", "app", a.Name, "error", err)
		return
	}
	for _, id := range ids {
		if !e.retained(a, id) {
			e.discardRelease(ctx, a, id)
		}
	}
	if err := a.DropLegacy(); err != nil {
		e.Log.Warn("old files stay", "app", a.Name, "error", err)
	}
}

func (e *Engine) retained(a *store.App, id string) bool {
	if id == a.Current || slices.Contains(a.Kept, id) {
		return true
	}
	d := a.Deployment
	return d != nil && (id == d.From && Phase(d.Phase) != Cleaning || id == d.To)
}

// discardFailed removes the release that the deployment brought.
func (e *Engine) discardFailed(ctx context.Context, a *store.App) {
	d := a.Deployment
	if d.Reused || d.To == a.Current || slices.Contains(a.Kept, d.To) {
		return
	}
	if e.discardRelease(ctx, a, d.To) && store.Number(d.To) == a.Sequence {
		// Nothing is left of it, so nothing has changed; end saves this.
		a.Sequence--
	}
}

// discardRelease deletes the components that only this release has, then its
// directory. Where that fails the directory stays, so that a later prune knows
// what is still to be deleted, and the result is false.
func (e *Engine) discardRelease(ctx context.Context, a *store.App, id string) bool {
	r, err := a.Release(id)
	switch {
	case errors.Is(err, store.ErrNoRelease):
	case err != nil:
		e.Log.Warn("the release stays", "app", a.Name, "release", id, "error", err)
		return false
	default:
		if err := e.deleteComponents(ctx, a, r); err != nil {
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
	o, info, err := e.orchestrator(ctx, r.Orchestrator)
	if err != nil {
		return err
	}
	used, err := e.inUse(a, r.ID, info.Has(submodules.FeatureComponents))
	if err != nil {
		return err
	}
	for _, c := range r.Components {
		still, stays := used(c)
		if stays {
			continue
		}
		err := e.call(ctx, submodules.VerbDelete, callTimeout, func(ctx context.Context, tmp string) error {
			req := request(a, r, tmp)
			req.URL = c.URL
			// Only this one, for two components of a release may share a URL;
			// and the names under which the same one is still needed.
			req.Components = components(append([]store.Component{c}, still...))
			return o.Delete(ctx, req)
		})
		if err != nil && !errors.Is(err, submodules.ErrNotFound) {
			return fmt.Errorf("delete %s: %w", c.URL, err)
		}
	}
	return nil
}

// inUse tells of a component whether a release other than the one given needs
// it; if not under this name, still are the components by whose names it is
// needed. A sub-module that knows components by identity keeps a reference an
// application, so that only the application's own releases count; for any
// other one the URL is all there is, and other applications count too.
func (e *Engine) inUse(a *store.App, doomed string, byIdentity bool) (func(store.Component) (still []store.Component, stays bool), error) {
	apps := []*store.App{a}
	if !byIdentity {
		names, err := e.Store.Apps()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name == a.Name || e.Store.Legacy(name) {
				continue
			}
			other, err := e.Store.App(name)
			if err != nil {
				return nil, err
			}
			apps = append(apps, other)
		}
	}
	same, urls := map[string][]store.Component{}, map[string]bool{} // by digest, by URL
	for _, app := range apps {
		ids, err := app.Releases()
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if app.Name == a.Name && (id == doomed || !e.retained(app, id)) {
				continue
			}
			r, err := app.Release(id)
			if errors.Is(err, store.ErrNoRelease) {
				continue
			}
			if err != nil {
				return nil, err // what it needs is not known: delete nothing
			}
			for _, c := range r.Components {
				if c.Digest != "" && !slices.ContainsFunc(same[c.Digest], func(s store.Component) bool { return s.URL == c.URL }) {
					same[c.Digest] = append(same[c.Digest], c)
				}
				urls[strings.TrimSpace(c.URL)] = true
			}
		}
	}
	return func(c store.Component) ([]store.Component, bool) {
		if !byIdentity || c.Digest == "" {
			return nil, urls[c.URL] || len(same[c.Digest]) > 0
		}
		still := same[c.Digest]
		return still, slices.ContainsFunc(still, func(s store.Component) bool { return s.URL == c.URL })
	}, nil
}
