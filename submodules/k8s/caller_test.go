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

// request is a pointer to the request type R.
type request[R any] interface {
	*R
	submodules.AnyRequest
}

// do makes a call without a reply.
func do[R any, P request[R]](ctx context.Context, c caller, verb string, r R, call func(*session, context.Context, R) error) error {
	_, err := reply[R, struct{}, P](ctx, c, verb, r, func(s *session, ctx context.Context, r R) (struct{}, error) { return struct{}{}, call(s, ctx, r) })
	return err
}

// reply makes a call and returns its reply.
func reply[R, T any, P request[R]](ctx context.Context, c caller, verb string, r R, call func(*session, context.Context, R) (T, error)) (none T, err error) {
	s, err := c.open(ctx, verb, *P(&r).Common())
	if err != nil {
		return none, err
	}
	defer s.Close()
	return call(s, ctx, r)
}

func (c caller) ExportManifest(ctx context.Context, r submodules.Request) error {
	return do(ctx, c, submodules.VerbExportManifest, r, (*session).ExportManifest)
}

func (c caller) Save(ctx context.Context, r submodules.SaveRequest) error {
	return do(ctx, c, submodules.VerbSave, r, (*session).Save)
}

func (c caller) Load(ctx context.Context, r submodules.LoadRequest) error {
	return do(ctx, c, submodules.VerbLoad, r, (*session).Load)
}

func (c caller) Delete(ctx context.Context, r submodules.DeleteRequest) error {
	return do(ctx, c, submodules.VerbDelete, r, (*session).Delete)
}

func (c caller) Rollout(ctx context.Context, r submodules.Request) error {
	return do(ctx, c, submodules.VerbRollout, r, (*session).Rollout)
}

func (c caller) Rollback(ctx context.Context, r submodules.RollbackRequest) error {
	return do(ctx, c, submodules.VerbRollback, r, (*session).Rollback)
}

func (c caller) Purge(ctx context.Context, r submodules.PurgeRequest) error {
	return do(ctx, c, submodules.VerbPurge, r, (*session).Purge)
}

func (c caller) Stop(ctx context.Context, r submodules.StopRequest) error {
	return do(ctx, c, submodules.VerbStop, r, (*session).Stop)
}

func (c caller) Start(ctx context.Context, r submodules.Request) error {
	return do(ctx, c, submodules.VerbStart, r, (*session).Start)
}

func (c caller) Sync(ctx context.Context, r submodules.Request) error {
	return do(ctx, c, submodules.VerbSync, r, (*session).Sync)
}

func (c caller) Restore(ctx context.Context, r submodules.Request) error {
	return do(ctx, c, submodules.VerbRestore, r, (*session).Restore)
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

func (c caller) Reqs(ctx context.Context, r submodules.ReqsRequest) ([]submodules.Requirement, error) {
	return reply(ctx, c, submodules.VerbReqs, r, (*session).Reqs)
}

func (c caller) Verify(ctx context.Context, r submodules.Request) ([]string, error) {
	return reply(ctx, c, submodules.VerbVerify, r, (*session).Verify)
}

func (c caller) Repair(ctx context.Context, r submodules.RepairRequest) ([]string, error) {
	return reply(ctx, c, submodules.VerbRepair, r, (*session).Repair)
}

func (c caller) Storage(ctx context.Context, r submodules.Request) ([]string, error) {
	return reply(ctx, c, submodules.VerbStorage, r, (*session).Storage)
}

func (c caller) Engine(ctx context.Context, r submodules.Request) (submodules.Engine, error) {
	return reply(ctx, c, submodules.VerbEngine, r, (*session).Engine)
}
