// Package limits says how long calls of sub-modules may take, and how long the engine
// waits for others. It must not know what the calls are good for.
package limits

import (
	"cmp"
	"time"

	"github.com/mender-app/mender-app/submodules"
)

// Defaults of Timeouts.
const (
	DefaultLoadTimeout    = 3 * time.Hour
	DefaultRolloutTimeout = 15 * time.Minute
	DefaultPatience       = time.Minute
	// DefaultLockTimeout is how long a call waits for the lock of another call.
	DefaultLockTimeout = 30 * time.Second
	// Call limits calls that neither load nor start anything.
	Call = 10 * time.Minute
)

// Timeouts are how long an Engine waits.
type Timeouts struct {
	LoadTimeout    time.Duration // of one component; 0 is DefaultLoadTimeout
	RolloutTimeout time.Duration // until healthy; 0 is DefaultRolloutTimeout
	Patience       time.Duration // with an engine that does not answer; 0 is DefaultPatience
	LockTimeout    time.Duration // for the lock of another call; 0 is DefaultLockTimeout
	// EndLockTimeout is for the states that end an update: commit, rollback,
	// failure and cleanup. It matters where the Mender client makes the calls:
	// it does not repeat a rollback that failed, and calls the device
	// inconsistent. 0 is LockTimeout.
	EndLockTimeout time.Duration
}

// Waits are the verbs that wait for an engine that does not answer. A
// requirement that fails in the others is an answer of its own.
var Waits = map[string]bool{
	submodules.VerbRollout: true, submodules.VerbRollback: true, submodules.VerbPurge: true, submodules.VerbStop: true, submodules.VerbVolumes: true,
	submodules.VerbHealthy: true, submodules.VerbVerify: true, submodules.VerbSync: true, submodules.VerbRepair: true,
}

// Deadline is how long one call of a verb may take. The preflight only asks whether an
// image is there, and reads none.
func (t Timeouts) Deadline(verb string, preflight bool) time.Duration {
	switch verb {
	case submodules.VerbLoad, submodules.VerbSave:
		return cmp.Or(max(t.LoadTimeout, 0), DefaultLoadTimeout)
	case submodules.VerbRollout, submodules.VerbRollback:
		return cmp.Or(max(t.RolloutTimeout, 0), DefaultRolloutTimeout)
	case submodules.VerbRepair:
		return DefaultLoadTimeout
	case submodules.VerbVerify:
		if !preflight {
			return DefaultLoadTimeout
		}
	}
	return Call
}
