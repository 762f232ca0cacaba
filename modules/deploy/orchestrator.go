package deploy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file says what a deployment needs from a sub-module, how long calls may take,
// and how long the engine waits for others. It does not interpret the calls.

// Defaults of Timeouts.
const (
	DefaultLoadTimeout    = 3 * time.Hour
	DefaultRolloutTimeout = 15 * time.Minute
	DefaultPatience       = time.Minute
	// DefaultLockTimeout is how long a call waits for the lock of another call.
	DefaultLockTimeout = 30 * time.Second
	// callTimeout limits calls that neither load nor start anything.
	callTimeout = 10 * time.Minute
)

// Timeouts limit how long an Engine waits.
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

// Environment describes the device to sub-modules.
type Environment struct {
	// AllowEnv are names in the metadata's environment that sub-modules get
	// although they do not declare them.
	AllowEnv []string
	// CPUs are the processors that the device reserves for services; "": none.
	CPUs string
}

// waits are the verbs that wait for an engine that does not answer. A
// requirement that fails in the others is an answer of its own.
var waits = map[string]bool{
	submodules.VerbRollout: true, submodules.VerbRollback: true, submodules.VerbPurge: true, submodules.VerbStop: true, submodules.VerbVolumes: true, submodules.VerbRun: true,
	submodules.VerbHealthy: true, submodules.VerbVerify: true, submodules.VerbSync: true, submodules.VerbRepair: true,
}

// Deadline returns how long one call of a verb may take. The preflight only asks whether an
// image is there, and reads none.
func (t Timeouts) Deadline(verb string, preflight bool) time.Duration {
	switch verb {
	case submodules.VerbLoad, submodules.VerbSave:
		return cmp.Or(max(t.LoadTimeout, 0), DefaultLoadTimeout)
	case submodules.VerbRollout, submodules.VerbRollback:
		return cmp.Or(max(t.RolloutTimeout, 0), DefaultRolloutTimeout)
	case submodules.VerbRun:
		return policy.MaxHookTimeout // the caller knows less
	case submodules.VerbRepair:
		return DefaultLoadTimeout
	case submodules.VerbVerify:
		if !preflight {
			return DefaultLoadTimeout
		}
	}
	return callTimeout
}

// forSubmodule are components of the store, for a sub-module.
func forSubmodule(list []store.Component) []submodules.Component {
	out := make([]submodules.Component, 0, len(list)) // never nil: nil and empty differ
	for _, c := range list {
		out = append(out, submodules.Component{Type: c.Type, URL: c.URL, Digest: c.Digest, DiffIDs: c.DiffIDs})
	}
	return out
}

// environment divides the environment of the metadata into what the sub-module gets, and the sorted
// names of what it does not. allowed are names that an operator lets through.
func environment(set map[string]string, info submodules.Info, allowed []string) (taken map[string]string, dropped []string) {
	taken = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if info.TakesEnv(name) || names.CheckEnv(name) == nil && slices.Contains(allowed, name) {
			taken[name] = set[name]
		} else {
			dropped = append(dropped, name)
		}
	}
	return taken, dropped
}

// patiently makes a call. While the engine does not answer it makes it again, until
// Timeouts.Patience has passed.
func patiently(ctx context.Context, t Timeouts, log *slog.Logger, call func() error) error {
	for end, pause := time.Now().Add(cmp.Or(t.Patience, DefaultPatience)), time.Second/4; ; pause = min(2*pause, 5*time.Second) {
		err := call()
		var failed *submodules.CallError
		if err == nil || !errors.As(err, &failed) || failed.Code != submodules.CodeRequirement || time.Now().Add(pause).After(end) {
			return err
		}
		log.Warn("the engine does not answer; waiting for it", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
