package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// abortInterval is how often the command looks whether the deployment has ended.
const abortInterval = 250 * time.Millisecond

func (p *program) abortCommand() *cobra.Command {
	limit := 20 * time.Minute
	cmd := &cobra.Command{
		Use:   "abort [APP]",
		Short: "End a running update and go back to the previous release",
		Long: `Ends the open update of APP, or the only one that is open, and goes back to the
previous release. A call that downloads or starts the new release is stopped. An update
that waits for its commit, or that was interrupted, is rolled back. The command returns
when the previous release runs again.

An update that the Mender client drives ends through that client: its next call fails,
and the client rolls back and tells its server. If no client runs, the error names the
client's command, and nothing is changed.

A committed update is refused with exit code 9; "mender-app rollback APP" undoes it. If
no update is open, the exit code is 4. After --wait, the request stays, the exit code is
75, and the update ends at its next step.`,
		Example:           "  mender-app abort\n  mender-app abort shop --wait 1m",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < time.Second {
				return fmt.Errorf("%w: --wait %s is shorter than 1s", device.ErrUsage, limit)
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return p.abort(cmd.Context(), name, limit)
		},
	}
	cmd.Flags().DurationVar(&limit, "wait", limit, "how long to wait at most")
	return cmd
}

func (p *program) abort(ctx context.Context, name string, limit time.Duration) error {
	e := p.engine()
	a, err := findOpen(e.Store, name)
	if err != nil {
		return err
	}
	d := a.Deployment
	if err := isCommitted(a); err != nil {
		return err
	}
	own := d.Driver == e.Driver
	if !own && !anyWorking(ctx, e.Store) {
		return fmt.Errorf("%w: the Mender client drives the update of %s to %s, and does not run: %s ends it",
			client.ErrRefused, a.Name, d.ArtifactName, clientRollback())
	}
	if err := a.RequestAbort(e.Asked.OrNil()); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		now, err := rereadApp(e.Store, a)
		if err != nil {
			return err
		}
		if now == nil || !sameDeployment(now.Deployment, d) {
			return p.reportAborted(a, now)
		}
		if err := isCommitted(now); err != nil {
			return errors.Join(err, now.DropAbort())
		}
		if now.Deployment.Attempts > 1 {
			return fmt.Errorf("the rollback of %s failed: %s; mender-app resume tries it again", a.Name, now.Deployment.Error)
		}
		if own {
			err := p.undoAborted(context.WithoutCancel(ctx), e, d)
			if err != nil && device.ExitCode(err) != device.ExitBusy {
				return err
			}
		}
		select {
		case <-wait.Done():
			if cause := context.Cause(ctx); cause != nil {
				return fmt.Errorf("%w: the update of %s still ends at its next step", cause, a.Name)
			}
			now := ""
			if !own {
				now = "; " + clientRollback() + " ends one that waits for its commit"
			}
			return fmt.Errorf("%w: the update of %s has not ended within %s, and ends at its next step%s", deploy.ErrNotEnded, a.Name, limit, now)
		case <-time.After(abortInterval):
		}
	}
}

// findOpen finds the application whose update is aborted; "" is the only one that has one.
func findOpen(s *store.Store, name string) (*store.App, error) {
	if name != "" {
		a, err := s.App(name)
		switch {
		case err != nil:
			return nil, err
		case a.Deployment == nil && len(a.Kept) > 0:
			return nil, fmt.Errorf("%s: %w; mender-app rollback %s goes back to the previous release", name, deploy.ErrNothingOpen, name)
		case a.Deployment == nil:
			return nil, fmt.Errorf("%s: %w", name, deploy.ErrNothingOpen)
		case a.Deployment.Leader != nil:
			leader := a.Deployment.Leader.Application
			return nil, fmt.Errorf("%w: the update of %s follows that of %s: mender-app abort %s ends both", deploy.ErrOpen, name, leader, leader)
		}
		return a, nil
	}
	names, err := s.Apps()
	if err != nil {
		return nil, err
	}
	var open []*store.App
	var opened []string
	for _, name := range names {
		if a, err := s.App(name); err == nil && a.Deployment != nil && a.Deployment.Leader == nil {
			open, opened = append(open, a), append(opened, name)
		}
	}
	switch len(open) {
	case 0:
		return nil, deploy.ErrNothingOpen
	case 1:
		return open[0], nil
	}
	return nil, fmt.Errorf("%w: updates of %s are open: name one", device.ErrUsage, strings.Join(opened, ", "))
}

// isCommitted refuses an update that has been committed, or that failed and was left to a
// person.
func isCommitted(a *store.App) error {
	switch a.Deployment.Phase {
	case journal.Committed, journal.Cleaning, journal.Failed:
		return abortTooLate(a)
	}
	return nil
}

func abortTooLate(a *store.App) error {
	return fmt.Errorf("%w: the update of %s can no longer be aborted: mender-app rollback %s goes back", client.ErrRefused, a.Name, a.Name)
}

// rereadApp reads an application again; nil if it is gone.
func rereadApp(s *store.Store, a *store.App) (*store.App, error) {
	now, err := s.App(a.Name)
	if errors.Is(err, store.ErrNoApp) {
		return nil, nil
	}
	return now, err
}

func sameDeployment(now, d *store.Deployment) bool {
	return now != nil && now.ID == d.ID && now.Started.Equal(d.Started)
}

// reportAborted says how the update of a has ended. now is the application afterwards.
func (p *program) reportAborted(a, now *store.App) error {
	d := a.Deployment
	installed := ""
	if now != nil {
		installed = now.Current
	}
	if installed == d.To {
		return errors.Join(abortTooLate(a), a.DropAbort())
	}
	doc := map[string]string{"application": a.Name, "artifact_name": d.ArtifactName, "status": store.StatusRolledBack, "installed": installed}
	if installed == "" {
		return p.printResult(doc, "the update of %s to %s was aborted; %s is not installed", a.Name, d.ArtifactName, a.Name)
	}
	return p.printResult(doc, "the update of %s to %s was aborted; release %s is installed", a.Name, d.ArtifactName, installed)
}

// undoAborted rolls back an update of mender-app's own client, if nobody works on it. The error
// is one with the exit code of busy if somebody does.
func (p *program) undoAborted(ctx context.Context, e *deploy.Engine, d *store.Deployment) error {
	c, release, err := p.lockedClient()
	if err != nil {
		return err
	}
	defer release()
	rec, err := c.Read()
	if err != nil {
		return err
	}
	if rec.Open != nil && rec.Open.ArtifactName == d.ArtifactName {
		if rec.Open.Waiting {
			return c.Rollback(ctx)
		}
		return c.Resume(ctx)
	}
	driver := e.Driver // its client has forgotten it, or never knew it
	if rec.Open != nil {
		driver = ""
	}
	found, err := e.Resume(ctx, driver, rec.Installed.ArtifactName)
	for _, r := range found {
		err = errors.Join(err, r.Err)
	}
	return err
}

// anyWorking reports whether a Mender client runs, or a call of the update module.
func anyWorking(ctx context.Context, s *store.Store) bool {
	if clientRuns() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, abortInterval)
	defer cancel()
	release, err := s.Lock(ctx, "abort")
	if err != nil {
		return true
	}
	release()
	return false
}

// clientRuns reports whether a process is a Mender client, such as its daemon. Those in
// containers belong to other devices.
func clientRuns() bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return true // it may be one: whoever waits for it is safe
	}
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	return slices.ContainsFunc(links, func(link string) bool {
		target, err := os.Readlink(link) // an error: it has ended
		if err != nil || !slices.Contains(device.MenderClients, filepath.Base(target)) {
			return false
		}
		space, err := os.Readlink(filepath.Join(filepath.Dir(link), "ns/pid"))
		return err == nil && space == own
	})
}

// clientRollback is what a person says to the Mender client of this device.
func clientRollback() string {
	if name, _ := device.MenderClient(); name != "" {
		return "`" + name + " rollback`"
	}
	return "its `rollback`"
}
