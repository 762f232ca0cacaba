package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDecideEngine(t *testing.T) {
	const old, both, new, pre = "orchestrator = {maximum = '28.5'}", "orchestrator = {minimum = '20.10', maximum = '30.0'}",
		"orchestrator = {minimum = '29.0'}", "engine_upgrades = {timing = 'pre'}\n"
	type app struct{ version, policy string }
	for _, c := range []struct {
		name      string
		installed app
		staged    []app
		version   string
		now       string
		verdict   Verdict
		next      string
		why       string // a part of it
	}{
		{name: "no policy", installed: app{"1", ""}, version: "99", verdict: EngineRuns},
		{name: "no bounds", installed: app{"1", pre}, version: "99.0", verdict: EngineRuns},
		{name: "inside", installed: app{"1", both}, version: "29.0.1", verdict: EngineRuns},
		{name: "the last patch", installed: app{"1", old}, version: "28.5.99", verdict: EngineRuns},
		{name: "a cluster", installed: app{"1", old}, version: "v28.4.1+k3s1", verdict: EngineRuns},
		{name: "above", installed: app{"1", old}, version: "28.6.0", verdict: EngineRefuses,
			why: "it needs 28.5 or earlier (orchestrator.maximum); no staged release runs on it: stage one with mender-app stage"},
		{name: "below", installed: app{"1", new}, version: "28.0", verdict: EngineRefuses, why: "it needs 29.0 or later (orchestrator.minimum)"},
		{name: "a staged release, after", installed: app{"1", old}, staged: []app{{"2", both}}, version: "29.0", verdict: TimingPost, next: "2",
			why: "it needs 28.5 or earlier (orchestrator.maximum); the staged release 2 runs on it: install it after the engine is updated, with mender-app install --staged shop 2"},
		{name: "a staged release, before", installed: app{"1", old}, staged: []app{{"2", pre + both}}, version: "29.0", now: "28.0", verdict: TimingPre, next: "2",
			why: "install it before the engine is updated"},
		{name: "the installed release's timing does not count", installed: app{"1", pre + old}, staged: []app{{"2", both}}, version: "29.0", verdict: TimingPost, next: "2"},
		{name: "a staged release without a policy", installed: app{"1", old}, staged: []app{{"2", ""}}, version: "29.0", verdict: TimingPost, next: "2"},
		{name: "the newest that fits", installed: app{"1", old}, staged: []app{{"4", old}, {"3", both}, {"2", both}}, version: "29.0", verdict: TimingPost, next: "3"},
		{name: "none that fits", installed: app{"1", old}, staged: []app{{"2", old}}, version: "29.0", verdict: EngineRefuses},
		{name: "before, and not on the engine of today", installed: app{"1", old}, staged: []app{{"2", pre + new}}, version: "29.0", now: "28.0", verdict: EngineRefuses,
			why: "does not run on version 28.0: update the engine in two steps"},
		{name: "before, and the engine of today is not known", installed: app{"1", old}, staged: []app{{"2", pre + new}}, version: "29.0", verdict: TimingPre, next: "2"},
		{name: "before is too early, another one fits", installed: app{"1", old}, staged: []app{{"3", pre + new}, {"2", both}}, version: "29.0", now: "28.0", verdict: TimingPost, next: "2"},
		{name: "not over this version", installed: app{"1", old}, staged: []app{{"2", both + "\nupgrades = {from_versions = ['0\\..*']}"}}, version: "29.0", verdict: EngineRefuses},
		{name: "a downgrade that is forbidden", installed: app{"3", old + "\ndowngrades = {allow = false}"}, staged: []app{{"2", both}}, version: "29.0", verdict: EngineRefuses},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := EngineChange{Version: c.version, Now: c.now}
			r.Installed = []App{{Name: "shop", Version: c.installed.version, Policy: parse(t, "shop", c.installed.policy)}}
			r.Staged = []App{{Name: "other", Version: "9", Policy: parse(t, "other", both)}}
			for _, s := range c.staged {
				r.Staged = append(r.Staged, App{Name: "shop", Version: s.version, Policy: parse(t, "shop", s.policy)})
			}
			answers := DecideEngine(r)
			assert.Len(t, answers, 1)
			assert.Equal(t, c.verdict, answers[0].Verdict)
			assert.Equal(t, c.verdict == EngineRuns || c.verdict == TimingPost, answers[0].Permits())
			assert.Contains(t, answers[0].Why, c.why)
			if c.next == "" {
				assert.Nil(t, answers[0].Next)
			} else {
				assert.Equal(t, c.next, answers[0].Next.Version)
			}
		})
	}
}
