package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// This file carries out what the table of package journal plans for an event, and says
// what an error in a step means.

// handleEvent executes the plan for an event of an application. artifact is the name of
// the event's artifact.
func (e *Engine) handleEvent(ctx context.Context, a *store.App, ev journal.Event, artifact string) error {
	pl, err := journal.PlanFor(phaseOf(a), ev, a.IsCurrent(artifact), a.Deployment != nil && a.Deployment.Overwrites)
	if err != nil {
		return err
	}
	if pl.Refuse != "" {
		return fmt.Errorf("%s: %s", a.Name, pl.Refuse)
	}
	e.follow(a)
	if pl.Note != "" {
		e.Log.Log(ctx, pl.Level, pl.Note, "app", a.Name)
		return nil
	}
	ctx, stop, err := e.beginSteps(ctx, a, ev)
	defer stop()
	if err != nil {
		return err
	}
	for _, step := range pl.Steps {
		e.follow(a) // the previous step may have been about a member
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before %s: %w", step, context.Cause(ctx))
		}
		before := a.Snapshot()
		if err := abortCause(ctx, e.take(ctx, a, ev, step)); err != nil {
			return e.stepFailed(ctx, a, ev, step, before, err)
		}
	}
	return nil
}

// follow has what is said kept in the log of a's deployment.
func (e *Engine) follow(a *store.App) {
	if a.Deployment != nil {
		e.Transcript.Follow(e.Store, a.Name, a.Deployment.Number, string(a.Deployment.Phase))
	}
}

// take takes a step of an event. One that ends a deployment may use the reserved space if
// the disk is full.
func (e *Engine) take(ctx context.Context, a *store.App, ev journal.Event, step journal.Action) error {
	before := a.Snapshot()
	err := e.act(ctx, a, step)
	if diskspace.Exhausted(err) && ends[ev] && e.spendReserve(a) {
		a.State = before
		err = e.act(ctx, a, step)
	}
	return err
}

// stepFailed is the policy for errors: it restores the state of before the step in memory,
// and writes to the journal what err means for the deployment. Where that is left to a
// person, the release stays.
func (e *Engine) stepFailed(ctx context.Context, a *store.App, ev journal.Event, step journal.Action, before store.State, err error) error {
	if a.Deployment != nil { // what the step took counts
		before.Deployment.Measured = a.Deployment.Measured
	}
	a.State = before
	switch step {
	case journal.RestoreData, journal.Revert, journal.UndoMembers:
		a.Deployment.Attempts++
	case journal.RunPreRolloutHooks:
		if touchedPhaseOf(a) == journal.Loaded { // nothing that runs was changed
			a.Deployment.Refused = faultOfArtifact(err)
		}
	}
	e.remember(a, err)
	if ctx.Err() != nil || !journal.StartsRelease(ev, step) || !e.leftToPerson(a, err) {
		return err
	}
	e.Log.Error("the release failed to start and stays as it is, as its policy says", "app", a.Name, "release", a.Deployment.To)
	if serr := e.handleEvent(ctx, a, journal.EventStays, a.Deployment.ArtifactName); serr != nil {
		return errors.Join(err, serr) // it is rolled back
	}
	return err
}

// ends are the events that end a deployment. They write little, and may use the
// reserved space if the disk is full.
var ends = map[journal.Event]bool{journal.EventCommit: true, journal.EventRollback: true, journal.EventFailure: true, journal.EventCleanup: true}

func (e *Engine) spendReserve(a *store.App) bool {
	had, err := e.Store.SpendReserve()
	if err != nil {
		e.Log.Warn("the reserved space could not be freed", "app", a.Name, "error", err)
	}
	if had && err == nil {
		e.Log.Warn("the store's file system is full; using the reserved space", "app", a.Name)
	}
	return had && err == nil
}

// remember writes an error to the journal, for people to read. If that fails,
// nothing is lost: the phase decides what the next call does.
func (e *Engine) remember(a *store.App, cause error) {
	if a.Deployment == nil {
		return
	}
	d := a.Deployment
	d.Error, d.Updated = cause.Error(), e.now()
	if n := len(d.Steps); n > 0 {
		d.Steps[n-1].Error = d.Error
	}
	e.Transcript.Fail(cause, d.Updated)
	if err := a.Save(); err != nil {
		e.Log.Warn("the journal could not be written", "app", a.Name, "error", err)
	}
}
