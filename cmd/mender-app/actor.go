package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/reconcile"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// actor is the device for reconcile.
type actor struct{ p *program }

var _ reconcile.Device = &actor{}

// Situation asks the sub-modules of managed applications, and reads what is staged. One
// application that cannot be asked does not keep the others waiting.
func (a *actor) Situation(ctx context.Context) (s policy.Situation, err error) {
	st := a.p.config.OpenStore()
	names, err := st.Apps()
	if err != nil {
		return s, err
	}
	list, err := device.Readable(a.p.config, a.p.log)
	if err != nil {
		return s, err
	}
	if err := a.p.unmanaged(); err != nil {
		a.p.log.Debug("no artifact is installed by itself", "reason", err)
		list = nil
	}
	needsEngine := map[string]bool{} // by application
	for _, x := range list {
		if x.Reboot {
			a.p.log.Debug("it asks for a restart of the machine, and is not installed by itself", "artifact", x.ArtifactName)
			continue
		}
		needsEngine[x.Application] = needsEngine[x.Application] || x.Policy.NeedsEngine()
		_, waits := a.window(&x)
		s.Staged = append(s.Staged, policy.Staged{App: x.App(), At: x.Record.Staged, Waits: waits})
	}
	versions := map[string]string{} // by orchestrator
	var unknown error
	asked := 0
	for _, app := range facts.Installed(st, a.p.log, names) {
		present := policy.Present{App: app}
		if app.Policy != nil && app.Policy.Managed {
			r, err := a.look(ctx, st, &present)
			if err != nil {
				unknown = err
				a.p.log.Error("an application cannot be asked", "app", app.Name, "error", err)
				present.Left = true // nothing is done with it
			} else {
				asked++
			}
			told := app.Policy.Reapplies(policy.EventEngineVersion)
			if err == nil && (app.Policy.NeedsEngine() || needsEngine[app.Name] || told) {
				if _, known := versions[r.Orchestrator]; !known {
					versions[r.Orchestrator] = engineVersion(ctx, a.p.config, r.Orchestrator)
				}
				present.Engine = versions[r.Orchestrator]
				if told && !slices.ContainsFunc(s.Facts, func(f policy.Fact) bool { return f.Of == r.Orchestrator }) {
					s.Facts = append(s.Facts, policy.EngineVersion(r.Orchestrator, present.Engine))
				}
			}
		}
		s.Installed = append(s.Installed, present)
	}
	if asked == 0 && unknown != nil {
		return s, unknown
	}
	s.Facts = append(s.Facts, a.facts(ctx, st, s.Installed)...)
	return s, nil
}

// window says whether a staged artifact has to wait for a maintenance window.
func (a *actor) window(x *device.StagedRelease) (policy.Wait, bool) {
	return a.p.engine().WindowOf(x.Policy, x.Signed)
}

// facts finds out what policies want to be told of when it changes, beside the versions of
// engines.
func (a *actor) facts(ctx context.Context, st *store.Store, apps []policy.Present) (list []policy.Fact) {
	wanted := func(event string) bool {
		return slices.ContainsFunc(apps, func(p policy.Present) bool { return p.Policy.Reapplies(event) })
	}
	if wanted(policy.EventOSUpdated) {
		list = append(list, policy.OSVersion(a.p.config.OSVersion(ctx)))
	}
	if !wanted(policy.EventOverrides) {
		return list
	}
	for _, p := range apps {
		v, err := view.Read(st, p.Name)
		if err != nil {
			a.p.log.Warn("the overrides of an application cannot be read", "app", p.Name, "error", err)
			continue
		}
		layers, err := a.p.viewer().Overrides(v)
		if err != nil {
			a.p.log.Warn("overrides are left out", "app", p.Name, "error", err)
		}
		list = append(list, policy.OverridesOf(p.Name, settings.LayersFingerprint(layers)))
	}
	return list
}

// look finds out how an application is.
func (a *actor) look(ctx context.Context, st *store.Store, p *policy.Present) (*store.Release, error) {
	v, err := view.Read(st, p.Name)
	if err != nil {
		return nil, err
	}
	r, err := v.Release(p.Release)
	if err != nil {
		return nil, err
	}
	p.Artifact = r.ArtifactName
	switch v.State {
	case view.Installed:
		status, err := a.p.viewer().Status(ctx, v)
		if err != nil {
			return nil, err
		}
		p.Down = !status.Alive
		p.Changed = a.p.viewer().ValuesChanged(ctx, v)
	case view.Stopped:
		p.Stopped = true
	case view.LeftFailed:
		p.Left = true
	default:
		p.Status = policy.Open
	}
	if p.Status != policy.Open && !p.Left {
		if err := a.enabled(ctx, st, p, r); err != nil {
			return nil, err
		}
	}
	if r.Unstarted && p.Stopped && p.WasOff == "" && p.Policy.Starts() { // it is only loaded, as the one before it
		loaded := *p.Policy
		loaded.DesiredState = policy.StateLoaded
		p.Policy = &loaded
	}
	return r, nil
}

// enabled finds out whether an application may run at all.
func (a *actor) enabled(ctx context.Context, st *store.Store, p *policy.Present, r *store.Release) error {
	app, err := st.App(p.Name)
	if err != nil {
		return err
	}
	p.WasOff = app.Off[r.ID]
	side := hooks.Release{Version: r.Version, Dir: app.ReleaseManifests(r.ID)}
	e := a.p.engine()
	d := hooks.Decider{Hooks: e.Hooks, Values: e.Values}
	p.Off, err = d.Decide(ctx, p.Policy, hooks.Call{Manifests: side.Dir, Application: p.Name, Operation: reconcileOperation, Automatic: true, Old: side, New: side})
	return err
}

// reconcileOperation is what hooks are told.
const reconcileOperation = "reconcile"

// Begin runs the hooks of the device before automatic work.
func (a *actor) Begin(ctx context.Context, event string) error {
	if event == policy.EventBoot {
		if err := a.hook(ctx, policy.HookOnStartup, event); err != nil {
			return err
		}
	}
	return a.hook(ctx, policy.HookBeforeAll, event)
}

// End runs the hooks of the device after automatic work.
func (a *actor) End(ctx context.Context, event string) error {
	return a.hook(ctx, policy.HookAfterAll, event)
}

func (a *actor) hook(ctx context.Context, name, event string) error {
	e := a.p.engine()
	if list, err := e.Hooks.Global(name); err == nil && len(list) == 0 {
		return nil
	}
	dir, err := scratch.Dir("", scratch.Prefix)
	if err != nil {
		return err
	}
	defer scratch.Remove(dir)
	c := hooks.Call{Name: name, Operation: reconcileOperation, Automatic: true, Event: event, Values: filepath.Join(dir, "values")}
	if err := os.WriteFile(c.Values, submodules.EncodeValues(e.Values.For(a.p.log, "")), 0o600); err != nil {
		return err
	}
	if err := e.Hooks.Run(ctx, c); err != nil {
		return fmt.Errorf("hook %s: %w", name, err)
	}
	return nil
}

// Do does the work of a task.
func (a *actor) Do(ctx context.Context, application string, w policy.Work, event string) (bool, error) {
	if w.Do == policy.Disable || w.Do == policy.Enable {
		return true, a.switchTo(ctx, application, w, event)
	}
	if w.Do == policy.Start || w.Do == policy.RollOut {
		e := a.p.engine()
		e.Automatic, e.Asked = true, store.Asked{How: store.AskedByUnit, Event: event}
		did, err := e.StartIfDown(ctx, application, w.Do == policy.RollOut)
		if errors.Is(err, store.ErrNoApp) || errors.Is(err, store.ErrNoRelease) {
			return false, nil // it was removed meanwhile
		}
		return did, err
	}
	list, err := a.p.config.StagingArea().List()
	if err != nil {
		return false, err
	}
	one, err := staging.Find(list, application, w.Artifact)
	if errors.Is(err, staging.ErrNone) {
		return false, nil // it was removed meanwhile
	}
	if err != nil {
		return false, err
	}
	v, err := view.Read(a.p.config.OpenStore(), application)
	if err != nil {
		return false, err
	}
	if r, err := v.Release(v.Committed); err == nil && r.ArtifactName == one.ArtifactName && v.Deployment == nil {
		return false, nil // an earlier call did it
	}
	staged, err := device.Readable(a.p.config, a.p.log)
	if err != nil {
		return false, err
	}
	for i := range staged { // a window may have closed; every attempt is a record of the history
		if x := &staged[i]; x.Application == application && x.ArtifactName == one.ArtifactName {
			if err := deploy.WaitForWindow(a.window(x)); err != nil {
				return false, err
			}
		}
	}
	return true, a.p.installStaged(ctx, one, event)
}

// switchTo disables or enables an application. What is recorded says to the next call how far
// this one came.
func (a *actor) switchTo(ctx context.Context, name string, w policy.Work, event string) error {
	e := a.p.engine()
	e.Automatic, e.Asked = true, store.Asked{How: store.AskedByUnit, Event: event}
	app, err := e.Store.App(name)
	if err != nil {
		return err
	}
	release := app.Current
	if w.Do == policy.Disable {
		if err := hooks.RecordDisabled(ctx, e.Store, name, release, w.Why); err != nil || app.Stopped {
			return err
		}
		return e.Stop(ctx, name)
	}
	r, err := app.Release(release)
	if err != nil {
		return err
	}
	if app.Stopped && facts.PolicyOf(a.p.log, name, r).Starts() {
		if err := e.Start(ctx, name); err != nil {
			return err
		}
	}
	return hooks.RecordDisabled(ctx, e.Store, name, release, "")
}

// Waits reports whether something else has to end first.
func (*actor) Waits(err error) bool {
	return device.ExitCode(err) == device.ExitBusy || errors.Is(err, client.ErrOpen)
}

// Refused reports whether an error stays the same: a policy refuses the artifact, it is
// damaged, or an operator does not want it.
func (*actor) Refused(err error) bool {
	code := device.ExitCode(err)
	return code == device.ExitRefused || code == device.ExitContent || code == device.ExitAborted
}

// withdraw tells reconcile that a person removes a staged artifact, if the installed release
// is of it.
func withdraw(ctx context.Context, c *device.Config, a staging.Artifact) error {
	v, err := view.Read(c.OpenStore(), a.Application)
	if err != nil || v.Committed == "" {
		return nil //nolint:nilerr // nothing of it is installed
	}
	r, err := v.Release(v.Committed)
	if err != nil || r.ArtifactName != a.ArtifactName {
		return nil //nolint:nilerr // another release is
	}
	if rules := facts.PolicyOf(slog.New(slog.DiscardHandler), a.Application, r); rules == nil || !rules.Managed {
		return nil
	}
	event := policy.Event{Name: policy.EventBundles, Fields: map[string]string{policy.FieldWithdrawn: a.ArtifactName}}
	q := &reconcile.Queue{Store: c.OpenStore()}
	return q.Add(ctx, reconcile.Task{Work: policy.Work{Do: policy.Evaluate}, Event: event})
}
