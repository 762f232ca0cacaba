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
	Load(ctx context.Context, r submodules.Request) error
	Save(ctx context.Context, r submodules.Request) error
	List(ctx context.Context, r submodules.Request) ([]submodules.Component, error)
	Delete(ctx context.Context, r submodules.Request) error
	Rollout(ctx context.Context, r submodules.Request) error
	Rollback(ctx context.Context, r submodules.Request) error
	Purge(ctx context.Context, r submodules.Request) error
	Stop(ctx context.Context, r submodules.Request) error
	Start(ctx context.Context, r submodules.Request) error
	Alive(ctx context.Context, r submodules.Request) (bool, error)
	Healthy(ctx context.Context, r submodules.Request) (bool, error)
	Reqs(ctx context.Context, r submodules.Request) ([]submodules.Requirement, error)
	Verify(ctx context.Context, r submodules.Request) ([]string, error)
	Sync(ctx context.Context, r submodules.Request) error
	Repair(ctx context.Context, r submodules.Request) ([]string, error)
	Storage(ctx context.Context, r submodules.Request) ([]string, error)
	Engine(ctx context.Context, r submodules.Request) (submodules.Engine, error)
	Check(ctx context.Context, r submodules.Request) (submodules.Changes, error)
	Volumes(ctx context.Context, r submodules.Request) ([]submodules.Volume, error)
	Run(ctx context.Context, r submodules.Request) error
	Status(ctx context.Context, r submodules.Request) (submodules.Status, error)
}

// played is a fake as a caller: it prints the replies that a sub-module would.
type played struct{ verbs }

// play returns a client of a fake.
func play(f verbs) submodules.Client { return submodules.Client{Caller: played{f}, Name: "fake"} }

func (p played) Call(ctx context.Context, verb string, r submodules.Request) ([]byte, error) {
	var out bytes.Buffer
	if r.Downtimes != nil {
		r.Downtimes = func(list []submodules.Downtime) {
			for _, d := range list {
				_ = json.NewEncoder(&out).Encode(d)
			}
		}
	}
	err := p.answer(ctx, verb, r, &out)
	return out.Bytes(), err
}

func (p played) answer(ctx context.Context, verb string, r submodules.Request, out *bytes.Buffer) error {
	switch verb {
	case submodules.VerbLoad:
		return p.Load(ctx, r)
	case submodules.VerbSave:
		return p.Save(ctx, r)
	case submodules.VerbDelete:
		return p.Delete(ctx, r)
	case submodules.VerbRollout:
		return p.Rollout(ctx, r)
	case submodules.VerbRollback:
		return p.Rollback(ctx, r)
	case submodules.VerbPurge:
		return p.Purge(ctx, r)
	case submodules.VerbStop:
		return p.Stop(ctx, r)
	case submodules.VerbStart:
		return p.Start(ctx, r)
	case submodules.VerbSync:
		return p.Sync(ctx, r)
	case submodules.VerbRun:
		return p.Run(ctx, r)
	case submodules.VerbProtocol:
		return printed(out)(p.Describe(ctx))
	case submodules.VerbList:
		return printed(out)(p.List(ctx, r))
	case submodules.VerbAlive:
		return printed(out)(p.Alive(ctx, r))
	case submodules.VerbHealthy:
		return printed(out)(p.Healthy(ctx, r))
	case submodules.VerbEngine:
		return printed(out)(p.Engine(ctx, r))
	case submodules.VerbStatus:
		return printed(out)(p.Status(ctx, r))
	case submodules.VerbCheck:
		return printed(out)(p.Check(ctx, r))
	case submodules.VerbVolumes:
		return printed(out)(p.Volumes(ctx, r))
	case submodules.VerbVerify:
		return printedLines(out)(p.Verify(ctx, r))
	case submodules.VerbRepair:
		return printedLines(out)(p.Repair(ctx, r))
	case submodules.VerbStorage:
		return printedLines(out)(p.Storage(ctx, r))
	case submodules.VerbReqs:
		list, err := p.Reqs(ctx, r)
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
