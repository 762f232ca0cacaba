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
