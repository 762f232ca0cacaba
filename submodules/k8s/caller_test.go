package k8s

import (
	"context"

	"github.com/mender-app/mender-app/submodules"
)

// caller makes calls of a sub-module as the frame does, but for the errors, which
// it returns as they are: each call is a session of its own.
type caller struct{ o Orchestrator }

// open opens a session for a verb.
func (c caller) open(ctx context.Context, verb string, r submodules.Request) (*session, error) {
	s, err := c.o.Open(ctx, verb, r)
	if err != nil {
		return nil, err
	}
	return s.(*session), nil
}

// do makes a call without a reply.
func (c caller) do(ctx context.Context, verb string, r submodules.Request, call func(*session, context.Context) error) error {
	_, err := reply(ctx, c, verb, r, func(s *session, ctx context.Context) (struct{}, error) { return struct{}{}, call(s, ctx) })
	return err
}

// reply makes a call and returns its reply.
func reply[T any](ctx context.Context, c caller, verb string, r submodules.Request, call func(*session, context.Context) (T, error)) (none T, err error) {
	s, err := c.open(ctx, verb, r)
	if err != nil {
		return none, err
	}
	defer s.Close()
	return call(s, ctx)
}

func (c caller) ExportManifest(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbExportManifest, r, (*session).ExportManifest)
}

func (c caller) Save(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbSave, r, (*session).Save)
}

func (c caller) Load(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbLoad, r, (*session).Load)
}

func (c caller) Delete(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbDelete, r, (*session).Delete)
}

func (c caller) Rollout(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbRollout, r, (*session).Rollout)
}

func (c caller) Rollback(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbRollback, r, (*session).Rollback)
}

func (c caller) Purge(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbPurge, r, (*session).Purge)
}

func (c caller) Stop(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbStop, r, (*session).Stop)
}

func (c caller) Start(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbStart, r, (*session).Start)
}

func (c caller) Sync(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbSync, r, (*session).Sync)
}

func (c caller) Restore(ctx context.Context, r submodules.Request) error {
	return c.do(ctx, submodules.VerbRestore, r, (*session).Restore)
}

func (c caller) List(ctx context.Context, r submodules.Request) ([]submodules.Component, error) {
	return reply(ctx, c, submodules.VerbList, r, (*session).List)
}

func (c caller) Alive(ctx context.Context, r submodules.Request) (bool, error) {
	return reply(ctx, c, submodules.VerbAlive, r, (*session).Alive)
}

func (c caller) Healthy(ctx context.Context, r submodules.Request) (bool, error) {
	return reply(ctx, c, submodules.VerbHealthy, r, (*session).Healthy)
}

func (c caller) Reqs(ctx context.Context, r submodules.Request) ([]submodules.Requirement, error) {
	return reply(ctx, c, submodules.VerbReqs, r, (*session).Reqs)
}

func (c caller) Verify(ctx context.Context, r submodules.Request) ([]string, error) {
	return reply(ctx, c, submodules.VerbVerify, r, (*session).Verify)
}

func (c caller) Repair(ctx context.Context, r submodules.Request) ([]string, error) {
	return reply(ctx, c, submodules.VerbRepair, r, (*session).Repair)
}

func (c caller) Storage(ctx context.Context, r submodules.Request) ([]string, error) {
	return reply(ctx, c, submodules.VerbStorage, r, (*session).Storage)
}

func (c caller) Engine(ctx context.Context, r submodules.Request) (submodules.Engine, error) {
	return reply(ctx, c, submodules.VerbEngine, r, (*session).Engine)
}
