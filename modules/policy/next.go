package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/version"
)

// Deed is a kind of automatic work.
type Deed string

// The deeds.
const (
	Evaluate Deed = "evaluate" // find out what has to be done
	Start    Deed = "start"    // start the application again: part of it is not running
	Replace  Deed = "install"  // install a staged artifact
	Disable  Deed = "disable"  // stop the application
	Enable   Deed = "enable"   // start it again
	RollOut  Deed = "reapply"  // roll the installed release out again, if something changed
)

// Work is one piece of automatic work for an application.
type Work struct {
	Do       Deed   `json:"do"`
	Artifact string `json:"artifact_name,omitempty"` // of Replace
	Why      string `json:"why,omitempty"`
}

// Present is an installed application as it is now.
type Present struct {
	App
	Artifact string // the artifact's name of the release
	// Down: something of it should run and does not.
	Down bool
	// Stopped: nothing of it should run, because an operator or the release's policy
	// says so. Left: the release failed to start and is left to a person.
	Stopped, Left bool
	// Off says why it must not run; "" if it may. WasOff is why it was stopped by itself.
	Off, WasOff string
	// Changed: it uses values that are not those that it was started with.
	Changed bool
	Engine  string // the version of its engine; "" if it is not known
}

// Staged is an artifact that is staged.
type Staged struct {
	App              // Release is the artifact's name
	At     time.Time // when it was staged
	Failed bool      // it was given up
	Waits  bool      // for a maintenance window
}

// Situation has the facts for the question what has to be done.
type Situation struct {
	Event     Event
	Also      []Event // that were found out meanwhile
	Facts     []Fact
	Installed []Present
	Staged    []Staged // the newest of each application first
}

// Task is work for one application.
type Task struct {
	Application string
	Work
	Event Event // of the situation, that asks for it
}

// Next says what has to be done for the managed applications, in the order of automatic
// work.
func Next(s Situation) (tasks []Task) {
	var apps []App
	present := map[string]Present{}
	for _, p := range s.Installed {
		apps = append(apps, p.App)
		present[p.Name] = p
	}
	groups, _ := Order(apps)
	for _, group := range groups {
		for _, name := range group {
			for _, w := range s.work(present[name]) {
				w.Application = name
				tasks = append(tasks, w)
			}
		}
	}
	return tasks
}

// work is what has to be done for an application, in its order.
func (s Situation) work(p Present) (list []Task) {
	if !p.Policy.managed() || p.Status == Open || p.Left {
		return nil
	}
	next, why := s.replacement(p)
	switch {
	case p.Off != "" && (!p.Stopped || p.WasOff != "" && p.WasOff != p.Off):
		return []Task{{Work: Work{Do: Disable, Why: p.Off}, Event: s.Event}}
	case p.Off == "" && p.WasOff != "":
		return []Task{{Work: Work{Do: Enable, Why: "nothing says any more that it must not run"}, Event: s.Event}}
	}
	again, reapply := p.Policy.reapply(append([]Event{s.Event}, s.Also...))
	switch {
	case p.Stopped:
	case p.Down && (next == nil || next.Policy.NeedsHealth()):
		list = append(list, Task{Work: Work{Do: Start, Why: "something of it does not run"}, Event: s.Event})
	case next != nil: // it is rolled out anyway
	case p.Changed:
		list = append(list, Task{Work: Work{Do: RollOut, Why: "values that it uses have changed"}, Event: s.Event})
	case reapply:
		list = append(list, Task{Work: Work{Do: RollOut, Why: "something that it uses has changed (reapply)"}, Event: again})
	}
	if next != nil {
		list = append(list, Task{Work: Work{Do: Replace, Artifact: next.Release, Why: why}, Event: s.Event})
	}
	return list
}

// replacement finds the staged artifact that replaces the installed release by itself, and
// says why. Its own policy decides. nil: there is none.
func (s Situation) replacement(p Present) (next *Staged, why string) {
	if p.Stopped && p.WasOff == "" && p.Policy.Starts() {
		return nil, "" // an operator stopped it, and decides when it runs again
	}
	outside := p.Policy.outside(p.Engine)
	if p.Engine == "" {
		outside = ""
	}
	withdrawn := s.withdrawn(p)
	for i := range s.Staged {
		x := &s.Staged[i]
		if x.Name != p.Name || x.Failed || x.Release == p.Artifact || !x.Policy.managed() ||
			p.Engine != "" && x.Policy.outside(p.Engine) != "" || !follows(p.App, x.App) {
			continue
		}
		order := compare(x.Version, p.Version)
		switch {
		// The next look finds what is staged again; a withdrawal is said once, and its task waits.
		case x.Waits && (outside != "" || order > 0):
			continue
		case outside != "" && isTrue(x.Policy.EngineUpgrades.Automatic):
			return x, fmt.Sprintf("the engine has version %s, and the installed release %s", clip.Text(p.Engine), strings.TrimPrefix(outside, "it "))
		case order > 0 && x.Policy.Upgrades.Automatic:
			return x, "it is staged and newer (upgrades.automatic)"
		case order < 0 && withdrawn && isTrue(x.Policy.Downgrades.Automatic):
			return x, "the newer artifact was withdrawn (downgrades.automatic)"
		}
	}
	return nil, ""
}

// withdrawn reports whether the event says that a person has withdrawn the artifact of the
// installed release, and it is not staged again.
func (s Situation) withdrawn(p Present) bool {
	return s.Event.Name == EventBundles && p.Artifact != "" && s.Event.Fields[FieldWithdrawn] == p.Artifact &&
		!slices.ContainsFunc(s.Staged, func(x Staged) bool { return x.Name == p.Name && x.Release == p.Artifact })
}

// compare orders two versions; 0 also if nothing says which is the newer one.
func compare(a, b string) int {
	order, err := version.Compare(a, b)
	if err != nil {
		return 0
	}
	return order
}
