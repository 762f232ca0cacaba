package submodules

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"
)

// Downtime says when no instance of a service was ready, in ROLLOUT or ROLLBACK.
type Downtime struct {
	Service string `json:"service"`
	// Down is when its last instance ended; zero if none ran when the call began.
	Down time.Time `json:"down,omitzero"`
	// Up is when an instance was ready again: when it started or, if it has a health
	// check, when that first succeeded. Zero if none is.
	Up time.Time `json:"up,omitzero"`
}

// Timekeeper is a Session with the feature downtime/1.
type Timekeeper interface {
	// Downtimes returns the services that the preceding Rollout or Rollback restarted.
	// failed: that call returned an error.
	Downtimes(ctx context.Context, failed bool) []Downtime
}

// Span is a time in which an instance of a service was ready. From is zero if it was
// ready before anybody watched, To if it still is.
type Span struct{ From, To time.Time }

// Gaps returns the times in which no instance of a service was ready, by the spans of its
// instances: those between two spans, and before the first if that began after begun. With
// failed also the time since the last span, if no instance is ready. The result is sorted
// by service and time.
func Gaps(services map[string][]Span, begun time.Time, failed bool) (list []Downtime) {
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if spans := services[name]; len(spans) > 0 {
			list = append(list, gaps(name, spans, begun, failed)...)
		}
	}
	return list
}

func gaps(service string, spans []Span, begun time.Time, failed bool) (list []Downtime) {
	slices.SortFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	if spans[0].From.After(begun) {
		list = append(list, Downtime{Service: service, Up: spans[0].From.UTC()})
	}
	until := spans[0].To
	for _, s := range spans[1:] {
		if until.IsZero() {
			return list
		}
		if s.From.After(until) {
			list = append(list, Downtime{Service: service, Down: until.UTC(), Up: s.From.UTC()})
		}
		if s.To.IsZero() || s.To.After(until) {
			until = s.To
		}
	}
	if !until.IsZero() && failed {
		list = append(list, Downtime{Service: service, Down: until.UTC()})
	}
	return list
}

// downtimesWithin bounds the time for this, because an ended verb must return within
// seconds.
const downtimesWithin = 2 * time.Second

// timed runs a verb, and prints one JSON object for each service that it restarted.
func timed(a action) action {
	run := a.run
	a.run = func(ctx context.Context, s Session, r AnyRequest, to io.Writer) error {
		err := run(ctx, s, r, to)
		k, ok := s.(Timekeeper)
		if !ok {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downtimesWithin)
		defer cancel()
		out := json.NewEncoder(to)
		for _, d := range k.Downtimes(ctx, err != nil) {
			_ = out.Encode(d) // the outcome of the rollout counts
		}
		return err
	}
	return a
}
