package deploy

import (
	"errors"
	"fmt"
	"time"

	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// HoldClock is the clock that holds go by.
func (e *Engine) HoldClock() hold.Clock {
	return hold.Clock{Now: e.now(), BootID: e.bootID(), Uptime: hold.Uptime()}
}

// checkHold refuses to start a change while there is a hold. Operations that end an
// update do not call it: a hold must not leave the device between two releases.
func (e *Engine) checkHold() error { return hold.Check(e.Store, e.HoldClock()) }

// checkHolds refuses the beginning of an update: for a hold, or because the
// application says "not now".
func (e *Engine) checkHolds(app string) error {
	if err := e.checkHold(); err != nil {
		return err
	}
	if a, err := e.Store.App(app); errors.Is(err, store.ErrNoApp) || err == nil && a.Current == "" {
		return nil // it does not run yet
	}
	return e.askApp(app)
}

func (e *Engine) askApp(app string) error {
	if e.Mode() == policy.Force {
		return nil
	}
	return hold.CheckApp(e.AppLocks, app)
}

// askAgain asks the application again, and looks at the windows, before a new release is
// started. A rollback that somebody asked for, and what a kill interrupted, go on.
func (e *Engine) askAgain(a *store.App, r *store.Release) error {
	if a.Deployment.Reused || phaseOf(a) != journal.Loaded {
		return nil
	}
	if err := e.checkWindows(facts.PolicyOf(e.Log, a.Name, r), e.VerifiedRelease(r)); err != nil || a.Deployment.From == "" {
		return err
	}
	return e.askApp(a.Name)
}

// UpdatesWait is the hold.ErrHeld that an update of the application would meet now, or the
// installation of the release that is loaded; nil if it need not wait.
func (e *Engine) UpdatesWait(app string) error {
	if err := e.checkHolds(app); err != nil {
		return err
	}
	a, err := e.Store.App(app)
	if err != nil || a.Deployment == nil || phaseOf(a) != journal.Loaded {
		return e.checkWindows(nil, false)
	}
	r, err := a.Release(a.Deployment.To)
	if err != nil {
		return err
	}
	return e.askAgain(a, r)
}

// checkWindows returns a hold.ErrHeld outside of the maintenance windows of the device and
// of the release. signed says that a verified statement covers the policy.
func (e *Engine) checkWindows(p *policy.Policy, signed bool) error {
	if e.Mode() == policy.Force {
		return nil
	}
	return WaitForWindow(e.WindowOf(p, signed))
}

// VerifiedRelease is Verified for the statement of a release.
func (e *Engine) VerifiedRelease(r *store.Release) bool {
	if r.Statement == nil {
		return false
	}
	st, err := statement.Parse(r.Statement)
	return err == nil && e.verified(r.Application, st)
}

func (e *Engine) verified(application string, st *statement.Signed) bool {
	return st != nil && e.Verified != nil && e.Verified(application, st)
}

// KnowsTime reports whether the machine knows what time it is, or need not.
func (e *Engine) KnowsTime() bool { return e.ClockSet == nil || e.ClockSet() }

// WindowOf says whether a release with the policy has to wait for a maintenance window now.
func (e *Engine) WindowOf(p *policy.Policy, signed bool) (policy.Wait, bool) {
	return policy.Waits(e.Windows, p, e.now().Local(), e.KnowsTime(), signed)
}

// WindowEnd is when the window ends that is open for a release; zero if nothing ends it.
func (e *Engine) WindowEnd(p *policy.Policy, signed bool) (end time.Time) {
	if p.Emergency() && signed {
		return end
	}
	for _, list := range []policy.Windows{e.Windows, p.Windows()} {
		if _, until := list.At(e.now().Local()); end.IsZero() || !until.IsZero() && until.Before(end) {
			end = until
		}
	}
	return end
}

// WindowTime is the form of the times of windows: windows are of the clock on the wall.
const WindowTime = "Mon 2006-01-02 15:04 MST"

// WaitForWindow is the hold.ErrHeld of a release that waits; nil if it need not.
func WaitForWindow(w policy.Wait, waits bool) error {
	const force = ", or use mender-app install --force"
	switch {
	case !waits:
		return nil
	case w.Clock:
		return fmt.Errorf("updates are %w until the machine knows what time it is, because there are maintenance windows: set the clock%s, or set windows_need_clock = false", hold.ErrHeld, force)
	case w.Until.IsZero():
		return fmt.Errorf("updates are %w by the maintenance windows of %s, none of which opens again: correct them%s", hold.ErrHeld, w.Whose, force)
	}
	return fmt.Errorf("updates are %w outside of the maintenance windows of %s, until %s: try again then%s", hold.ErrHeld, w.Whose, w.Until.Format(WindowTime), force)
}
