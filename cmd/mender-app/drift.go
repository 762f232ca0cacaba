package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/store"
)

// This file holds what follows when a release runs that a client has not installed: after
// a rollback or a purge by hand, and after an installation beside a Mender client.

// settle corrects mender-app's record of what is installed by what the store says. A record
// that another command works with is left to that command.
func (p *program) settle() error {
	s := p.config.OpenStore()
	running, err := device.Running(s)
	if err != nil {
		return err
	}
	c := &client.Client{Dir: s.Meta("client"), Driver: driverName}
	if !c.Unsettled(running) {
		return nil
	}
	release, err := c.Lock()
	if errors.Is(err, client.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	return c.Settle(running)
}

// settled makes a change that no client learns of. The record is settled before, too: then
// it says what belongs to the application that goes.
func (p *program) settled(change func() error) error {
	if err := p.settle(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	return p.settle()
}

// views are what mender-app compares an artifact's depends with when it installs: what a
// Mender client has recorded, if there is one, or what runs.
func (p *program) views(ctx context.Context, h *mender.Header) ([]client.Installed, error) {
	recorded, err := p.config.Recorded()
	if err != nil || !dependsOnInstalled(h) {
		return []client.Installed{recorded}, err
	}
	managed, theirs, err := device.MenderInstalled(ctx)
	switch {
	case !managed:
		return []client.Installed{recorded}, nil
	case err != nil:
		p.log.Warn("the Mender client is not asked what is installed", "error", err)
		return []client.Installed{recorded}, nil
	}
	return []client.Installed{theirs, recorded}, nil
}

// dependsOnInstalled reports whether it matters to an artifact what is installed.
func dependsOnInstalled(h *mender.Header) bool {
	return len(h.Depends)+len(h.DependsNames)+len(h.DependsGroups) > 0
}

// acceptedByMender makes the checks that the Mender client makes. If it refuses an artifact
// because another release runs than the one that it has installed, the error says what leads
// on.
func (p *program) acceptedByMender(ctx context.Context, c *client.Client, h *mender.Header, app string) error {
	if !dependsOnInstalled(h) {
		return c.Accepts(h)
	}
	_, theirs, err := device.MenderInstalled(ctx)
	if err != nil {
		return err
	}
	c.Views = []client.Installed{theirs}
	err = c.Accepts(h)
	if way := p.wayForward(app, theirs.Provides); err != nil && way != "" {
		err = fmt.Errorf("%w; %s", err, way)
	}
	return err
}

// wayForward says how a Mender client and the device agree again about an application; ""
// if they agree. theirs is what the client reports.
func (p *program) wayForward(app string, theirs map[string]string) string {
	a, err := p.config.OpenStore().App(app)
	if err != nil || a.Current == "" {
		return ""
	}
	now, err := a.Release(a.Current)
	if err != nil || len(now.Provides) == 0 || includes(theirs, now.Provides) {
		return ""
	}
	const whole = "an artifact with whole images installs"
	for _, id := range a.Kept {
		if r, err := a.Release(id); err == nil && len(r.Provides) > 0 && includes(theirs, r.Provides) {
			return fmt.Sprintf("the Mender client takes %s for installed, and %s runs: mender-app rollback %s %s, or %s",
				r.ArtifactName, now.ArtifactName, app, id, whole)
		}
	}
	return fmt.Sprintf("the Mender client does not know that %s runs: %s", now.ArtifactName, whole)
}

// includes reports whether all has each entry of some.
func includes(all, some map[string]string) bool {
	both := maps.Clone(some)
	maps.DeleteFunc(both, func(name, value string) bool { return all[name] == value })
	return len(both) == 0
}

// forwardCommand starts the release again that a rollback has just replaced; "" if that is
// not kept, or if it is the older one.
func (p *program) forwardCommand(app, replaced string) string {
	a, err := p.config.OpenStore().App(app)
	if err != nil || store.Number(replaced) < store.Number(a.Current) || !slices.Contains(a.Kept, replaced) {
		return ""
	}
	return fmt.Sprintf("mender-app rollback %s %s", app, replaced)
}

// nothingOpen says what to run if mender-app has no update open that a verb is about: that of
// the Mender client's, or, to go back, the verb with an application.
func (p *program) nothingOpen(err error, verb string) error {
	if !errors.Is(err, client.ErrNotOpen) {
		return err
	}
	s := p.config.OpenStore()
	names, _ := s.Apps()
	var back []string
	for _, name := range names {
		a, aerr := s.App(name)
		if aerr != nil {
			continue
		}
		if d := a.Deployment; d != nil && d.Driver != driverName && d.Leader == nil {
			program, _ := device.MenderClient()
			return &hintedError{err, fmt.Sprintf("%s waits under the Mender client: %s %s", d.ArtifactName, cmp.Or(program, "mender"), verb)}
		}
		if id, kerr := a.FindKept(""); kerr == nil {
			back = append(back, fmt.Sprintf("mender-app rollback %s goes back to release %s", name, id))
		}
	}
	if verb != "rollback" || back == nil {
		return err
	}
	return &hintedError{err, strings.Join(back, ", ")}
}
