package policy

import (
	"maps"
	"slices"
	"time"
)

// Event makes the device check whether there is work.
type Event struct {
	Name   string            `json:"name"`
	Fields map[string]string `json:"fields,omitempty"`
}

// The events with a meaning to this program. EventBundles says that the staged artifacts
// have changed; FieldWithdrawn has the name of an artifact that a person has withdrawn.
// EventSchedule has the calendar expression of a policy. The others are found by comparing
// the device with its earlier state.
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

// Reapplies reports whether the policy asks to roll the application out again after
// events with the given name.
func (p *Policy) Reapplies(event string) bool {
	return p.managed() && slices.ContainsFunc(p.Reapply, func(r Reapply) bool { return r.On == event })
}

// reapply returns the event after which the policy asks to roll the application out
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

// Fact is a property of the device whose change is an event.
type Fact struct {
	Event  string // its name
	Of     string // the orchestrator or application it is about; "" for the device
	field  string // the event's field for Of
	Value  string // "" if currently unknown
	hidden bool   // the value means nothing to people
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

// key identifies the fact in the record of earlier values.
func (f Fact) key() string { return f.Event + " " + f.Of }

// Changed compares the facts of a situation with their earlier values, and the calendar
// expressions of its policies with the time of the last check. It returns the resulting
// events and the new values. A fact seen for the first time is not an event.
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
		// If the clock was set back, the next time might otherwise be years away.
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
