package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// This file runs the hooks of events: of a deployment, and of what an operator does. It
// knows which release's hook it is and what hooks are told, and keeps what they hand on.
// It does not interpret events, nor change an application's state.

// Programs runs programs for events of a release's life. *Runner implements it.
type Programs interface {
	AllowsHooks() bool
	Global(name string) ([]string, error)
	Check(manifests string, list []policy.Hook) error
	Run(ctx context.Context, c Call) error
}

// The operations that hooks are told of.
const (
	opInstall  = "install"
	opRollback = "rollback"
	OpStop     = "stop"
	OpStart    = "start"
	OpPurge    = "purge"
	opAbort    = "abort"
	OpBackup   = "backup"
	OpRestore  = "restore"
)

// Events runs hooks. Its fields are those of the engine that it serves.
type Events struct {
	Hooks Programs // nil: there are none
	Log   *slog.Logger
	Store *store.Store
	Asked store.Asked // who asked for what is not a deployment
	// Values are what hooks get in a file.
	Values settings.Values
}

// Event is one event of an application's life for which there may be hooks.
type Event struct {
	a         *store.App
	hook      string
	operation string
	own       string // the release whose hook is run; "" for none: only the device's
	old, new  string // releases
	data      string // a directory with a link to each volume; "" for hooks that do not get it
}

// ErrFailed: a hook has failed.
var ErrFailed = errors.New("hook")

// Run runs the hooks of an event. Without any it does nothing. If one fails, the error
// is an ErrFailed.
func (es Events) Run(ctx context.Context, m Event) error {
	if es.Hooks == nil {
		return nil
	}
	own, manifests := es.ownHook(m)
	global, err := es.Hooks.Global(m.hook)
	if err != nil {
		return fmt.Errorf("%w of the device: %w", ErrFailed, err)
	}
	if own.Name == "" && len(global) == 0 {
		return nil
	}
	if err := durable.Point("hook." + m.hook); err != nil {
		return fmt.Errorf("hook %s: %w", m.hook, err)
	}
	tmp, err := es.Store.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	handover := filepath.Join(tmp, "handover")
	before, err := m.a.Handover()
	if err != nil {
		es.Log.Error("what hooks handed on cannot be read", "app", m.a.Name, "error", err)
	}
	if err := os.WriteFile(handover, before, 0o600); err != nil {
		return err
	}
	set := filepath.Join(tmp, "values")
	if err := os.WriteFile(set, submodules.EncodeValues(es.Values.For(es.Log, m.a.Name)), 0o600); err != nil {
		return err
	}
	c := Call{
		Values: set,
		Own:    own, Manifests: manifests, Name: m.hook, Application: m.a.Name, Operation: m.operation,
		Old: es.side(m.a, m.old), New: es.side(m.a, m.new), Handover: handover, Data: m.data,
	}
	asked := es.Asked
	if d := m.a.Deployment; d != nil && d.Asked != nil {
		asked = *d.Asked
	}
	c.Automatic, c.Event = asked.How == store.AskedByUnit, asked.Event
	c.Direction = direction(m, c.Old.Version, c.New.Version)
	es.Log.Info("running hooks", "app", m.a.Name, "hook", m.hook)
	if err := es.Hooks.Run(ctx, c); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w %w", ErrFailed, err)
	}
	if err := keepHandover(m.a, handover, before); err != nil {
		return err
	}
	return durable.Point("hooked." + m.hook)
}

// keepHandover stores what a hook handed on, if it did.
func keepHandover(a *store.App, file string, before []byte) error {
	after, err := readHandover(file)
	if err != nil {
		return fmt.Errorf("%w of %s: it left no file of at most %d bytes for later hooks: %w", ErrFailed, a.Name, store.MaxHandover, err)
	}
	if bytes.Equal(after, before) {
		return nil
	}
	return a.SetHandover(after)
}

// readHandover reads a regular file, and no more of it than may be handed on: a process
// that a hook left behind may still write to it, or put something else in its place.
func readHandover(file string) ([]byte, error) {
	data, err := modules.ReadRegular(file, syscall.O_NOFOLLOW|syscall.O_NONBLOCK, store.MaxHandover+1)
	if err == nil && len(data) > store.MaxHandover {
		err = errors.New("it is too long")
	}
	return data, err
}

// ownHook is the hook of the event's release and the directory of its manifests.
func (es Events) ownHook(m Event) (h policy.Hook, manifests string) {
	if m.own == "" {
		return h, ""
	}
	h, found := es.policyOfRelease(m.a, m.own).Hook(m.hook)
	if found && !es.Hooks.AllowsHooks() {
		es.Log.Warn("a hook of an installed release is not run: allow_hooks in mender-app.conf forbids it", "app", m.a.Name, "hook", m.hook)
		found = false
	}
	if !found {
		return policy.Hook{}, ""
	}
	return h, m.a.ReleaseManifests(m.own)
}

// policyOfRelease is the policy of a release; nil if it has none or cannot be read.
func (es Events) policyOfRelease(a *store.App, id string) *policy.Policy {
	if id == "" {
		return nil
	}
	r, err := a.Release(id)
	if err != nil {
		return nil
	}
	return facts.PolicyOf(es.Log, a.Name, r)
}

func (es Events) side(a *store.App, id string) Release {
	if id == "" {
		return Release{}
	}
	out := Release{Dir: a.ReleaseManifests(id)}
	if r, err := a.Release(id); err == nil {
		out.Version = r.Version
	}
	return out
}

// direction says how the new version is to the old one.
func direction(m Event, before, after string) string {
	switch {
	case m.old == "" || m.new == "":
		return ""
	case before == after:
		return "same"
	}
	order, err := version.Compare(after, before)
	switch {
	case err != nil:
		return "unknown"
	case order < 0:
		return "downgrade"
	case order == 0:
		return "same"
	}
	return "upgrade"
}

// Try runs hooks that cannot stop what is under way: they fail with a line in the log.
func (es Events) Try(ctx context.Context, m Event) error {
	err := es.Run(ctx, m)
	if err == nil || ctx.Err() != nil || !errors.Is(err, ErrFailed) {
		return err
	}
	es.Log.Error("a hook failed; the work goes on", "app", m.a.Name, "hook", m.hook, "error", err)
	return nil
}

// InDeployment is an event of a's open deployment.
func InDeployment(a *store.App, hook, own string) Event {
	d := a.Deployment
	m := Event{a: a, hook: hook, operation: opInstall, own: own, old: d.From, new: d.To}
	if d.Reused {
		m.operation = opRollback
	}
	return m
}

// Check refuses hooks of the new release of a's deployment that cannot be run.
func (es Events) Check(a *store.App) error {
	if p := es.policyOfRelease(a, a.Deployment.To); p != nil && es.Hooks.AllowsHooks() {
		return es.Hooks.Check(a.ReleaseManifests(a.Deployment.To), p.Hooks)
	}
	return nil
}

// Disabled says why the new release of a's deployment must not run at all; "" if it may.
func (es Events) Disabled(ctx context.Context, a *store.App) (off string, err error) {
	d := a.Deployment
	return Decider{Hooks: es.Hooks, Values: es.Values, Store: es.Store}.Decide(ctx, es.policyOfRelease(a, d.To), Call{
		Manifests: a.ReleaseManifests(d.To), Application: a.Name, Operation: opInstall, Old: es.side(a, d.From), New: es.side(a, d.To),
	})
}

// Migrate runs the hook that converts the data for the new release. The application does
// not run. data is a directory with a link to each volume.
func (es Events) Migrate(ctx context.Context, a *store.App, data string) error {
	m := InDeployment(a, policy.HookMigrate, a.Deployment.To)
	m.data = data
	return es.Run(ctx, m)
}

// Ready waits until the hooks of the release that was rolled out say that it is ready.
func (es Events) Ready(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if err := es.Status(ctx, InDeployment(a, policy.HookStatus, d.To)); err != nil {
		return err
	}
	if d.Reused {
		return es.Try(ctx, InDeployment(a, policy.HookPostRollback, d.To))
	}
	return es.Run(ctx, InDeployment(a, policy.HookPostRollout, d.To))
}

// Status waits for the hook status. A release that it does not call ready is not
// healthy.
func (es Events) Status(ctx context.Context, m Event) error {
	err := es.Run(ctx, m)
	if errors.Is(err, ErrFailed) {
		return submodules.Mark(err, submodules.ErrUnhealthy)
	}
	return err
}

// Leaving runs the hook before a rollback: of the release that leaves, if its content
// was accepted. A download that overwrites may be undone before that.
func (es Events) Leaving(ctx context.Context, a *store.App) error {
	return es.Try(ctx, back(a, policy.HookPreRollback, opRollback, accepted(a)))
}

// accepted is the new release of a's deployment if its content was accepted; "" otherwise.
func accepted(a *store.App) string {
	if slices.ContainsFunc(a.Deployment.Steps, func(s store.Step) bool { return s.Phase == journal.Installing }) {
		return a.Deployment.To
	}
	return ""
}

// back is an event on the way back to the previous release.
func back(a *store.App, hook, operation, own string) Event {
	d := a.Deployment
	return Event{a: a, hook: hook, operation: operation, own: own, old: d.To, new: d.From}
}

// OfRestore is the event before a release from a backup, which is loaded, gets its data
// and settings.
func OfRestore(a *store.App) Event {
	m := InDeployment(a, policy.HookPreRestore, a.Deployment.To)
	m.operation = OpRestore
	return m
}

// Aborting runs the hook before a deployment is aborted: of the release that leaves, if
// its content was accepted.
func (es Events) Aborting(ctx context.Context, a *store.App) error {
	return es.Try(ctx, back(a, policy.HookPreAbort, opAbort, accepted(a)))
}

// Aborted runs the hook after a deployment was aborted: of the release that is installed.
func (es Events) Aborted(ctx context.Context, a *store.App) error {
	return es.Try(ctx, back(a, policy.HookPostAbort, opAbort, a.Deployment.From))
}

// Returned runs the hook after a rollback: of the release that runs again.
func (es Events) Returned(ctx context.Context, a *store.App) error {
	return es.Try(ctx, back(a, policy.HookPostRollback, opRollback, a.Deployment.From))
}

// OfCurrent returns the event of an operator's action on the installed release.
func OfCurrent(a *store.App, hook, operation string) Event {
	return Event{a: a, hook: hook, operation: operation, own: a.Current, old: a.Current}
}

// DropHandover ends what hooks handed on. If that fails, the next operation gets it.
func (es Events) DropHandover(a *store.App) {
	if err := a.DropHandover(); err != nil {
		es.Log.Warn("what hooks handed on could not be removed", "app", a.Name, "error", err)
	}
}
