package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// This file ends deployments that an operator does not want any more. The request
// is a file of the store that names the deployment; whoever works on the deployment looks
// for it, between the steps and within them, and stops with an error, so that the client
// rolls back. It must not know how to roll back.

// Errors a caller may branch on.
var (
	// ErrAborted: an operator has asked for the end of the deployment.
	ErrAborted = errors.New("aborted by an operator")
	// ErrNothingOpen: there is nothing to abort.
	ErrNothingOpen = errors.New("no update is open")
	// ErrNotEnded: who works on the deployment has not ended it yet.
	ErrNotEnded = errors.New("not ended yet")
)

// abortInterval is how often a running call looks for a request.
const abortInterval = 250 * time.Millisecond

// abortedError is ErrAborted with the name of who asked.
type abortedError struct{ who string }

func (e *abortedError) Unwrap() error { return ErrAborted }
func (e *abortedError) Error() string {
	if e.who == "" {
		return ErrAborted.Error()
	}
	return ErrAborted.Error() + " (" + e.who + ")"
}

// abortRequested returns an ErrAborted if somebody has asked for the end of a's deployment.
func abortRequested(a *store.App) error {
	if a.Deployment == nil {
		return nil
	}
	return abortRequestedFor(a, a.Deployment.ID, a.Deployment.Started)
}

func abortRequestedFor(a *store.App, id string, started time.Time) error {
	r, err := a.Abort()
	if err != nil || r == nil || r.Deployment != id || !r.Started.Equal(started) {
		return nil // a request that cannot be read is none
	}
	e := &abortedError{}
	if r.Asked != nil {
		e.who = r.Asked.User
	}
	return e
}

// watchAbort returns a context that ends when somebody asks for the end of a's deployment.
// stop must be called. It may look at a while the caller changes its state.
func watchAbort(ctx context.Context, a *store.App) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	id, started := a.Deployment.ID, a.Deployment.Started
	if err := abortRequestedFor(a, id, started); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	go func() {
		tick := time.NewTicker(abortInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := abortRequestedFor(a, id, started); err != nil {
					cancel(err)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// abortCause is the error of work in a context of Watch: ErrAborted alone if it failed for
// that, since the rest only says that it was stopped.
func abortCause(watched context.Context, err error) error {
	if cause := context.Cause(watched); err != nil && errors.Is(cause, ErrAborted) {
		return cause
	}
	return err
}

// undoing are the events that undo a deployment. Nothing aborts them.
var undoing = map[journal.Event]bool{
	journal.EventRollback: true, journal.EventFailure: true, journal.EventCleanup: true, journal.EventVerifyRollback: true,
}

// beginSteps prepares the steps of an event. Those that undo are not watched. The first of
// them runs the hook pre-abort if the deployment is being aborted, and notes why it is
// undone.
func (e *Engine) beginSteps(ctx context.Context, a *store.App, ev journal.Event) (watched context.Context, stop func(), err error) {
	if a.Deployment == nil || ev == journal.EventStays || ev == journal.EventFollow {
		return ctx, func() {}, nil
	}
	if !undoing[ev] {
		watched, stop = watchAbort(ctx, a)
		return watched, stop, nil
	}
	switch a.Deployment.Phase {
	case journal.Downloading, journal.Loaded, journal.Installing, journal.Installed:
		if reason := abortRequested(a); reason != nil {
			a.Deployment.Error = reason.Error() // the next write of the state keeps it
			err = e.hooks().Aborting(ctx, a)
		}
	}
	return ctx, func() {}, err
}

// endAbort ends the request when the deployment ends: it runs the hook post-abort if the
// previous release is back.
func (e *Engine) endAbort(ctx context.Context, a *store.App) error {
	if a.Deployment.Phase == journal.RolledBack && abortRequested(a) != nil {
		if err := e.hooks().Aborted(ctx, a); err != nil {
			return err
		}
	}
	return a.DropAbort()
}
