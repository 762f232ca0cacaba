package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/mender-app/mender-app/submodules"
)

// verbs are the calls that a deployment makes. A fake has a method for each.
type verbs interface {
	Describe(ctx context.Context) (submodules.Info, error)
	Load(ctx context.Context, r submodules.LoadRequest) error
	Save(ctx context.Context, r submodules.SaveRequest) error
	List(ctx context.Context, r submodules.Request) ([]submodules.Component, error)
	Delete(ctx context.Context, r submodules.DeleteRequest) error
	Rollout(ctx context.Context, r submodules.Request) error
	Rollback(ctx context.Context, r submodules.RollbackRequest) error
	Purge(ctx context.Context, r submodules.PurgeRequest) error
	Stop(ctx context.Context, r submodules.StopRequest) error
	Start(ctx context.Context, r submodules.Request) error
	Alive(ctx context.Context, r submodules.Request) (bool, error)
	Healthy(ctx context.Context, r submodules.Request) (bool, error)
	Reqs(ctx context.Context, r submodules.ReqsRequest) ([]submodules.Requirement, error)
	Verify(ctx context.Context, r submodules.Request) ([]string, error)
	Sync(ctx context.Context, r submodules.Request) error
	Repair(ctx context.Context, r submodules.RepairRequest) ([]string, error)
	Storage(ctx context.Context, r submodules.Request) ([]string, error)
	Engine(ctx context.Context, r submodules.Request) (submodules.Engine, error)
	Check(ctx context.Context, r submodules.Request) (submodules.Changes, error)
	Volumes(ctx context.Context, r submodules.VolumesRequest) ([]submodules.Volume, error)
	Run(ctx context.Context, r submodules.RunRequest) error
	Status(ctx context.Context, r submodules.Request) (submodules.Status, error)
}

// played is a fake as a caller: it prints the replies that a sub-module would.
type played struct{ verbs }

// play returns a client of a fake.
func play(f verbs) submodules.Client { return submodules.Client{Caller: played{f}, Name: "fake"} }

func (p played) Call(ctx context.Context, verb string, r submodules.AnyRequest) ([]byte, error) {
	var out bytes.Buffer
	err := p.answer(ctx, verb, r, &out)
	if k, ok := p.verbs.(submodules.Timekeeper); ok && (verb == submodules.VerbRollout || verb == submodules.VerbRollback) {
		for _, d := range k.Downtimes(ctx, err != nil) {
			_ = json.NewEncoder(&out).Encode(d)
		}
	}
	return out.Bytes(), err
}

func (p played) answer(ctx context.Context, verb string, r submodules.AnyRequest, out *bytes.Buffer) error {
	switch verb {
	case submodules.VerbLoad:
		return p.Load(ctx, *r.(*submodules.LoadRequest))
	case submodules.VerbSave:
		return p.Save(ctx, *r.(*submodules.SaveRequest))
	case submodules.VerbDelete:
		return p.Delete(ctx, *r.(*submodules.DeleteRequest))
	case submodules.VerbRollout:
		return p.Rollout(ctx, *r.Common())
	case submodules.VerbRollback:
		return p.Rollback(ctx, *r.(*submodules.RollbackRequest))
	case submodules.VerbPurge:
		return p.Purge(ctx, *r.(*submodules.PurgeRequest))
	case submodules.VerbStop:
		return p.Stop(ctx, *r.(*submodules.StopRequest))
	case submodules.VerbStart:
		return p.Start(ctx, *r.Common())
	case submodules.VerbSync:
		return p.Sync(ctx, *r.Common())
	case submodules.VerbRun:
		return p.Run(ctx, *r.(*submodules.RunRequest))
	case submodules.VerbProtocol:
		return printed(out)(p.Describe(ctx))
	case submodules.VerbList:
		return printed(out)(p.List(ctx, *r.Common()))
	case submodules.VerbAlive:
		return printed(out)(p.Alive(ctx, *r.Common()))
	case submodules.VerbHealthy:
		return printed(out)(p.Healthy(ctx, *r.Common()))
	case submodules.VerbEngine:
		return printed(out)(p.Engine(ctx, *r.Common()))
	case submodules.VerbStatus:
		return printed(out)(p.Status(ctx, *r.Common()))
	case submodules.VerbCheck:
		return printed(out)(p.Check(ctx, *r.Common()))
	case submodules.VerbVolumes:
		return printed(out)(p.Volumes(ctx, *r.(*submodules.VolumesRequest)))
	case submodules.VerbVerify:
		return printedLines(out)(p.Verify(ctx, *r.Common()))
	case submodules.VerbRepair:
		return printedLines(out)(p.Repair(ctx, *r.(*submodules.RepairRequest)))
	case submodules.VerbStorage:
		return printedLines(out)(p.Storage(ctx, *r.Common()))
	case submodules.VerbReqs:
		list, err := p.Reqs(ctx, *r.(*submodules.ReqsRequest))
		for _, q := range list {
			kind := "error"
			if q.Warning {
				kind = "warning"
			}
			fmt.Fprintf(out, "%s:%s\n", q.Command, kind)
		}
		return err
	}
	return fmt.Errorf("%s: the fake has no such verb", verb)
}

func printed(out *bytes.Buffer) func(v any, err error) error {
	return func(v any, err error) error {
		if err == nil {
			err = json.NewEncoder(out).Encode(v)
		}
		return err
	}
}

func printedLines(out *bytes.Buffer) func(list []string, err error) error {
	return func(list []string, err error) error {
		for _, l := range list {
			fmt.Fprintln(out, l)
		}
		return err
	}
}
