package view

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/mender-app/mender-app/store"
)

// Event is something that happened to an application: a deployment entered a phase,
// or ended.
type Event struct {
	At           time.Time `json:"at"`
	Application  string    `json:"application"`
	Event        string    `json:"event"` // one of the constants below
	Deployment   string    `json:"deployment,omitempty"`
	ArtifactName string    `json:"artifact_name,omitempty"`
	From         string    `json:"from,omitempty"`
	To           string    `json:"to,omitempty"`
	Driver       string    `json:"driver,omitempty"`
	Phase        string    `json:"phase,omitempty"`  // of Entered
	Status       string    `json:"status,omitempty"` // of Ended, as the history has it
	Error        string    `json:"error,omitempty"`
}

// What an Event is.
const (
	Entered = "phase"
	Ended   = "ended"
)

// Events returns what the store remembers of an application, in the order in which it
// happened: its history, and the open deployment. An application that is damaged or
// gone has its history.
func Events(s *store.Store, name string) ([]Event, error) {
	records, err := s.History(name)
	var corrupt *store.CorruptError
	if err != nil && !errors.As(err, &corrupt) {
		return nil, err
	}
	var list []Event
	for _, r := range records {
		base := Event{Application: name, Deployment: r.ID, ArtifactName: r.ArtifactName, From: r.From, To: r.To, Driver: r.Driver}
		list = append(list, entered(base, r.Steps)...)
		base.At, base.Event, base.Status, base.Error = r.Ended, Ended, r.Status, r.Error
		list = append(list, base)
	}
	if s.Legacy(name) {
		return list, nil
	}
	a, err := s.App(name)
	if errors.Is(err, store.ErrNoApp) || errors.As(err, &corrupt) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	d := a.Deployment
	if d == nil {
		return list, nil
	}
	if n := len(records); n > 0 && records[n-1].ID == d.ID && records[n-1].Started.Equal(d.Started) {
		return list, nil // it is being moved to the history
	}
	open := entered(Event{Application: name, Deployment: d.ID, ArtifactName: d.ArtifactName, From: d.From, To: d.To, Driver: d.Driver}, d.Steps)
	return append(list, open...), nil
}

// entered makes an event of each step.
func entered(base Event, steps []store.Step) (list []Event) {
	for _, step := range steps {
		base.At, base.Event, base.Phase = step.At, Entered, step.Phase
		list = append(list, base)
	}
	return list
}

// AllEvents returns the events of all applications that the store has or remembers,
// in the order of time.
func AllEvents(s *store.Store) ([]Event, error) {
	names, err := s.Remembered()
	if err != nil {
		return nil, err
	}
	var list []Event
	for _, name := range names {
		more, err := Events(s, name)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	slices.SortStableFunc(list, func(a, b Event) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Application, b.Application)) })
	return list, nil
}

// Seen tells which events are new since it was asked the last time.
type Seen map[Event]bool

// New returns those of the list that the last one did not have.
func (seen *Seen) New(list []Event) (fresh []Event) {
	now := make(Seen, len(list))
	for _, e := range list {
		key := e
		key.At = e.At.Round(0).UTC()
		if now[key] = true; !(*seen)[key] {
			fresh = append(fresh, e)
		}
	}
	*seen = now
	return fresh
}
