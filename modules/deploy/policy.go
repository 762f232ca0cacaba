package deploy

import (
	"context"
	"slices"

	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/submodules"
)

// checkPolicy asks the policies of the artifact and of what is installed. An
// artifact without a policy costs no call of the sub-module and no write.
func (p *preflight) checkPolicy(ctx context.Context) error {
	e, t, h := p.e, p.t, p.h
	r := policy.Request{
		Operation: policy.Install,
		Mode:      e.Mode(),
		App:       policy.App{Name: t.app, Version: h.Meta.ApplicationVersion},
		Engine:    policy.Engine{Name: h.Meta.Orchestrator},
	}
	var err error
	if r.App.Policy, err = facts.PolicyOfArtifact(h.Meta); err != nil {
		return unfit("%w", err)
	}
	names, err := e.Store.Apps()
	if err != nil {
		return err
	}
	r.Installed = policy.With(facts.Installed(e.Store, e.Log, names), p.with, t.app)
	if r.App.Policy.NeedsStaged() && e.Staged != nil {
		if r.Staged, err = e.Staged.List(); err != nil {
			return err
		}
	}
	if r.App.Policy.NeedsEngine() && t.info.Has(submodules.FeatureEngine) {
		engine, err := t.client().Engine(ctx, t.request())
		if err != nil {
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
	if rules := r.App.Policy; rules != nil && len(rules.Hooks) > 0 && e.Hooks != nil && !e.Hooks.AllowsHooks() {
		return unfit("hooks of %s: the artifact has the hook %s, and allow_hooks = false in mender-app.conf forbids hooks of applications", t.app, rules.Hooks[0].Name)
	}
	layers, _ := settings.Layers(e.Log, e.OverridesDir, t.stored(), t.app, t.r)
	if err := settings.LacksOverrides(t.app, layers, t.info, t.r.Orchestrator); err != nil {
		return unfit("overrides of %s: %w", t.app, err)
	}
	if err := settings.LacksServices(r.App.Policy, t.app, t.info, t.r.Orchestrator); err != nil {
		return unfit("%w", err)
	}
	if err := settings.LacksCPUSet(r.App.Policy, t.app, t.info, t.r.Orchestrator); err != nil {
		return unfit("%w", err)
	}
	settings.WarnOfCPUs(e.Log, e.CPUs, t.app, r.App.Policy)
	if err := appdata.Lacks(r.App.Policy, t.app, t.info, t.r.Orchestrator); err != nil {
		return unfit("%w", err)
	}
	if err := t.askHealth(ctx, &r); err != nil {
		return unfit("%w", err)
	}
	d := policy.Decide(r)
	for _, w := range d.Warnings {
		e.Log.Warn(w.String(), "app", t.app)
	}
	if d.Refused != nil {
		return unfit("%s", d.Refused)
	}
	return p.checkFirst(ctx, r.App, d.First)
}

// askHealth asks for the health of the installed release, for a policy that depends on
// it. One that an operator has stopped is not asked.
func (t *target) askHealth(ctx context.Context, r *policy.Request) error {
	i := slices.IndexFunc(r.Installed, func(a policy.App) bool { return a.Name == t.app })
	if i < 0 || !r.App.Policy.NeedsHealth() || r.Mode == policy.Force || t.e.Store.Legacy(t.app) {
		return nil
	}
	a, err := t.e.Store.App(t.app)
	if err != nil || a.Stopped || a.HasFailed(a.Current) { // one that has failed may be replaced
		return err
	}
	here, err := t.e.target(ctx, a, a.Current)
	if err != nil {
		return err
	}
	here.unlocked = t.unlocked
	ok, err := here.healthy(ctx)
	r.Installed[i].Sick = !ok
	return err
}
