package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// driverPerson is the driver of operations that a person starts with mender-app.
const driverPerson = "mender-app"

// checkPolicy asks the policies of the artifact and of what is installed. An
// artifact without a policy costs no call of the sub-module and no write.
func (t *target) checkPolicy(ctx context.Context, h *header) error {
	e := t.e
	r := policy.Request{
		Operation: policy.Install,
		Mode:      e.mode(),
		App:       policy.App{Name: t.app, Version: h.meta.ApplicationVersion},
		Engine:    policy.Engine{Name: h.meta.Orchestrator},
	}
	if h.meta.Policy != nil {
		p, err := policy.ParseJSON(h.meta.Policy, t.app, h.meta.ApplicationVersion)
		if err != nil {
			return unfit("%w", err)
		}
		r.App.Policy = p
	}
	names, err := e.Store.Apps()
	if err != nil {
		return err
	}
	r.Installed = e.installed(names)
	if r.App.Policy.NeedsEngine() && t.info.Has(submodules.FeatureEngine) {
		var engine submodules.Engine
		if err := t.call(ctx, submodules.VerbEngine, t.request(), into(&engine, t.o.Engine)); err != nil {
			return unfit("%w", err)
		}
		if engine.Name != "" && engine.Version != "" {
			r.Engine = policy.Engine{Name: engine.Name, Version: engine.Version}
		}
	}
	if r.App.Policy.NeedsPlatform() && e.System != nil {
		if r.Platform, err = e.System(ctx, r.App.Policy.Files()); err != nil {
			return unfit("%w", err)
		}
	}
	d := policy.Decide(r)
	for _, w := range d.Warnings {
		e.Log.Warn(w.String(), "app", t.app)
	}
	if d.Refused != nil {
		return unfit("%s", d.Refused)
	}
	return nil
}

func (e *Engine) mode() policy.Mode {
	switch {
	case e.Driver != driverPerson:
		return policy.ByClient
	case e.Force:
		return policy.Force
	}
	return policy.ByHand
}

// installed returns the facts for policies about those of the named applications
// that have a current release. An application that cannot be read is left out,
// because the incoming artifact may repair it.
func (e *Engine) installed(names []string) (list []policy.App) {
	for _, name := range names {
		if e.Store.Legacy(name) {
			list = append(list, policy.App{Name: name, Release: store.AdoptedID})
			continue
		}
		a, err := e.Store.App(name)
		if errors.Is(err, store.ErrNoApp) || err == nil && a.Current == "" {
			continue
		}
		var r *store.Release
		if err == nil {
			r, err = a.Release(a.Current)
		}
		if err != nil {
			e.Log.Error("an application cannot be read: its policy is ignored", "app", name, "error", err)
			continue
		}
		app := policy.App{Name: name, Version: r.Version, Release: r.ID, Policy: e.policyOf(name, r)}
		if a.Deployment != nil {
			app.Status = policy.Open
		}
		list = append(list, app)
	}
	return list
}

// policyOf reads the policy of a release in the store, nil if it has none.
func (e *Engine) policyOf(app string, r *store.Release) *policy.Policy {
	if r.Policy == nil {
		return nil
	}
	var compact bytes.Buffer // the store's files are indented
	err := json.Compact(&compact, r.Policy)
	if err == nil {
		var p *policy.Policy
		if p, err = policy.ParseJSON(compact.Bytes(), app, r.Version); err == nil {
			return p
		}
	}
	e.Log.Error("the policy of a release cannot be read and is ignored", "app", app, "release", r.ID, "error", err)
	return nil
}

// inOrder sorts applications in the order in which automatic work visits them.
// Without policies that is by name.
func (e *Engine) inOrder(names []string) []string {
	apps := e.installed(names)
	for _, name := range names {
		if !slices.ContainsFunc(apps, func(a policy.App) bool { return a.Name == name }) {
			apps = append(apps, policy.App{Name: name})
		}
	}
	groups, circle := policy.Order(apps)
	if circle != nil {
		e.Log.Warn("applications depend on each other in a circle", "apps", circle)
	}
	return slices.Concat(groups...)
}
