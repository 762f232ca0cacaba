package submodules

import (
	"context"
	"encoding/json"
	"io"
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
