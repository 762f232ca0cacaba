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
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
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
	// OverridesDir has the overrides of the device, in a directory for each
	// application; "": there are none.
	OverridesDir string
	Values       settings.Values
	// Hooks runs the hooks of releases and of the device; nil: there are none.
	Hooks hooks.Programs
	// Staged is where artifacts lie that policies may want installed first; nil: nowhere.
	Staged Staged

	// BootID identifies the machine's boot; "" is read from the kernel.
	BootID string
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	infos map[string]submodules.Info // by orchestrator
}

// moments runs the hooks.
func (e *Engine) moments() hooks.Events {
	return hooks.Events{Hooks: e.Hooks, Log: e.Log, Temp: e.temp, Asked: e.Asked, Values: e.Values}
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

// open reads an application. A damaged state file is renamed, reported, and
// rebuilt from the releases.
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
	return a, a.Sweep()
}

func phaseOf(a *store.App) journal.Phase {
	if a.Deployment == nil {
		return journal.None
	}
	return journal.Phase(a.Deployment.Phase)
}

// touchedPhaseOf applies journal.Touched to the phase of a's deployment.
func touchedPhaseOf(a *store.App) journal.Phase {
	return journal.Touched(phaseOf(a), a.Deployment != nil && a.Deployment.Overwrites)
}

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
	if a.Deployment != nil {
		e.Transcript.Follow(e.Store, a.Name, a.Deployment.Number, a.Deployment.Phase)
	}
	if pl.Note != "" {
		e.Log.Log(ctx, pl.Level, pl.Note, "app", a.Name)
		return nil
	}
	ctx, stop, err := beginSteps(ctx, a, ev, e.moments())
	defer stop()
	if err != nil {
		return err
	}
	for _, step := range pl.Steps {
		if a.Deployment != nil { // the step before may have been about a member
			e.Transcript.Follow(e.Store, a.Name, a.Deployment.Number, a.Deployment.Phase)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before %s: %w", step, context.Cause(ctx))
		}
		before := a.Snapshot()
		err := e.act(ctx, a, step)
		if diskspace.Exhausted(err) && ends[ev] && e.spendReserve(a) {
			a.State = before
			before = a.Snapshot()
			err = e.act(ctx, a, step)
		}
		if err = abortCause(ctx, err); err != nil {
			// Restore the state in memory: the step failed. What it took counts.
			if a.Deployment != nil {
				before.Deployment.Measured = a.Deployment.Measured
			}
			a.State = before
			if step == journal.RestoreData || step == journal.Revert || step == journal.UndoMembers {
				a.Deployment.Attempts++
			}
			if step == journal.RunPreRolloutHooks && touchedPhaseOf(a) == journal.Loaded {
				a.Deployment.Refused = faultOfArtifact(err)
			}
			e.remember(a, err)
			if ctx.Err() == nil && journal.StartsRelease(ev, step) && e.leftToPerson(a, err) {
				e.Log.Error("the release failed to start and stays as it is, as its policy says", "app", a.Name, "release", a.Deployment.To)
				if serr := e.handleEvent(ctx, a, journal.EventStays, artifact); serr != nil {
					return errors.Join(err, serr) // it is rolled back
				}
			}
			return err
		}
	}
	return nil
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

func (e *Engine) act(ctx context.Context, a *store.App, step journal.Action) error {
	switch step {
	case journal.EnterLoaded:
		return e.enter(a, journal.Loaded)
	case journal.EnterInstalling:
		return e.enter(a, journal.Installing)
	case journal.EnterInstalled:
		return e.enter(a, journal.Installed)
	case journal.EnterCommitted:
		a.Current, a.Kept = a.Deployment.To, keptAfter(a)
		return e.enter(a, journal.Committed)
	case journal.EnterFailed:
		a.Current, a.Kept = a.Deployment.To, keptAfter(a)
		a.Failed = append(a.Failed, a.Current)
		return e.enter(a, journal.Failed)
	case journal.EnterCleaning:
		a.Stopped = !a.HasFailed(a.Current) && !e.starts(a, a.Current)
		return e.enter(a, journal.Cleaning)
	case journal.EnterRollingBack, journal.EnterRolledBack:
		d := a.Deployment
		if a.Current != d.From { // it had been committed
			a.Current = d.From
			a.Kept = slices.DeleteFunc(a.Kept, func(id string) bool { return id == d.From })
		}
		if d.Reused && !slices.Contains(a.Kept, d.To) {
			a.Kept = slices.Insert(a.Kept, 0, d.To)
		}
		if step == journal.EnterRollingBack {
			return e.enter(a, journal.RollingBack)
		}
		return e.enter(a, journal.RolledBack)
	case journal.RunPreRolloutHooks:
		if err := e.checkAppLock(a); err != nil {
			return err
		}
		t, err := e.target(ctx, a, a.Deployment.To)
		if err != nil {
			return err
		}
		if err := t.checkOverrides(ctx, a.ReleaseManifests(t.r.ID)); err != nil {
			return err
		}
		if err := e.data(a, false).Check(ctx); err != nil {
			return unfit("%w", err)
		}
		return e.moments().Ask(ctx, a)
	case journal.WaitUntilReady:
		if !e.starts(a, a.Deployment.To) {
			return nil
		}
		return e.moments().Ready(ctx, a)
	case journal.RunPreReboot:
		return e.moments().Run(ctx, hooks.InDeployment(a, policy.HookPreReboot, a.Deployment.To))
	case journal.RunPostReboot:
		return e.moments().Run(ctx, hooks.InDeployment(a, policy.HookPostReboot, a.Deployment.To))
	case journal.Reverify:
		return e.reverify(ctx, a)
	case journal.Barrier:
		return e.barrier(ctx, a)
	case journal.CopyData:
		return e.data(a, false).Copy(ctx)
	case journal.MigrateData:
		return e.data(a, false).Migrate(ctx)
	case journal.RestoreData:
		return e.data(a, false).Restore(ctx)
	case journal.Rollout:
		return e.rollout(ctx, a)
	case journal.Check:
		if err := e.group(a).Check(func(m *store.App) error { return e.checkMember(ctx, m) }); err != nil {
			return err
		}
		return e.check(ctx, a)
	case journal.InstallMembers:
		return e.group(a).Install(ctx)
	case journal.UndoMembers:
		return e.group(a).Undo(ctx)
	case journal.CommitMembers:
		return e.group(a).Commit(ctx)
	case journal.Revert:
		return e.revert(ctx, a)
	case journal.Recheck:
		return e.recheck(ctx, a)
	case journal.Prune:
		e.prune(ctx, a)
		return nil
	case journal.Discard:
		e.discardFailed(ctx, a)
		e.dropCopies(a)
		return nil
	case journal.End:
		if err := endAbort(ctx, a, e.moments()); err != nil {
			return err
		}
		return e.end(a)
	}
	return fmt.Errorf("unknown action %q", step)
}

// enter writes a new phase to the journal.
func (e *Engine) enter(a *store.App, p journal.Phase) error {
	d := a.Deployment
	if err := durable.Point("enter." + string(p)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	journal.Enter(d, p, e.now())
	d.BootID = e.bootID()
	e.Meter.Count(d)
	if d.Changed == nil && (p == journal.Cleaning || p == journal.RolledBack || p == journal.Failed) {
		d.Changed = journal.Changes(a, d.From, d.To)
	}
	e.Transcript.Follow(e.Store, a.Name, d.Number, d.Phase)
	e.Log.Debug("phase", "app", a.Name, "state", string(p))
	if err := a.Save(); err != nil {
		return err
	}
	e.Entered(a.Name, d)
	return nil
}

// end moves the deployment from the journal to the history.
func (e *Engine) end(a *store.App) error {
	d := a.Deployment
	e.Meter.Count(d)
	if err := e.Remember(e.Store, journal.RecordOf(a.Name, d, journal.StatusOf(d, a.HasFailed(d.To)), e.now())); err != nil {
		return err
	}
	e.moments().DropHandover(a)
	a.Deployment = nil
	a.Failed = slices.DeleteFunc(slices.Clone(a.Failed), func(id string) bool { return id != a.Current })
	if a.Current == "" && len(a.Kept) == 0 {
		// The first installation failed: the history has its record.
		if left, err := a.Releases(); err == nil && len(left) == 0 {
			return a.Forget()
		}
	}
	return a.Save()
}

// sysSync is the barrier for sub-modules without one.
var sysSync = unix.Sync
