package journal

import (
	"cmp"
	"slices"
	"time"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file keeps account of a deployment for the history: its steps, what it
// changed and took, and what was said in it. It decides nothing.

// Caller says who makes the calls of a deployment.
type Caller struct {
	// Driver names the program that drives, such as "mender"; it is recorded in
	// deployments.
	Driver string
	// Asked says who asked for the deployment.
	Asked store.Asked
	// Force overrides what only a policy forbids: a person asked for it.
	Force bool
	// Reuse is what a person says about an operator's choices.
	Reuse modules.Reuse
	// Automatic: the device does this by itself.
	Automatic bool
	// Transcript keeps what is said in deployments; nil: nobody does.
	Transcript *Transcript
	// Tell is called on each event; it must not block. nil: nobody is told.
	Tell func(Notice)
	// Meter counts what the call that has the lock writes. The engine sets it.
	Meter *Meter
}

// DriverPerson is the driver of operations that a person starts with mender-app.
const DriverPerson = "mender-app"

// Mode is the caller for policies.
func (c *Caller) Mode() policy.Mode {
	switch {
	case c.Automatic:
		return policy.Automatic
	case c.Driver != DriverPerson:
		return policy.ByClient
	case c.Force:
		return policy.Force
	}
	return policy.ByHand
}

// Notice is something that happened to an application: a deployment entered a phase, or
// ended.
type Notice struct {
	App      string
	Number   int64 // of the deployment
	Artifact string
	Release  string // the new one
	Phase    string // that it entered
	Status   string // how it ended; "" if it has not
	Error    string
}

// Entered tells that a deployment has entered its phase.
func (c *Caller) Entered(app string, d *store.Deployment) {
	if c.Tell != nil {
		c.Tell(Notice{App: app, Number: d.Number, Artifact: d.ArtifactName, Release: d.To, Phase: string(d.Phase)})
	}
}

// Remember writes the record of a finished deployment into the history, and reports it.
func (c *Caller) Remember(s *store.Store, r store.Record) error {
	if err := s.AddHistory(r); err != nil {
		return err
	}
	if c.Tell != nil {
		c.Tell(Notice{App: r.Application, Number: r.Number, Artifact: r.ArtifactName, Release: r.To, Status: r.Status, Error: r.Error})
	}
	return nil
}

// Changes compares the components of two releases; "" is none.
func Changes(a *store.App, from, to string) *store.Changed {
	out := &store.Changed{}
	at := func(c store.Component) *store.Change {
		i := slices.IndexFunc(out.Components, func(o store.Change) bool { return o.URL == c.URL })
		if i < 0 {
			i, out.Components = len(out.Components), append(out.Components, store.Change{Type: c.Type, URL: c.URL})
		}
		return &out.Components[i]
	}
	if r, err := a.Release(to); to != "" && err == nil {
		for _, c := range r.Components {
			at(c).To = c.Digest
		}
	}
	if r, err := a.Release(from); from != "" && err == nil {
		out.FromArtifact = r.ArtifactName
		for _, c := range r.Components {
			at(c).From = c.Digest
		}
	}
	slices.SortStableFunc(out.Components, func(x, y store.Change) int {
		same := func(c store.Change) int {
			if c.From == c.To {
				return 1
			}
			return 0
		}
		return cmp.Compare(same(x), same(y)) // those that changed come first
	})
	out.Components = out.Components[:min(len(out.Components), store.MaxChanges)]
	return out
}

// ended gives the steps of a deployment their ends and outcomes.
func ended(steps []store.Step, status string, end time.Time) []store.Step {
	steps = slices.Clone(steps)
	for i := range steps {
		s := &steps[i]
		next := None
		s.End = end
		if i+1 < len(steps) {
			next, s.End = steps[i+1].Phase, steps[i+1].At
		}
		s.Outcome = outcome(s, next, status)
	}
	return steps
}

// outcome is how a step ended before the phase next; None: it was the last one.
func outcome(s *store.Step, next Phase, status string) string {
	p := s.Phase
	back := next == RollingBack || next == RolledBack || next == Failed
	switch {
	case p == Failed, p == Cleaning && next == None, p == next && s.Error == "":
		return store.OutcomeDone
	case next == None && status != store.StatusFailed,
		next != None && !back,
		p == RollingBack && next == RolledBack:
		return store.OutcomeDone
	case s.Error != "":
		return store.OutcomeFailed
	case p == Loaded, p == Installed, p == Committed:
		return store.OutcomeUndone
	}
	return store.OutcomeInterrupted
}

// Measured is where the journal of a deployment counts.
func Measured(d *store.Deployment) *store.Measured {
	if d.Measured == nil {
		d.Measured = &store.Measured{}
	}
	return d.Measured
}

// Downtimes adds to a journal what a sub-module measured of the services that a call
// restarted. A service may go down in one call, and be ready again in a later one.
func Downtimes(d *store.Deployment) func([]submodules.Downtime) {
	return func(list []submodules.Downtime) {
		m := Measured(d)
		for _, one := range list {
			i := slices.IndexFunc(m.Downtimes, func(t store.Downtime) bool { return t.Service == one.Service })
			switch {
			case i >= 0:
			case one.Down.IsZero() || len(m.Downtimes) == store.MaxDowntimes:
				continue
			default:
				i, m.Downtimes = len(m.Downtimes), append(m.Downtimes, store.Downtime{Service: one.Service})
			}
			t := &m.Downtimes[i]
			if t.Since.IsZero() {
				t.Since = one.Down
			}
			if !one.Up.IsZero() {
				*t = upAgain(*t, one.Up)
			}
		}
	}
}

// upAgain is a downtime that ended. A clock that was set back does not count.
func upAgain(t store.Downtime, at time.Time) store.Downtime {
	if !t.Since.IsZero() {
		t.Seconds += max(0, at.Sub(t.Since).Seconds())
		t.Since = time.Time{}
	}
	return t
}

// maxSteps limits the journal's size: repeated calls add steps.
const maxSteps = 64

func addStep(d *store.Deployment, s store.Step) {
	d.Steps = append(d.Steps, s)
	if len(d.Steps) > maxSteps {
		d.Steps = slices.Delete(d.Steps, maxSteps/2, maxSteps/2+1)
	}
}

// Enter notes in a journal that a phase is entered.
func Enter(d *store.Deployment, p Phase, now time.Time) {
	if d.Phase != p || len(d.Steps) == 0 {
		addStep(d, store.Step{Phase: p, At: now})
	}
	d.Phase, d.Updated = p, now
	if p == Installed || p == Loaded {
		d.Error = ""
	}
}

// HandleData writes to a journal what is now done with the application's data, "" for
// nothing. It reports whether that is a change.
func HandleData(d *store.Deployment, what string, now time.Time) bool {
	last := len(d.Steps) - 1
	if last < 0 || d.Steps[last].Data == what {
		return false
	}
	addStep(d, store.Step{Phase: d.Phase, At: now, Data: what})
	d.Updated = now
	return true
}

// StatusOf is how a deployment ended. failed: its release failed to start, and stays.
func StatusOf(d *store.Deployment, failed bool) string {
	switch p := d.Phase; {
	case p == Cleaning && failed, p == RollingBack:
		return store.StatusFailed
	case p == Cleaning:
		return d.CommittedStatus()
	case p == RolledBack && d.Refused:
		return store.StatusRefused
	}
	return store.StatusRolledBack
}

// RecordOf returns the history's record of a finished deployment.
func RecordOf(app string, d *store.Deployment, status string, end time.Time) store.Record {
	r := store.Record{
		ID: d.ID, Number: d.Number, Application: app, ArtifactName: d.ArtifactName, From: d.From, To: d.To, Status: status,
		Driver: d.Driver, Asked: d.Asked, Started: d.Started, Ended: end, Error: d.Error, Changed: d.Changed,
		Members: d.Members, Leader: d.Leader,
	}
	if d.Measured != nil {
		m := *d.Measured
		m.Downtimes = slices.Clone(m.Downtimes)
		for i, t := range m.Downtimes {
			m.Downtimes[i].Seconds = upAgain(t, end).Seconds
		}
		r.Measured = &m
	}
	r.Steps = ended(d.Steps, status, end)
	for _, s := range r.Steps {
		if s.Data == "" {
			continue
		}
		if r.Measured == nil {
			r.Measured = &store.Measured{}
		}
		r.Measured.DataSeconds += max(0, s.End.Sub(s.At).Seconds())
	}
	return r
}

// Meter counts what is written to disks.
type Meter struct {
	dirs   []string
	before map[uint64]int64 // bytes by device, when they were counted last
}

// NewMeter begins to count for the disks of directories; "" counts nothing.
func NewMeter(dirs ...string) *Meter {
	m := &Meter{dirs: dirs}
	m.before = m.read()
	return m
}

func (m *Meter) read() map[uint64]int64 {
	bytes := map[uint64]int64{}
	for _, dir := range m.dirs {
		if dir == "" {
			continue
		}
		if device, n, ok := diskspace.Written(diskspace.Existing(dir)); ok {
			bytes[device] = n
		}
	}
	return bytes
}

// Count adds to a journal what was written since the last call. A nil meter counts
// nothing.
func (m *Meter) Count(d *store.Deployment) {
	if m == nil {
		return
	}
	now := m.read()
	for device, n := range now {
		if before, ok := m.before[device]; ok && n > before {
			Measured(d).Written += n - before
		}
	}
	m.before = now
}
