package deploy

import (
	"context"
	"errors"

	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// hooks runs the hooks.
func (e *Engine) hooks() hooks.Events {
	return hooks.Events{Hooks: e.Hooks, Log: e.Log, Store: e.Store, Asked: e.Asked, Values: e.Values}
}

// permit runs the hooks of an event that may refuse what begins. A refusal is an
// ErrUnfit; nothing was changed then.
func (e *Engine) permit(ctx context.Context, ev hooks.Event) error {
	err := e.hooks().Run(ctx, ev)
	if errors.Is(err, hooks.ErrFailed) {
		return unfit("%w", err)
	}
	return err
}

// runPreload runs the hooks before anything is loaded. Those of the new release are not
// accepted yet, so these are of the installed one.
func (e *Engine) runPreload(ctx context.Context, a *store.App) error {
	return e.permit(ctx, hooks.InDeployment(a, policy.HookPreLoad, a.Deployment.From))
}

// runPreRollout asks the hooks of the new release, which the client has accepted by now,
// whether it may be rolled out. Nothing that runs was touched. A rollback that somebody
// asked for is not refused.
func (e *Engine) runPreRollout(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if e.Hooks == nil {
		return nil
	}
	if d.Reused {
		return e.hooks().Try(ctx, hooks.InDeployment(a, policy.HookPreRollback, d.From))
	}
	if err := e.hooks().Check(a); err != nil {
		return unfit("hooks of %s: %w", a.Name, err)
	}
	if err := e.noteDisabled(ctx, a); err != nil {
		return err
	}
	for _, name := range []string{policy.HookPostLoad, policy.HookCheck, policy.HookPreRollout} {
		if err := e.permit(ctx, hooks.InDeployment(a, name, d.To)); err != nil {
			return err
		}
	}
	return nil
}

// noteDisabled notes whether the new release may run at all.
func (e *Engine) noteDisabled(ctx context.Context, a *store.App) error {
	d := a.Deployment
	off, err := e.hooks().Disabled(ctx, a)
	if err != nil {
		return unfit("%s: %w", a.Name, err)
	}
	if off == a.Off[d.To] {
		return nil
	}
	hooks.NoteDisabled(a, d.To, off)
	return a.Save()
}
