package deploy

import "fmt"

// Phase is the progress of a deployment. It is written to the journal before its
// work begins. After a crash, nothing beyond the recorded phase can therefore
// have happened. The strings are part of store/FORMAT.md.
type Phase string

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
)

// Event is a request to a deployment.
type Event string

// The events. The first follows the end of a download; each other one is a
// state of the Mender client.
const (
	EventReceived Event = "received"
	EventInstall  Event = "install"
	EventCommit   Event = "commit"
	EventRollback Event = "rollback"
	EventFailure  Event = "failure"
	EventCleanup  Event = "cleanup"
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
	enterLoaded      Action = "enter loaded"
	enterInstalling  Action = "enter installing"
	enterInstalled   Action = "enter installed"
	enterCommitted   Action = "enter committed" // the new release becomes the current one
	enterCleaning    Action = "enter cleaning"
	enterRollingBack Action = "enter rolling-back" // the old release becomes the current one
	enterRolledBack  Action = "enter rolled-back"

	reverify Action = "reverify" // verify the new release if the machine was restarted
	barrier  Action = "barrier"  // make durable what the orchestrator wrote
	rollout  Action = "rollout"  // start the new release
	revert   Action = "revert"   // start the old release again; without one, remove the new one
	check    Action = "check"    // make sure that the new release runs and is healthy
	recheck  Action = "recheck"  // start the old release again if the machine was restarted
	prune    Action = "prune"    // remove the releases that are not kept
	discard  Action = "discard"  // remove the new release
	end      Action = "end"      // move the deployment to the history
)

// plan is the meaning of an event in a phase.
type plan struct {
	steps  []Action
	refuse string // the reason for an error; then there are no steps
	note   string // for the log; then there is nothing to do
}

func do(steps ...Action) plan    { return plan{steps: steps} }
func refuse(reason string) plan  { return plan{refuse: reason} }
func nothing(reason string) plan { return plan{note: reason} }
func sequence(plans ...plan) plan { // of plans that have steps only
	var p plan
	for _, q := range plans {
		p.steps = append(p.steps, q.steps...)
	}
	return p
}

var (
	install = do(reverify, enterInstalling, rollout, barrier, enterInstalled)
	// Before ROLLOUT nothing that runs was changed.
	abandon = do(enterRolledBack)
	back    = do(enterRollingBack, revert, barrier, enterRolledBack)
	drop    = do(discard, end)
	finish  = do(enterCleaning, prune, end)
)

// table says what each event means in each phase. It covers every order of
// calls that both Mender clients were seen to make. For orders that no client
// makes, the result is still either the old release or the new one.
var table = map[Phase]map[Event]plan{
	None: {
		EventReceived: refuse("no download was begun"),
		EventInstall:  refuse("nothing has been downloaded; install the artifact again"),
		// planFor handles a commit that is repeated after Cleanup.
		EventCommit:   refuse("nothing is waiting to be committed"),
		EventRollback: nothing("nothing to roll back"),
		EventFailure:  nothing("nothing had been changed"),
		EventCleanup:  nothing("nothing to clean up"),

		EventReboot:         nothing("nothing had been changed"),
		EventVerifyReboot:   refuse("no release is waiting for its commit"),
		EventVerifyRollback: nothing("nothing to roll back"),
	},
	Downloading: {
		EventReceived: do(barrier, enterLoaded),
		EventInstall:  refuse("the download did not finish; install the artifact again"),
		EventCommit:   refuse("the download did not finish"),
		EventRollback: abandon,
		EventFailure:  abandon,
		EventCleanup:  sequence(abandon, drop),

		EventReboot:         nothing("nothing that runs was touched"),
		EventVerifyReboot:   refuse("it has not been installed"),
		EventVerifyRollback: abandon,
	},
	Loaded: {
		EventReceived: nothing("it was loaded already"),
		EventInstall:  install,
		EventCommit:   refuse("it has not been installed"),
		EventRollback: abandon,
		EventFailure:  abandon,
		EventCleanup:  sequence(abandon, drop),

		EventReboot:         nothing("nothing that runs was touched"),
		EventVerifyReboot:   refuse("it has not been installed"),
		EventVerifyRollback: abandon,
	},
	Installing: {
		EventReceived: refuse("it is being installed"),
		EventInstall:  install, // a repetition after a crash
		EventCommit:   refuse("the installation did not finish"),
		EventRollback: back,
		EventFailure:  back,
		EventCleanup:  sequence(back, drop),

		EventReboot:         refuse("the installation did not finish"),
		EventVerifyReboot:   refuse("the installation did not finish"),
		EventVerifyRollback: back,
	},
	Installed: {
		EventReceived: refuse("it has been installed"),
		EventInstall:  install,
		EventCommit:   do(check, enterCommitted),
		EventRollback: back,
		EventFailure:  back,
		// A client that cleans up without a commit regards the update as failed.
		EventCleanup: sequence(back, drop),

		EventReboot:         do(barrier),
		EventVerifyReboot:   do(check, enterInstalled),
		EventVerifyRollback: back,
	},
	Committed: {
		EventReceived: refuse("it has been committed"),
		EventInstall:  nothing("it has been committed already"),
		EventCommit:   nothing("it has been committed already"),
		// The client does not know of the commit: it was killed, or the call
		// failed. To the client the old release is the current one.
		EventRollback: back,
		EventFailure:  back,
		EventCleanup:  finish,

		EventReboot:         nothing("it has been committed already"),
		EventVerifyReboot:   nothing("it has been committed already"),
		EventVerifyRollback: back,
	},
	Cleaning: {
		EventReceived: refuse("it has been committed"),
		EventInstall:  nothing("it has been committed already"),
		EventCommit:   nothing("it has been committed already"),
		// The client stores the commit before it calls Cleanup: to any caller
		// now, the new release is the current one.
		EventRollback: nothing("it has been committed, and the previous release may be gone: install that one again"),
		EventFailure:  nothing("it has been committed"),
		EventCleanup:  finish,

		EventReboot:         nothing("it has been committed already"),
		EventVerifyReboot:   nothing("it has been committed already"),
		EventVerifyRollback: nothing("it has been committed, and the previous release may be gone: install that one again"),
	},
	RollingBack: {
		EventReceived: refuse("it is being rolled back"),
		EventInstall:  refuse("it is being rolled back"),
		EventCommit:   refuse("it is being rolled back"),
		EventRollback: back,
		EventFailure:  back,
		EventCleanup:  sequence(back, drop),

		EventReboot:         nothing("it is being rolled back"),
		EventVerifyReboot:   refuse("it is being rolled back"),
		EventVerifyRollback: back,
	},
	RolledBack: {
		EventReceived: refuse("it was rolled back"),
		EventInstall:  refuse("it was rolled back; install the artifact again"),
		EventCommit:   refuse("it was rolled back"),
		EventRollback: nothing("it was rolled back already"),
		EventFailure:  nothing("it was rolled back already"),
		EventCleanup:  drop,

		EventReboot:         do(barrier),
		EventVerifyReboot:   refuse("it was rolled back"),
		EventVerifyRollback: do(recheck, enterRolledBack),
	},
}

// planFor returns the plan for an event. same: the event's artifact is that of
// the current release. overwrites: loading the new release overwrites components
// of the old one.
func planFor(p Phase, ev Event, same, overwrites bool) (plan, error) {
	if p == None && ev == EventCommit && same {
		// After client 3.4.0 was killed in Cleanup, the person has to commit again.
		return nothing("it has been committed already"), nil
	}
	if undoing[ev] {
		p = touched(p, overwrites)
	}
	pl, ok := table[p][ev]
	if !ok {
		return plan{}, fmt.Errorf("no plan for %s in phase %q", ev, p)
	}
	return pl, nil
}

// undoing are the events after which the old release runs, unless the new one
// was committed.
var undoing = map[Event]bool{EventRollback: true, EventFailure: true, EventCleanup: true, EventVerifyRollback: true}

// touched returns the phase that says what may have changed in the running
// release: a download that overwrites components counts as an installation.
func touched(p Phase, overwrites bool) Phase {
	if overwrites && (p == Downloading || p == Loaded) {
		return Installing
	}
	return p
}
