package policy

import (
	"cmp"
	"fmt"

	"github.com/mender-app/mender-app/artifact/clip"
)

// EngineChange has the facts needed to decide whether the engine or cluster may
// change its version.
type EngineChange struct {
	Version   string // afterwards
	Now       string // "" if it is not known
	Installed []App
	Staged    []App // the newest of each application first; Release is the artifact's name
}

// Verdict says what a change of the engine's version means for an application.
type Verdict string

// The verdicts. TimingPre and TimingPost are two more: a staged release runs on the new
// version, and must be installed before or after the engine is updated.
const (
	EngineRuns    Verdict = "allowed" // the installed release runs on it
	EngineRefuses Verdict = "refused" // neither the installed nor a staged release runs on it
)

// EngineAnswer is the verdict for one application.
type EngineAnswer struct {
	App     App // the installed release
	Verdict Verdict
	Why     string // what it needs, and what to do; "" for EngineRuns
	Next    *App   // the staged release that runs on it, with the verdicts of timing
}

// Permits reports whether this application lets the engine be updated now.
func (a EngineAnswer) Permits() bool { return a.Verdict == EngineRuns || a.Verdict == TimingPost }

// DecideEngine says what a change of the engine's version means for each installed
// application, according to its policy's orchestrator bounds. A staged release counts if
// it runs on the new version and may be installed over the installed one. Its
// engine_upgrades.timing decides when it must be installed.
func DecideEngine(c EngineChange) []EngineAnswer {
	var answers []EngineAnswer
	for _, app := range c.Installed {
		answers = append(answers, c.answer(app))
	}
	return answers
}

func (c EngineChange) answer(app App) EngineAnswer {
	needs := app.Policy.outside(c.Version)
	if needs == "" {
		return EngineAnswer{App: app, Verdict: EngineRuns}
	}
	tooEarly := false
	for _, next := range c.Staged {
		if next.Name != app.Name || next.Policy.outside(c.Version) != "" || !follows(app, next) {
			continue
		}
		called := clip.Text(cmp.Or(next.Version, next.Release))
		install := fmt.Sprintf("the staged release %s runs on it: install it %%s the engine is updated, with mender-app install --staged %s %s",
			called, next.Name, called)
		if next.Policy == nil || next.Policy.EngineUpgrades.Timing != TimingPre {
			return EngineAnswer{app, TimingPost, needs + "; " + fmt.Sprintf(install, "after"), &next}
		}
		if c.Now != "" && next.Policy.outside(c.Now) != "" {
			tooEarly = true // it cannot be installed before the engine is updated
			continue
		}
		return EngineAnswer{app, TimingPre, needs + "; " + fmt.Sprintf(install, "before"), &next}
	}
	why := needs + "; no staged release runs on it: stage one with mender-app stage"
	if tooEarly {
		why = needs + fmt.Sprintf("; a staged release runs on it and must be installed before the engine is updated, but does not run on version %s: update the engine in two steps", clip.Text(c.Now))
	}
	return EngineAnswer{App: app, Verdict: EngineRefuses, Why: why}
}

// outside says which engine version the policy needs if the given one is out of bounds;
// "" if it is within them.
func (p *Policy) outside(version string) string {
	switch {
	case p == nil:
		return ""
	case p.Orchestrator.Minimum != "" && above(p.Orchestrator.Minimum, version):
		return "it needs " + p.Orchestrator.Minimum + " or later (orchestrator.minimum)"
	case p.Orchestrator.Maximum != "" && above(version, p.Orchestrator.Maximum):
		return "it needs " + p.Orchestrator.Maximum + " or earlier (orchestrator.maximum)"
	}
	return ""
}

// follows reports whether a release may be installed over the installed one, by their
// versions.
func follows(installed, next App) bool {
	d := decider{Request: Request{Operation: Install, Mode: ByHand, App: next}, installed: map[string]*App{installed.Name: &installed}}
	return d.fromVersions() == nil && d.downgrade() == nil
}
