package deploy

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// lock takes the store's lock for one call, and removes temporary files that an
// earlier call of any of the device's programs left.
func (e *Engine) lock(ctx context.Context, who string) (func(), error) {
	return e.lockWithin(ctx, who, cmp.Or(e.LockTimeout, DefaultLockTimeout))
}

// lockToEnd is lock for a state that ends an update.
func (e *Engine) lockToEnd(ctx context.Context, who string) (func(), error) {
	release, err := e.lock(ctx, who)
	var locked *store.LockedError
	if !errors.As(err, &locked) || e.EndLockTimeout == 0 || ctx.Err() != nil {
		return release, err
	}
	e.Log.Warn("waiting for another call", "limit", e.EndLockTimeout, "call", locked.Holder)
	return e.lockWithin(ctx, who, e.EndLockTimeout)
}

func (e *Engine) lockWithin(ctx context.Context, who string, limit time.Duration) (func(), error) {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	release, err := e.Store.Lock(wait, who)
	if err != nil {
		return nil, err
	}
	prepared := false
	defer func() {
		if !prepared {
			release()
		}
	}()
	if err := e.Store.Prepare(); err != nil {
		return nil, err
	}
	prepared = true
	scratch.Sweep("")
	e.sweepTemp()
	e.Meter = journal.NewMeter(e.Store.Dir(), e.DataRoot)
	return func() { e.sweepTemp(); e.Transcript.Leave(); release() }, nil
}

func (e *Engine) sweepTemp() {
	if err := os.RemoveAll(e.Store.Meta(store.TempName)); err != nil {
		e.Log.Warn("cannot remove temporary files", "error", err)
	}
}
