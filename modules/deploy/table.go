package deploy

import "fmt"

// Phase is how far a deployment has come. It is written to the journal before
// what it announces is begun, so that after a crash it names the most that can
// have happened. The strings are part of store/FORMAT.md.
type Phase string

// The phases.
const (
	// None: no deployment is under way.
	None Phase = ""
	// Downloading: components are being loaded beside the running release.
	Downloading Phase = "downloading"
	// Loaded: everything needed is there, verified and synced.
	Loaded Phase = "loaded"
	// Installing: the new release is being brought up.
	Installing Phase = "installing"
	// Installed: the new release runs and is healthy; it is not committed.
	Installed Phase = "installed"
	// Committed: the new release is the current one. What it replaced is kept
	// until the client has heard of it.
	Committed Phase = "committed"
	// Cleaning: the client knows of the commit; there is no way back here.
	Cleaning Phase = "cleaning"
	// RollingBack: the release before is being brought up again.
	RollingBack Phase = "rolling-back"
	// RolledBack: the release before runs and is healthy.
	RolledBack Phase = "rolled-back"
)

// Phases lists all phases but None.
func Phases() []Phase {
	return []Phase{Downloading, Loaded, Installing, Installed, Committed, Cleaning, RollingBack, RolledBack}
}

// Event is what a deployment is asked to do.
type Event string

// The events. The first follows the end of a download, the others the states
// of the Mender client.
const (
	EventReceived Event = "received"
	EventInstall  Event = "install"
	EventCommit   Event = "commit"
	EventRollback Event = "rollback"
	EventFailure  Event = "failure"
	EventCleanup  Event = "cleanup"
	// Where the application asks for a restart of the machine: before it, and
	// after it in the new release, and in the old one again.
	EventReboot         Event = "reboot"
	EventVerifyReboot   Event = "verify-reboot"
	EventVerifyRollback Event = "verify-rollback-reboot"
)

// Events lists all events.
func Events() []Event {
	return []Event{
		EventReceived, EventInstall, EventCommit, EventRollback, EventFailure, EventCleanup,
		EventReboot, EventVerifyReboot, EventVerifyRollback,
	}
}

// Action is one step of a plan. Every action is idempotent: after a crash the
// plan of the same event is walked again from its start.
type Action string

// The actions. Those named "enter" write the journal.
const (
	enterLoaded      Action = "enter loaded"
	enterInstalling  Action = "enter installing"
	enterInstalled   Action = "enter installed"
	enterCommitted   Action = "enter committed" // the new release becomes the current one
	enterCleaning    Action = "enter cleaning"
	enterRollingBack Action = "enter rolling-back" // the old release becomes the current one
	enterRolledBack  Action = "enter rolled-back"

	reverify Action = "reverify" // after another boot: the new release is still whole
	barrier  Action = "barrier"  // what the orchestrator wrote becomes durable
	rollout  Action = "rollout"  // the new release comes up
	revert   Action = "revert"   // the old release comes up again, or nothing does
	check    Action = "check"    // the new release still runs and is healthy
	recheck  Action = "recheck"  // after another boot: the old release comes up again
	prune    Action = "prune"    // releases that are not kept go
	discard  Action = "discard"  // the new release goes
	end      Action = "end"      // the deployment becomes history
)

// plan is what an event means in a phase.
type plan struct {
	steps  []Action
	refuse string // why the event cannot be; then there are no steps
	note   string // for the log, where nothing needs to be done
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
	// Until ROLLOUT nothing that runs has been touched.
	abandon = do(enterRolledBack)
	back    = do(enterRollingBack, revert, barrier, enterRolledBack)
	drop    = do(discard, end)
	finish  = do(enterCleaning, prune, end)
)

// table says what each event means in each phase. It answers every order of
// calls that both Mender clients were seen to make, and those that they never
// make in the way that leaves the old release or the new one.
var table = map[Phase]map[Event]plan{
	None: {
		EventReceived: refuse("no download was begun"),
		EventInstall:  refuse("nothing has been downloaded; install the artifact again"),
		// A commit that is repeated after Cleanup is looked at by Plan.
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
		// A client that cleans up without a commit does not believe in it.
		EventCleanup: sequence(back, drop),

		EventReboot:         do(barrier),
		EventVerifyReboot:   do(check, enterInstalled),
		EventVerifyRollback: back,
	},
	Committed: {
		EventReceived: refuse("it has been committed"),
		EventInstall:  nothing("it has been committed already"),
		EventCommit:   nothing("it has been committed already"),
		// The client did not hear of the commit: a kill, or a commit that
		// failed for it. It takes the old release for the current one.
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
		// Cleanup comes after the client has stored the commit: whoever asks
		// now still has the new release for its current one.
		EventRollback: nothing("it has been committed, and the release before may be gone: install that one again"),
		EventFailure:  nothing("it has been committed"),
		EventCleanup:  finish,

		EventReboot:         nothing("it has been committed already"),
		EventVerifyReboot:   nothing("it has been committed already"),
		EventVerifyRollback: nothing("it has been committed, and the release before may be gone: install that one again"),
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

// planFor returns the plan for an event. same says that the artifact the event
// is about is the current release's.
func planFor(p Phase, ev Event, same bool) (plan, error) {
	if p == None && ev == EventCommit && same {
		// 3.4.0 killed in Cleanup makes the person commit again.
		return nothing("it has been committed already"), nil
	}
	pl, ok := table[p][ev]
	if !ok {
		return plan{}, fmt.Errorf("no plan for %s in phase %q", ev, p)
	}
	return pl, nil
}
