package deploy

import (
	"context"

	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// data keeps the data of an application with its releases. unlocked is as in target.
func (e *Engine) data(a *store.App, unlocked bool) *appdata.Keeper {
	doing := func(what string) error { return e.handlesData(a, what) }
	return &appdata.Keeper{App: a, Log: e.Log, Store: e.Store, Doing: doing, Release: &dataCalls{e, a, unlocked}}
}

// handlesData writes to the journal what is done with an application's data from now on;
// "" for nothing.
func (e *Engine) handlesData(a *store.App, what string) error {
	d := a.Deployment
	if d == nil || !journal.HandleData(d, what, e.now()) {
		return nil
	}
	return a.Save()
}

// dataCalls implements appdata.Release.
type dataCalls struct {
	e        *Engine
	a        *store.App
	unlocked bool
}

// target finds the sub-module of a release, which can keep data still.
func (c *dataCalls) target(ctx context.Context, id string) (*target, error) {
	t, err := c.e.target(ctx, c.a, id)
	if err != nil {
		return nil, err
	}
	if !t.info.Has(submodules.FeatureData) {
		return nil, unfit("the data of %s: the sub-module %s does not have the feature %s", c.a.Name, t.r.Orchestrator, submodules.FeatureData)
	}
	t.unlocked = c.unlocked
	return t, nil
}

func (c *dataCalls) Volumes(ctx context.Context, id string, create bool) ([]submodules.Volume, error) {
	t, err := c.target(ctx, id)
	if err != nil {
		return nil, err
	}
	req := submodules.VolumesRequest{Request: t.request()}
	req.Dir = c.a.ReleaseManifests(id)
	if create {
		req.Make = true
	}
	return t.client().Volumes(ctx, req)
}

func (c *dataCalls) Stop(ctx context.Context, id string) error {
	t, err := c.target(ctx, id)
	if err != nil {
		return err
	}
	return t.client().Stop(ctx, submodules.StopRequest{Request: t.request(), Remove: true})
}

func (c *dataCalls) Start(ctx context.Context, id string) error {
	t, err := c.target(ctx, id)
	if err != nil {
		return err
	}
	return t.client().Start(ctx, t.request())
}

func (c *dataCalls) Run(ctx context.Context, id string, command appdata.Command) error {
	t, err := c.target(ctx, id)
	if err != nil {
		return err
	}
	return t.client().Run(ctx, command.Request(t.request()))
}

func (c *dataCalls) RunMigrate(ctx context.Context, dir string) error {
	return c.e.hooks().Migrate(ctx, c.a, dir)
}
