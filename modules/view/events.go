package view

import (
	"errors"
	"slices"
	"sort"
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
	Data         string    `json:"data,omitempty"`   // what is done with the data from then on in the phase: copy, migrate, restore
	Status       string    `json:"status,omitempty"` // of Ended, as the history has it
	Error        string    `json:"error,omitempty"`
}

// What an Event is.
const (
	Entered = "phase"
	Ended   = "ended"
)

// Events returns the recorded events of an application in order: its history, then
// the open deployment. A damaged or removed application still has its history.
func Events(s *store.Store, name string) ([]Event, error) {
	records, err := s.History(name)
	var corrupt *store.CorruptError
	if err != nil && !errors.As(err, &corrupt) {
		return nil, err
	}
	return events(s, name, records)
}

// events makes events from records and the open deployment.
func events(s *store.Store, name string, records []store.Record) (list []Event, err error) {
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
	var corrupt *store.CorruptError
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

// entered makes an event for each step.
func entered(base Event, steps []store.Step) (list []Event) {
	for _, step := range steps {
		base.At, base.Event, base.Phase, base.Data = step.At, Entered, string(step.Phase), step.Data
		list = append(list, base)
	}
	return list
}

// EventsSince returns the events of all applications after a time, in order. It reads
// no older history.
func EventsSince(s *store.Store, at time.Time) ([]Event, error) {
	names, err := s.Remembered()
	if err != nil {
		return nil, err
	}
	var list []Event
	for _, name := range names {
		newest, err := newest(s, name)
		if err != nil {
			return nil, err
		}
		if !newest.At.After(at) {
			continue
		}
		events, err := Events(s, name)
		if err != nil {
			return nil, err
		}
		list = append(list, slices.DeleteFunc(events, func(e Event) bool { return !e.At.After(at) })...)
	}
	sortEvents(list)
	return list, nil
}

func sortEvents(list []Event) {
	sort.SliceStable(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return a.At.Before(b.At) || a.At.Equal(b.At) && a.Application < b.Application
	})
}

// newest returns the newest event of an application; the zero Event if there is none.
func newest(s *store.Store, name string) (Event, error) {
	last, found, err := s.Last(name)
	var corrupt *store.CorruptError
	if err != nil && !errors.As(err, &corrupt) {
		return Event{}, err
	}
	var records []store.Record
	if found {
		records = append(records, last)
	}
	list, err := events(s, name, records)
	if err != nil || len(list) == 0 {
		return Event{}, err
	}
	return list[len(list)-1], nil
}

// Follower reports new events. It remembers one event of each application, and reads
// an application again only when its files have changed.
type Follower struct {
	Store *store.Store

	marks map[string]mark
}

// mark is how far a Follower has read the events of an application.
type mark struct {
	stamp string
	last  Event
}

// Pause is the time between two looks at the store.
const Pause = 500 * time.Millisecond

// Skip skips all events until now.
func (f *Follower) Skip() error {
	_, err := f.read(func(name string, _ mark) ([]Event, Event, error) {
		last, err := newest(f.Store, name)
		return nil, last, err
	})
	return err
}

// Next returns the events since its last call, of all applications that the store has
// or remembers, ordered by time. The first call returns all.
func (f *Follower) Next() ([]Event, error) {
	return f.read(func(name string, m mark) ([]Event, Event, error) {
		list, err := Events(f.Store, name)
		if err != nil || len(list) == 0 {
			return nil, m.last, err
		}
		last := list[len(list)-1]
		i := slices.IndexFunc(list, func(e Event) bool { return e.key() == m.last.key() })
		if i < 0 { // the history no longer has it
			for i+1 < len(list) && !list[i+1].At.After(m.last.At) {
				i++
			}
		}
		return list[i+1:], last, nil
	})
}

// read calls changed for each application whose files have changed. It returns new
// events and the newest one.
func (f *Follower) read(changed func(name string, m mark) ([]Event, Event, error)) ([]Event, error) {
	names, err := f.Store.Remembered()
	if err != nil {
		return nil, err
	}
	var list []Event
	marks := make(map[string]mark, len(names))
	for _, name := range names {
		m := f.marks[name]
		stamp := f.Store.Stamp(name)
		if stamp != m.stamp {
			fresh, last, err := changed(name, m)
			if err != nil {
				return nil, err
			}
			list = append(list, fresh...)
			m = mark{stamp, last}
		}
		marks[name] = m
	}
	f.marks = marks
	sortEvents(list)
	return list, nil
}

// key returns the event in a comparable form.
func (e Event) key() Event {
	e.At = e.At.Round(0).UTC()
	return e
}
