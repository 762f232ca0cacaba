// Package deploy installs a release of an application from an artifact, commits
// it, and rolls it back. A table (package journal) says what each event means in each
// phase. The actions change the device through small interfaces; each is written
// to the journal (package store) before it is begun.
//
// This order keeps promise 1 of docs/DESIGN.md:
//
//  1. A release and the names of its components are recorded before the first
//     component is loaded, so that everything a crash leaves behind can be found
//     and removed.
//  2. Components are loaded next to the running release, under names that
//     nothing runs from. Then the barrier makes them durable. Then the journal
//     says loaded.
//  3. The journal says installing before the link to the manifests moves and
//     the orchestrator starts the new release.
//  4. The commit is one rename: phase and current release change together.
//  5. What the old release needs is removed in Cleanup, not before.
//
// A call may be killed at any instant. The next call reads the phase from the
// journal and continues from there; every action can be repeated.
//
// The package must not know any orchestrator, nor how a Mender client stores
// its state.
package deploy

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// DefaultKeep is the default of Engine.Keep.
const DefaultKeep = 1

// Engine drives deployments in one store. Its methods take the store's lock.
type Engine struct {
	Store *store.Store
	// Find returns the sub-module of an orchestrator.
	Find func(orchestrator string) (submodules.Client, error)
	// Installed are the orchestrators that the device has sub-modules of; nil: not known.
	Installed func() []string
	// Log must not be nil.
	Log *slog.Logger

	// Keep is the number of older releases that stay after a commit; a
	// negative number means DefaultKeep.
	Keep int
	// Platforms are the platforms that this machine runs, the best first.
	// Without any, the platform of an artifact is not checked.
	Platforms []image.Platform
	// RefuseOlder makes a download refuse an older version of an application
	// than the installed one. GoBack is not affected.
	RefuseOlder bool
	// Trust returns an error if the signer of a statement may not replace the
	// application. The statement is nil if the artifact has none. If Trust is
	// nil, every artifact may, signed or not.
	Trust func(application string, s *statement.Signed) error
	// Verified reports whether keys of the device signed a statement and may sign for the
	// application; nil: they did not. Only then an emergency waits for no window.
	Verified func(application string, s *statement.Signed) bool
	// Learn keeps what signed texts of an artifact that arrives say beside the application;
	// nil: nothing is kept. A check of an artifact keeps nothing.
	Learn Learner
	// MayGoBack returns an error for a kept release that must not run again; nil: each may.
	MayGoBack func(*store.Release) error
	// System describes the operating system for policies that ask about it.
	// files are the patches they ask about. nil: nothing is known.
	System func(ctx context.Context, files []string) (policy.Platform, error)
	Environment
	// DataRoot is where the container engine keeps its images, for the check
	// of free space; "" if it is not known.
	DataRoot string

	Timeouts
	journal.Caller
	// AppLocks is the directory in which applications say that they must not be
	// updated now (package hold); "": they are not asked.
	AppLocks string
	// Windows are the maintenance windows of the device; none: updates happen at any time.
	Windows policy.Windows
	// ClockSet reports whether the machine knows what time it is. It is asked if there are
	// windows; nil: it does.
	ClockSet func() bool
	// OverridesDir has the overrides of the device, in a directory for each
	// application; "": there are none.
	OverridesDir string
	Values       settings.Values
	// Hooks runs the hooks of releases and of the device; nil: there are none.
	Hooks hooks.Programs
	// Content fetches images that an artifact does not carry; nil: nobody does.
	Content Content
	// Staged is where artifacts lie that policies may want installed first; nil: nowhere.
	Staged Staged

	// BootID identifies the machine's boot; "" is read from the kernel.
	BootID string
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	infos map[string]submodules.Info // by orchestrator
}

// Learner stores what signed texts said. The caller holds the store's lock.
type Learner interface {
	// Revocations keeps an artifact's list of revocations if it counts and is newer.
	Revocations(m *artifact.Metadata) error
	// Time keeps when a statement was issued that Trust has accepted; nil for none.
	Time(application string, s *statement.Signed) error
}

// Content fetches images that an artifact does not carry.
type Content interface {
	// Fetch returns the file with the digest, open for reading from its beginning, after it
	// was compared. It is on this device, or at one of the sources. It stays as it is until
	// Drop. The end of the context stops it.
	Fetch(ctx context.Context, c artifact.Content, sources []string) (*os.File, error)
	// Drop removes what was fetched, also in part.
	Drop() error
}

func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now().UTC()
	}
	return time.Now().UTC()
}

func (e *Engine) bootID() string {
	if e.BootID == "" {
		data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return "unknown"
		}
		e.BootID = strings.TrimSpace(string(data))
	}
	return e.BootID
}

// open reads an application. What of its files is lost or damaged is reported and put back
// (see store.App.MakeWhole).
func (e *Engine) open(name string) (*store.App, error) {
	a, err := e.Store.App(name)
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		var lines []string
		a, lines, err = e.Store.Rescue(name)
		for _, line := range lines {
			e.Log.Error(line, "app", name)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := a.Sweep(); err != nil {
		return nil, err
	}
	e.makeWhole(a)
	return a, nil
}

// makeWhole puts back what is lost or damaged of the files of the releases that may run. What
// it cannot put back may not be needed, so it is only reported.
func (e *Engine) makeWhole(a *store.App) {
	a.Kept = slices.DeleteFunc(a.Kept, func(id string) bool {
		gone := a.IsGone(id)
		if gone {
			e.Log.Error("a release that a rollback could use is gone", "app", a.Name, "release", id)
		}
		return gone
	})
	pointed := a.Current
	ids := append([]string{a.Current}, a.Kept...)
	if d := a.Deployment; d != nil {
		ids = append(ids, d.From, d.To)
		if d.Phase == journal.Installing || d.Phase == journal.Installed || d.Phase == journal.Failed {
			pointed = d.To
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id != "" {
			e.putFilesBack(a, id, false)
		}
	}
	if pointed == "" {
		return
	}
	put, err := a.PutLink(pointed)
	if err != nil {
		e.Log.Error("the link to the manifests could not be made again", "app", a.Name, "error", err)
	} else if put {
		e.Log.Warn("the link to the manifests was lost and is made again", "app", a.Name, "release", pointed)
	}
}

// putFilesBack puts back files of a release, also those that somebody changed if changed is
// set. It reports whether there were any.
func (e *Engine) putFilesBack(a *store.App, id string, changed bool) bool {
	mended, err := a.MakeWhole(id, changed)
	for _, m := range mended {
		if m.Kept == "" {
			e.Log.Warn("a file of the release was lost, and is put back", "app", a.Name, "release", id, "file", m.Path)
			continue
		}
		e.Log.Warn("a file of the release was damaged or changed, and is put back", "app", a.Name, "release", id, "file", m.Path, "was", m.Kept)
	}
	if err != nil {
		e.Log.Error("what is lost of the release's files cannot be put back: if it does not start, install it or another release (mender-app install FILE)", "app", a.Name, "release", id, "error", err)
	}
	return len(mended) > 0
}

func phaseOf(a *store.App) journal.Phase {
	if a.Deployment == nil {
		return journal.None
	}
	return a.Deployment.Phase
}

// touchedPhaseOf applies journal.Touched to the phase of a's deployment.
func touchedPhaseOf(a *store.App) journal.Phase {
	return journal.Touched(phaseOf(a), a.Deployment != nil && a.Deployment.Overwrites)
}

// sysSync is the barrier for sub-modules without one.
var sysSync = unix.Sync
