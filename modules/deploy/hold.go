package deploy

import (
	"errors"

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

// checkAppLock asks the application again before its new release is started. A
// rollback that somebody asked for, and what a kill interrupted, go on.
func (e *Engine) checkAppLock(a *store.App) error {
	if a.Deployment.Reused || a.Deployment.From == "" || phaseOf(a) != journal.Loaded {
		return nil
	}
	return e.askApp(a.Name)
}
