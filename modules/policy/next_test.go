package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What the device does by itself, by the policies of what is installed and staged.
func TestNext(t *testing.T) {
	const managed, auto = "managed = true\n", "managed = true\nupgrades = {automatic = true}\n"
	const reapply = managed + "[[reapply]]\non = 'os-updated'\n"
	const daily = managed + "[[reapply]]\non = 'schedule'\ncalendar = 'daily'\n"
	type staged struct{ version, policy string }
	down := func(p *Present) { p.Down = true }
	withdrawn := Event{Name: EventBundles, Fields: map[string]string{FieldWithdrawn: "shop-2"}}
	for _, c := range []struct {
		name    string
		policy  string // of the installed version 2
		is      func(p *Present)
		staged  []staged
		failed  bool // of the staged ones
		waits   bool // they do, for a maintenance window
		event   Event
		also    []Event
		want    []string // deeds, with the version that is installed
		because string
	}{
		{name: "nothing", policy: managed},
		{name: "down", policy: managed, is: down, want: []string{"start"}, because: "something of it does not run"},
		{name: "down, not managed", policy: "", is: down},
		{name: "down, stopped", policy: managed, is: func(p *Present) { p.Down, p.Stopped = true, true }},
		{name: "down, left to a person", policy: managed, is: func(p *Present) { p.Down, p.Left = true, true }},
		{name: "down, with an open update", policy: managed, is: func(p *Present) { p.Down, p.Status = true, Open }},

		{name: "an event, and nobody asks for it", policy: managed, event: Event{Name: "os-updated"}},
		{name: "reapply", policy: reapply, event: Event{Name: "os-updated"}, want: []string{"reapply"}, because: "something that it uses has changed"},
		{name: "reapply, of a second entry", policy: reapply + "[[reapply]]\non = 'boot'", event: Event{Name: "boot"}, want: []string{"reapply"}},
		{name: "reapply, another event", policy: reapply, event: Event{Name: "boot"}},
		{name: "reapply, found out meanwhile", policy: reapply, event: Event{Name: "boot"}, also: []Event{{Name: "other"}, {Name: "os-updated"}}, want: []string{"reapply"}},
		{name: "reapply, down", policy: reapply, event: Event{Name: "os-updated"}, is: down, want: []string{"start"}},
		{name: "reapply, stopped", policy: reapply, event: Event{Name: "os-updated"}, is: func(p *Present) { p.Stopped = true }},
		{name: "reapply, left to a person", policy: reapply, event: Event{Name: "os-updated"}, is: func(p *Present) { p.Left = true }},
		{name: "reapply, and newer", policy: reapply, event: Event{Name: "os-updated"}, staged: []staged{{"3", auto}}, want: []string{"install 3"}},
		{name: "to be disabled", policy: managed, is: func(p *Present) { p.Off = "why" }, want: []string{"disable"}, because: "why"},
		{name: "to be disabled, and nothing else", policy: reapply, is: func(p *Present) { p.Off, p.Down = "why", true }, event: Event{Name: "os-updated"}, staged: []staged{{"3", auto}}, want: []string{"disable"}},
		{name: "to be disabled, stopped by an operator", policy: managed, is: func(p *Present) { p.Off, p.Stopped = "why", true }},
		{name: "to be disabled, not managed", policy: "", is: func(p *Present) { p.Off = "why" }},
		{name: "disabled", policy: managed, is: func(p *Present) { p.Off, p.WasOff, p.Stopped, p.Down = "why", "why", true, true }},
		{name: "disabled, for another reason", policy: managed, is: func(p *Present) { p.Off, p.WasOff, p.Stopped = "why", "before", true }, want: []string{"disable"}, because: "why"},
		{name: "disabled, and killed before it was stopped", policy: managed, is: func(p *Present) { p.Off, p.WasOff = "why", "why" }, want: []string{"disable"}},
		{name: "disabled, and newer", policy: managed, is: func(p *Present) { p.Off, p.WasOff, p.Stopped = "why", "why", true }, staged: []staged{{"3", auto}}, want: []string{"install 3"}},
		{name: "to be enabled", policy: managed, is: func(p *Present) { p.WasOff, p.Stopped = "why", true }, want: []string{"enable"}},
		{name: "to be enabled, and killed before it was noted", policy: managed, is: func(p *Present) { p.WasOff = "why" }, want: []string{"enable"}},
		{name: "values changed", policy: managed, is: func(p *Present) { p.Changed = true }, want: []string{"reapply"}, because: "values that it uses have changed"},
		{name: "values changed, stopped", policy: managed, is: func(p *Present) { p.Changed, p.Stopped = true, true }},
		{name: "values changed, not managed", policy: "", is: func(p *Present) { p.Changed = true }},
		{name: "reapply, filtered", policy: reapply + "filter = {a = '1', b = '2'}", event: Event{Name: "os-updated", Fields: map[string]string{"a": "1", "b": "2", "c": "3"}}, want: []string{"reapply"}},
		{name: "reapply, filtered out", policy: reapply + "filter = {a = '1', b = '2'}", event: Event{Name: "os-updated", Fields: map[string]string{"a": "1", "b": "3"}}},
		{name: "reapply, a field is missing", policy: reapply + "filter = {a = ''}", event: Event{Name: "os-updated"}},
		{name: "reapply, filtered below a field", policy: reapply + "filter = {a = '1'}\nfilter_field = 'host'", event: Event{Name: "os-updated", Fields: map[string]string{"host.a": "1"}}, want: []string{"reapply"}},
		{name: "reapply, filtered below a field, and the event has it above", policy: reapply + "filter = {a = '1'}\nfilter_field = 'host'", event: Event{Name: "os-updated", Fields: map[string]string{"a": "1"}}},
		{name: "reapply, scheduled", policy: daily, event: Event{Name: "schedule", Fields: map[string]string{"calendar": "daily"}}, want: []string{"reapply"}},
		{name: "reapply, scheduled by a person", policy: daily, event: Event{Name: "schedule"}, want: []string{"reapply"}},
		{name: "reapply, another schedule", policy: daily, event: Event{Name: "schedule", Fields: map[string]string{"calendar": "hourly"}}},

		{name: "newer", policy: managed, staged: []staged{{"3", auto}}, want: []string{"install 3"}, because: "upgrades.automatic"},
		{name: "newer, and waits for a window", policy: managed, staged: []staged{{"3", auto}}, waits: true},
		{name: "down; newer, and waits for a window", policy: managed, is: down, staged: []staged{{"3", auto}}, waits: true, want: []string{"start"}},
		{name: "newer, not automatic", policy: auto, staged: []staged{{"3", managed}}},
		{name: "newer, not managed", policy: auto, staged: []staged{{"3", "upgrades = {automatic = true}"}}},
		{name: "newer, the installed one not managed", policy: "", staged: []staged{{"3", auto}}},
		{name: "newer, without a policy", policy: auto, staged: []staged{{"3", ""}}},
		{name: "the same", policy: auto, staged: []staged{{"2", auto}}},
		{name: "older", policy: auto, staged: []staged{{"1", auto}}},
		{name: "the newest that is automatic", policy: managed, staged: []staged{{"5", managed}, {"4", auto}, {"3", auto}}, want: []string{"install 4"}},
		{name: "not over this version", policy: managed, staged: []staged{{"3", "managed = true\nupgrades = {automatic = true, from_versions = ['1']}"}}},
		{name: "given up", policy: managed, staged: []staged{{"3", auto}}, failed: true},
		{name: "stopped by an operator", policy: managed, is: func(p *Present) { p.Stopped = true }, staged: []staged{{"3", auto}}},
		{name: "only loaded", policy: managed + "desired_state = 'loaded'", is: func(p *Present) { p.Stopped = true }, staged: []staged{{"3", auto}}, want: []string{"install 3"}},
		{name: "down, and newer", policy: managed, is: down, staged: []staged{{"3", auto}}, want: []string{"start", "install 3"}},
		{name: "down, and newer that may replace it", policy: managed, is: down, staged: []staged{{"3", "managed = true\nupgrades = {automatic = true, from_unhealthy = true}"}}, want: []string{"install 3"}},

		{name: "withdrawn", policy: managed, event: withdrawn, staged: []staged{{"1", managed}}, want: []string{"install 1"}, because: "downgrades.automatic"},
		{name: "withdrawn, and waits for a window", policy: managed, event: withdrawn, staged: []staged{{"1", managed}}, waits: true, want: []string{"install 1"}},
		{name: "withdrawn, the flag of the newer one does not count", policy: managed + "downgrades = {automatic = false}", event: withdrawn, staged: []staged{{"1", managed}}, want: []string{"install 1"}},
		{name: "withdrawn, not automatic", policy: managed, event: withdrawn, staged: []staged{{"1", managed + "downgrades = {automatic = false}"}}},
		{name: "withdrawn, a downgrade is forbidden", policy: managed + "downgrades = {allow = false}", event: withdrawn, staged: []staged{{"1", managed}}},
		{name: "withdrawn, and staged again", policy: managed, event: withdrawn, staged: []staged{{"2", managed}, {"1", managed}}},
		{name: "another one is withdrawn", policy: managed, event: Event{Name: EventBundles, Fields: map[string]string{FieldWithdrawn: "shop-4"}}, staged: []staged{{"1", managed}}},
		{name: "nothing is withdrawn", policy: managed, event: Event{Name: EventBundles}, staged: []staged{{"1", managed}}},

		{name: "the engine is newer", policy: managed + "orchestrator = {maximum = '28.5'}", staged: []staged{{"3", managed + "orchestrator = {maximum = '30.0'}"}},
			want: []string{"install 3"}, because: "the engine has version 29.1.0, and the installed release needs 28.5 or earlier"},
		{name: "the engine is newer, an older release fits", policy: managed + "orchestrator = {maximum = '28.5'}", staged: []staged{{"1", managed}}, want: []string{"install 1"}},
		{name: "the engine is newer, not automatic", policy: managed + "orchestrator = {maximum = '28.5'}", staged: []staged{{"3", managed + "engine_upgrades = {automatic = false}"}}},
		{name: "the engine is newer, none fits", policy: managed + "orchestrator = {maximum = '28.5'}", staged: []staged{{"3", auto + "orchestrator = {maximum = '28.6'}"}}},
		{name: "an upgrade that the engine is too old for", policy: managed, staged: []staged{{"3", auto + "orchestrator = {minimum = '30.0'}"}}},
		{name: "the engine's version is not known", policy: managed + "orchestrator = {maximum = '28.5'}", is: func(p *Present) { p.Engine = "" }, staged: []staged{{"3", managed}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Present{App: App{Name: "shop", Version: "2", Policy: parse(t, "shop", c.policy)}, Artifact: "shop-2", Engine: "29.1.0"}
			if c.is != nil {
				c.is(&p)
			}
			s := Situation{Event: c.event, Also: c.also, Installed: []Present{p}}
			for _, x := range c.staged {
				s.Staged = append(s.Staged, Staged{App: App{Name: "shop", Version: x.version, Release: "shop-" + x.version, Policy: parse(t, "shop", x.policy)}, Failed: c.failed, Waits: c.waits})
			}
			var got []string
			why := ""
			for _, w := range Next(s) {
				assert.Equal(t, "shop", w.Application)
				assert.Equal(t, w.Do == RollOut && c.also != nil, w.Event.Name != c.event.Name)
				got = append(got, strings.TrimSpace(string(w.Do)+" "+strings.TrimPrefix(w.Artifact, "shop-")))
				why += w.Why
			}
			assert.Equal(t, c.want, got)
			assert.Contains(t, why, c.because)
		})
	}
}

// The work of several applications comes in the order of classes and dependencies.
func TestNextInOrder(t *testing.T) {
	var s Situation
	for name, text := range map[string]string{
		"report": "managed = true\nclass = 'reporting'", "web": "managed = true\ndepends = [{name = 'db'}]",
		"db": "managed = true\nclass = 'reporting'", "net": "managed = true\nclass = 'critical'", "other": "",
	} {
		s.Installed = append(s.Installed, Present{App: App{Name: name, Policy: parse(t, name, text)}, Down: true})
	}
	var got []string
	for _, w := range Next(s) {
		got = append(got, w.Application)
	}
	assert.Less(t, slices.Index(got, "db"), slices.Index(got, "web"))
	assert.Equal(t, "net", got[0])
	assert.ElementsMatch(t, []string{"net", "db", "report", "web"}, got)
}
