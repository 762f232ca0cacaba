package policy

import (
	"maps"
	"slices"
	"time"
)

// Event is what makes the device look whether there is work.
type Event struct {
	Name   string            `json:"name"`
	Fields map[string]string `json:"fields,omitempty"`
}

// The events that this program knows more of than the name. EventBundles says that what is
// staged has changed; FieldWithdrawn has the name of an artifact that a person has
// withdrawn. EventSchedule has the calendar expression of a policy. The others are found
// out by comparing the device with what it was.
const (
	EventBundles       = "bundles"
	EventBoot          = "boot"
	EventSchedule      = "schedule"
	EventEngineVersion = "engine-version"
	EventOSUpdated     = "os-updated"
	EventOverrides     = "overrides"

	FieldWithdrawn    = "withdrawn"
	fieldCalendar     = "calendar"
	FieldApplication  = "application"
	FieldOrchestrator = "orchestrator"
	fieldVersion      = "version"
	fieldBefore       = "before"
)

// Reapplies reports whether the policy asks to roll the application out again after an
// event of a name.
func (p *Policy) Reapplies(event string) bool {
	return p.managed() && slices.ContainsFunc(p.Reapply, func(r Reapply) bool { return r.On == event })
}

// reapply is the event of several after which the policy asks to roll the application out
// again.
func (p *Policy) reapply(events []Event) (e Event, found bool) {
	for _, e := range events {
		if slices.ContainsFunc(p.Reapply, func(r Reapply) bool { return r.matches(e) }) {
			return e, true
		}
	}
	return e, false
}

func (r Reapply) matches(e Event) bool {
	if r.On != e.Name || r.Calendar != "" && e.Fields[fieldCalendar] != "" && e.Fields[fieldCalendar] != r.Calendar {
		return false
	}
	prefix := ""
	if r.FilterField != "" {
		prefix = r.FilterField + "."
	}
	for name, want := range r.Filter {
		if got, there := e.Fields[prefix+name]; !there || got != want {
			return false
		}
	}
	return true
}

// Fact is something of the device whose change is an event.
type Fact struct {
	Event  string // its name
	Of     string // whose fact it is: an orchestrator, an application; "" for the device
	field  string // of the event, with Of
	Value  string // "" if it is not known now
	hidden bool   // the value says nothing to people
}

// EngineVersion is the fact of the version of an orchestrator's engine.
func EngineVersion(orchestrator, version string) Fact {
	return Fact{Event: EventEngineVersion, Of: orchestrator, field: FieldOrchestrator, Value: version}
}

// OSVersion is the fact of the version of the operating system.
func OSVersion(version string) Fact { return Fact{Event: EventOSUpdated, Value: version} }

// OverridesOf is the fact of an application's overrides, by a hash of them.
func OverridesOf(application, hash string) Fact {
	return Fact{Event: EventOverrides, Of: application, field: FieldApplication, Value: hash, hidden: true}
}

// key is the fact in what was seen.
func (f Fact) key() string { return f.Event + " " + f.Of }

// Changed compares the facts of a situation with what was seen before, and the calendar
// expressions of its policies with the time when they were looked at. It returns the events
// that this makes, and what is seen now. What is seen for the first time is no event.
func Changed(seen map[string]string, s Situation, now time.Time) (events []Event, after map[string]string) {
	after = map[string]string{}
	for _, f := range s.Facts {
		before, known := seen[f.key()]
		if f.Value == "" {
			f.Value = before
		}
		after[f.key()] = f.Value
		if !known || before == f.Value {
			continue
		}
		e := Event{Name: f.Event, Fields: map[string]string{}}
		if f.field != "" {
			e.Fields[f.field] = f.Of
		}
		if !f.hidden {
			e.Fields[fieldVersion], e.Fields[fieldBefore] = f.Value, before
		}
		events = append(events, e)
	}
	for _, text := range calendars(s.Installed) {
		key := EventSchedule + " " + text
		last, err := time.Parse(time.RFC3339, seen[key])
		expression, bad := ParseCalendar(text)
		if bad != nil { // it was checked when the policy was read
			continue
		}
		// A clock that was set back: without this the next time may be years away.
		if err != nil || last.After(now) {
			last = now
		}
		next := expression.Next(last.In(now.Location()))
		if !next.IsZero() && !next.After(now) {
			last = now
			events = append(events, Event{Name: EventSchedule, Fields: map[string]string{fieldCalendar: text}})
		}
		after[key] = last.UTC().Format(time.RFC3339)
	}
	return events, after
}

// calendars lists the calendar expressions of managed applications, sorted.
func calendars(apps []Present) []string {
	set := map[string]bool{}
	for _, p := range apps {
		if !p.Policy.managed() {
			continue
		}
		for _, r := range p.Policy.Reapply {
			if r.Calendar != "" {
				set[r.Calendar] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}
