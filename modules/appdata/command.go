package appdata

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Command is a command that is run in a container of a release.
type Command struct {
	policy.Migrate
	Old, New string // versions that the command is told
	Probe    string // the manifests, if it is only asked whether it could run
}

// Request returns the call of RUN for the command.
func (c Command) Request(about submodules.Request) submodules.RunRequest {
	if c.Probe != "" {
		about.Dir = c.Probe
	}
	return submodules.RunRequest{Request: about, Service: c.Service, Words: c.Command, OldVersion: c.Old, NewVersion: c.New, Probe: c.Probe != ""}
}

func (k *Keeper) command(m policy.Migrate) Command {
	return Command{Migrate: m, Old: version(k.App, k.App.Deployment.From), New: version(k.App, k.App.Deployment.To)}
}

func version(a *store.App, id string) string {
	r, err := a.Release(id)
	if err != nil {
		return ""
	}
	return r.Version
}

// run migrates the data with a command of the new release. Manifests are read from where
// the release will be started, so that it gets the same mounts.
func (k *Keeper) run(ctx context.Context, m policy.Migrate) error {
	to := k.App.Deployment.To
	if err := k.App.Point(to); err != nil {
		return err
	}
	k.Log.Info("the new release migrates the data", "app", k.App.Name, "service", m.Service)
	late := fmt.Errorf("the command did not end within %s", m.Limit())
	ctx, cancel := context.WithTimeoutCause(ctx, m.Limit(), late)
	defer cancel()
	if err := k.Run(ctx, to, k.command(m)); err != nil {
		// A sub-module ends by itself a little before the time that it was given.
		if errors.Is(err, submodules.ErrDeadline) || errors.Is(context.Cause(ctx), late) {
			err = fmt.Errorf("%w: %w", late, err)
		}
		return fmt.Errorf("data.migrate of %s: %w", k.App.Name, err)
	}
	return nil
}
