// Package journal knows what a deployment writes down: the table says what each event
// means in each phase, and the history says what a deployment changed, took and said.
// It decides nothing and has no effects on the device: package deploy carries the
// plans out.
package journal

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/mender-app/mender-app/store"
)

// Phase is the progress of a deployment. It is written to the journal before its
// work begins. After a crash, nothing beyond the recorded phase can therefore
// have happened. The strings are part of store/FORMAT.md.
type Phase = store.Phase

// The phases.
const (
	// None: no deployment is under way.
	None Phase = ""
	// Downloading: components are being loaded next to the running release.
	Downloading Phase = "downloading"
	// Loaded: all components are present, verified and synced.
	Loaded Phase = "loaded"
	// Installing: the new release is being started.
	Installing Phase = "installing"
	// Installed: the new release runs and is healthy. It is not committed.
	Installed Phase = "installed"
	// Committed: the new release is the current one. The release that it
	// replaced stays until the client knows of the commit.
	Committed Phase = "committed"
	// Cleaning: the client knows of the commit. A rollback is no longer
	// possible.
	Cleaning Phase = "cleaning"
	// RollingBack: the previous release is being started again.
	RollingBack Phase = "rolling-back"
	// RolledBack: the previous release runs and is healthy.
	RolledBack Phase = "rolled-back"
	// Failed: the new release failed to start, and stays as it is, because its
	// policy leaves it to a person. It is the current one. The client has not
	// cleaned up yet.
	Failed Phase = "failed"
)

// Event is a request to a deployment.
type Event string

// The events. The first follows the end of a download, the second a new release
// that failed to start and that its policy leaves to a person; each other one is
// a state of the Mender client.
const (
	EventReceived Event = "received"
	EventStays    Event = "stays"
	EventInstall  Event = "install"
	EventCommit   Event = "commit"
	EventRollback Event = "rollback"
	EventFailure  Event = "failure"
	EventCleanup  Event = "cleanup"
	// Only of a deployment that is a member of another one: its leader is committed.
	EventFollow Event = "follow"
	// Only where the application asks for a restart of the machine: before the
	// restart, after it with the new release, and after it with the old one.
	EventReboot         Event = "reboot"
	EventVerifyReboot   Event = "verify-reboot"
	EventVerifyRollback Event = "verify-rollback-reboot"
)

// Action is one step of a plan. Every action is idempotent: after a crash the
// plan of the same event is executed again from its first step.
type Action string

// The actions. Those named "enter" write a phase to the journal.
const (
	EnterLoaded      Action = "enter loaded"
	EnterInstalling  Action = "enter installing"
	EnterInstalled   Action = "enter installed"
	EnterCommitted   Action = "enter committed" // the new release becomes the current one
	EnterCleaning    Action = "enter cleaning"
	EnterRollingBack Action = "enter rolling-back" // the old release becomes the current one
	EnterRolledBack  Action = "enter rolled-back"
	EnterFailed      Action = "enter failed" // the new release becomes the current one

	RunPreRolloutHooks Action = "ask"             // ask the hooks of the new release whether it may be rolled out
	WaitUntilReady     Action = "ready"           // wait until the hooks of the new release say that it is ready
	RunPreReboot       Action = "leave"           // tell the hooks of the new release that the machine restarts
	RunPostReboot      Action = "arrive"          // and that it has
	Reverify           Action = "reverify"        // verify the new release if the machine was restarted
	Barrier            Action = "barrier"         // make durable what the orchestrator wrote
	CopyData           Action = "copy"            // stop the old release and copy its data, if the new one's policy asks for it
	MigrateData        Action = "migrate"         // make the data that of the new release
	Rollout            Action = "rollout"         // start the new release
	RestoreData        Action = "restore"         // stop the new release and bring the old one's data back, if it was copied
	Revert             Action = "revert"          // start the old release again; without one, remove the new one
	Check              Action = "check"           // make sure that the new release and the members run and are healthy
	Recheck            Action = "recheck"         // start the old release again if the machine was restarted
	Prune              Action = "prune"           // remove the releases that are not kept
	Discard            Action = "discard"         // remove the new release
	InstallMembers     Action = "install members" // install the members of the deployment, up to their commit
	UndoMembers        Action = "undo members"    // undo them
	CommitMembers      Action = "commit members"  // commit them
	End                Action = "end"             // move the deployment to the history
)

// Plan is the meaning of an event in a phase.
type Plan struct {
	Steps  []Action
	Refuse string     // the reason for an error; then there are no steps
	Note   string     // for the log; then there is nothing to do
	Level  slog.Level // of the note
}

func do(steps ...Action) Plan    { return Plan{Steps: steps} }
func refuse(reason string) Plan  { return Plan{Refuse: reason} }
func nothing(reason string) Plan { return Plan{Note: reason} }
func sequence(plans ...Plan) Plan { // of plans that have steps only
	var p Plan
	for _, q := range plans {
		p.Steps = append(p.Steps, q.Steps...)
	}
	return p
}

var (
	install = do(Reverify, RunPreRolloutHooks, EnterInstalling, InstallMembers, CopyData, MigrateData, Rollout, WaitUntilReady, Barrier, EnterInstalled)
	// Before ROLLOUT nothing that runs was changed.
	abandon = do(EnterRolledBack)
	back    = do(EnterRollingBack, RestoreData, Revert, Barrier, UndoMembers, EnterRolledBack)
	drop    = do(Discard, End)
	finish  = do(EnterCleaning, CommitMembers, Prune, End)

	// A client that wants a rollback must not believe that there was one.
	stays = refuse("the release failed to start and stays as it is, for upgrades.rollback_on_failure = false in its policy: " +
		"mender-app rollback APP goes back, and a newer artifact may replace it")
)

// table says what each event means in each phase. It covers every order of
// calls that both Mender clients were seen to make. For orders that no client
// makes, the result is still either the old release or the new one.
// It is made when it is first used: most calls of the programs do not, and making it is a
// noticeable part of their start on a small device.
var table = sync.OnceValue(func() map[Phase]map[Event]Plan {
	return map[Phase]map[Event]Plan{
		None: {
			EventReceived: refuse("no download was begun"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  refuse("nothing has been downloaded; install the artifact again"),
			// For handles a commit that is repeated after Cleanup.
			EventCommit:   refuse("nothing is waiting to be committed"),
			EventRollback: nothing("nothing to roll back"),
			EventFailure:  nothing("nothing had been changed"),
			EventCleanup:  nothing("nothing to clean up"),
			EventFollow:   nothing("it ended with its leader"),

			EventReboot:         nothing("nothing had been changed"),
			EventVerifyReboot:   refuse("no release is waiting for its commit"),
			EventVerifyRollback: nothing("nothing to roll back"),
		},
		Downloading: {
			EventReceived: do(Barrier, EnterLoaded),
			EventStays:    refuse("no release is being started"),
			EventInstall:  refuse("the download did not finish; install the artifact again"),
			EventCommit:   refuse("the download did not finish"),
			EventRollback: abandon,
			EventFailure:  abandon,
			EventCleanup:  sequence(abandon, drop),
			EventFollow:   refuse("it has not been installed"),

			EventReboot:         nothing("nothing that runs was touched"),
			EventVerifyReboot:   refuse("it has not been installed"),
			EventVerifyRollback: abandon,
		},
		Loaded: {
			EventReceived: nothing("it was loaded already"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  install,
			EventCommit:   refuse("it has not been installed"),
			EventRollback: abandon,
			EventFailure:  abandon,
			EventCleanup:  sequence(abandon, drop),
			EventFollow:   refuse("it has not been installed"),

			EventReboot:         nothing("nothing that runs was touched"),
			EventVerifyReboot:   refuse("it has not been installed"),
			EventVerifyRollback: abandon,
		},
		Installing: {
			EventReceived: refuse("it is being installed"),
			EventStays:    do(Barrier, EnterFailed),
			EventInstall:  install, // a repetition after a crash
			EventCommit:   refuse("the installation did not finish"),
			EventRollback: back,
			EventFailure:  back,
			EventCleanup:  sequence(back, drop),
			EventFollow:   refuse("the installation did not finish"),

			EventReboot:         refuse("the installation did not finish"),
			EventVerifyReboot:   refuse("the installation did not finish"),
			EventVerifyRollback: back,
		},
		Installed: {
			EventReceived: refuse("it has been installed"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  install,
			EventCommit:   do(Check, EnterCommitted),
			EventRollback: back,
			EventFailure:  back,
			// A client that cleans up without a commit regards the update as failed.
			EventCleanup: sequence(back, drop),
			EventFollow:  sequence(do(EnterCommitted), finish),

			EventReboot:         do(RunPreReboot, Barrier),
			EventVerifyReboot:   do(Check, RunPostReboot, EnterInstalled),
			EventVerifyRollback: back,
		},
		Committed: {
			EventReceived: refuse("it has been committed"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  nothing("it has been committed already"),
			EventCommit:   nothing("it has been committed already"),
			// The client does not know of the commit: it was killed, or the call
			// failed. To the client the old release is the current one.
			EventRollback: back,
			EventFailure:  back,
			EventCleanup:  finish,
			EventFollow:   finish,

			EventReboot:         nothing("it has been committed already"),
			EventVerifyReboot:   nothing("it has been committed already"),
			EventVerifyRollback: back,
		},
		Cleaning: {
			EventReceived: refuse("it has been committed"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  nothing("it has been committed already"),
			EventCommit:   nothing("it has been committed already"),
			// The client stores the commit before it calls Cleanup: to any caller
			// now, the new release is the current one.
			EventRollback: nothing("it has been committed, and the previous release may be gone: install that one again"),
			EventFailure:  nothing("it has been committed"),
			EventCleanup:  finish,
			EventFollow:   finish,

			EventReboot:         nothing("it has been committed already"),
			EventVerifyReboot:   nothing("it has been committed already"),
			EventVerifyRollback: nothing("it has been committed, and the previous release may be gone: install that one again"),
		},
		RollingBack: {
			EventReceived: refuse("it is being rolled back"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  refuse("it is being rolled back"),
			EventCommit:   refuse("it is being rolled back"),
			EventRollback: back,
			EventFailure:  back,
			EventCleanup:  sequence(back, drop),
			EventFollow:   refuse("it is being rolled back"),

			EventReboot:         nothing("it is being rolled back"),
			EventVerifyReboot:   refuse("it is being rolled back"),
			EventVerifyRollback: back,
		},
		RolledBack: {
			EventReceived: refuse("it was rolled back"),
			EventStays:    refuse("no release is being started"),
			EventInstall:  refuse("it was rolled back; install the artifact again"),
			EventCommit:   refuse("it was rolled back"),
			EventRollback: nothing("it was rolled back already"),
			EventFailure:  {Note: "it was rolled back already", Level: slog.LevelDebug}, // clients call it after each ArtifactRollback
			EventCleanup:  drop,
			EventFollow:   refuse("it was rolled back"),

			EventReboot:         do(Barrier),
			EventVerifyReboot:   refuse("it was rolled back"),
			EventVerifyRollback: do(Recheck, EnterRolledBack),
		},
		Failed: {
			EventReceived: stays,
			EventStays:    nothing("it has failed already"),
			EventInstall:  stays,
			EventCommit:   stays,
			EventRollback: stays,
			EventFailure:  nothing("the release stays as it is, for a person"),
			EventCleanup:  finish,
			EventFollow:   finish,

			EventReboot:         stays,
			EventVerifyReboot:   stays,
			EventVerifyRollback: stays,
		},
	}
})

// PlanFor returns the plan for an event. same means that the event is about the
// artifact of the current release, overwrites that loading the new release
// overwrites components of the old one.
func PlanFor(p Phase, ev Event, same, overwrites bool) (Plan, error) {
	if p == None && ev == EventCommit && same {
		// After client 3.4.0 was killed in Cleanup, the person has to commit again.
		return nothing("it has been committed already"), nil
	}
	if undoing[ev] {
		p = Touched(p, overwrites)
	}
	pl, ok := table()[p][ev]
	if !ok {
		return Plan{}, fmt.Errorf("no plan for %s in phase %q", ev, p)
	}
	return pl, nil
}

// PlanWithout is the plan for an event where there is no deployment.
func PlanWithout(ev Event) Plan { return table()[None][ev] }

// undoing are the events after which the old release runs, if it was not
// committed.
var undoing = map[Event]bool{EventRollback: true, EventFailure: true, EventCleanup: true, EventVerifyRollback: true}

// Touched returns the phase that tells whether the running release may have changed: a
// download that overwrites components counts as an installation.
func Touched(p Phase, overwrites bool) Phase {
	if overwrites && (p == Downloading || p == Loaded) {
		return Installing
	}
	return p
}

// StartsRelease reports whether an action of the event install starts the new release, so
// that an error may mean that the release cannot be started.
func StartsRelease(ev Event, a Action) bool {
	return ev == EventInstall && (a == Rollout || a == WaitUntilReady)
}
