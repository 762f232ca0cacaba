package deploy

import (
	"context"

	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// data keeps the data of an application with its releases. unlocked is as in target.
func (e *Engine) data(a *store.App, unlocked bool) *appdata.Keeper {
	call := func(ctx context.Context, id string) (*target, submodules.Request, error) {
		t, err := e.target(ctx, a, id)
		if err != nil {
			return nil, submodules.Request{}, err
		}
		if !t.info.Has(submodules.FeatureData) {
			return nil, submodules.Request{}, unfit("the data of %s: the sub-module %s does not have the feature %s", a.Name, t.r.Orchestrator, submodules.FeatureData)
		}
		t.unlocked = unlocked
		return t, t.request(), nil
	}
	list := func(option ...string) func(context.Context, string) ([]submodules.Volume, error) {
		return func(ctx context.Context, id string) ([]submodules.Volume, error) {
			t, req, err := call(ctx, id)
			if err != nil {
				return nil, err
			}
			req.Dir, req.Options = a.ReleaseManifests(id), option
			return t.client().Volumes(ctx, req)
		}
	}
	return &appdata.Keeper{
		App: a, Log: e.Log, Root: e.Store.Dir(), Temp: e.temp,
		Volumes: list(), Make: list(submodules.OptionMake),
		Stop: func(ctx context.Context, id string) error {
			t, req, err := call(ctx, id)
			if err != nil {
				return err
			}
			req.Options = []string{submodules.OptionRemove}
			return t.client().Stop(ctx, req)
		},
		Start: func(ctx context.Context, id string) error {
			t, req, err := call(ctx, id)
			if err != nil {
				return err
			}
			return t.client().Start(ctx, req)
		},
		Run: func(ctx context.Context, id string, c appdata.Command) error {
			t, req, err := call(ctx, id)
			if err != nil {
				return err
			}
			return t.client().Run(ctx, c.Fill(req))
		},
		Hook: func(ctx context.Context, dir string) error { return e.moments().Migrate(ctx, a, dir) },
	}
}
