package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// maxHistory is how many deployments of an application the history keeps.
const maxHistory = 200

// MaxChanges is the maximum number of components in a record.
const MaxChanges = 50

// MaxDowntimes is the maximum number of services whose downtimes a record has.
const MaxDowntimes = 100

// ErrNoRecord: the history has no deployment of this number.
var ErrNoRecord = errors.New("no such deployment")

// Record is a deployment that has ended.
type Record struct {
	ID string `json:"id"`
	// Number counts the application's deployments from 1. No number is used twice.
	Number       int64     `json:"number"`
	Application  string    `json:"application"`
	ArtifactName string    `json:"artifact_name,omitempty"`
	From         string    `json:"from,omitempty"`
	To           string    `json:"to,omitempty"`
	Status       string    `json:"status"`
	Driver       string    `json:"driver,omitempty"`
	Asked        *Asked    `json:"asked,omitempty"`
	Started      time.Time `json:"started"`
	Ended        time.Time `json:"ended"`
	Error        string    `json:"error,omitempty"`
	Steps        []Step    `json:"steps,omitempty"`
	Measured     *Measured `json:"measured,omitempty"`
	Changed      *Changed  `json:"changed,omitempty"`
	Members      []Member  `json:"members,omitempty"` // see Deployment
	Leader       *Leader   `json:"leader,omitempty"`
}

// Totals count the ended deployments of an application, including those no longer in
// the history.
type Totals struct {
	Statuses map[string]int64 `json:"statuses"` // by how they ended
	// Success is when the last successful one (installed or restored) ended.
	Success time.Time `json:"success,omitzero"`
}

// line is a line of the history. The last line has the totals, so reading them needs
// no other line. They are written with the record in one step.
type line struct {
	Record
	Totals *Totals `json:"totals,omitempty"`
}

// add counts a record.
func (t *Totals) add(r *Record) {
	t.Statuses[r.Status]++
	if r.Status == StatusInstalled || r.Status == StatusRestored {
		t.Success = r.Ended
	}
}

// totalsOf counts records.
func totalsOf(records []Record) *Totals {
	t := &Totals{Statuses: map[string]int64{}}
	for i := range records {
		t.add(&records[i])
	}
	return t
}

// Changed lists what a deployment changed, or would have changed.
type Changed struct {
	FromArtifact string `json:"from_artifact_name,omitempty"` // of the release From
	// Components are those that From or To has, at most MaxChanges.
	Components []Change `json:"components,omitempty"`
}

// Asked says who asked for a deployment.
type Asked struct {
	How  string `json:"how"`            // one of the constants below
	User string `json:"user,omitempty"` // of an AskedByHand, if it is known
	// Event is what triggered an AskedByUnit; "" if there was no event.
	Event string `json:"event,omitempty"`
}

// OrNil is nil for the zero value.
func (a Asked) OrNil() *Asked {
	if a == (Asked{}) {
		return nil
	}
	return &a
}

// How a deployment was asked for.
const (
	AskedByClient = "client"    // the Mender client, on behalf of a server
	AskedByHand   = "by hand"   // a person or a script, on the device
	AskedByUnit   = "automatic" // a unit of the service manager, such as a timer
)

// Measured is the cost of a deployment.
type Measured struct {
	Received int64 `json:"received,omitempty"` // bytes of the payload
	// Written is how many bytes all programs wrote to the disks of the store and the
	// engine while calls worked on the deployment; 0 if unknown.
	Written int64 `json:"written,omitempty"`
	// Downtimes are the downtimes of the restarted services, if the sub-module measures
	// them; at most MaxDowntimes.
	Downtimes []Downtime `json:"downtimes,omitempty"`
	// DataSeconds is how long data was copied, migrated and brought back; 0 if none was.
	DataSeconds float64 `json:"data_seconds,omitempty"`
}

// Downtime is how long no instance of a service was ready.
type Downtime struct {
	Service string  `json:"service"`
	Seconds float64 `json:"seconds"` // in all
	// Since is when the service went down, if it was still not ready when the deployment
	// ended.
	Since time.Time `json:"since,omitzero"`
}

// Change is a component before and after a deployment.
type Change struct {
	Type string        `json:"type"`
	URL  string        `json:"url"`
	From digest.Digest `json:"from,omitempty"` // "" if the old release does not have it
	To   digest.Digest `json:"to,omitempty"`   // "" if the new release does not have it
}

// How a deployment ended.
const (
	StatusInstalled  = "installed"   // committed
	StatusRestored   = "restored"    // committed: a kept release that an operator went back to
	StatusRolledBack = "rolled-back" // undone; the previous release runs
	StatusRefused    = "refused"     // refused before anything was changed
	StatusPurged     = "purged"      // an operator removed the application
	StatusReconciled = "reconciled"  // the device started it again, because part of it did not run
	StatusFailed     = "failed"      // the rollback failed, and the previous release may not run; or the new release failed and stays
)

// Statuses lists all statuses.
func Statuses() []string {
	return []string{StatusInstalled, StatusRestored, StatusRolledBack, StatusRefused, StatusFailed, StatusPurged, StatusReconciled}
}

// CommittedStatus is the status of a deployment that was committed.
func (d *Deployment) CommittedStatus() string {
	if d.Reused {
		return StatusRestored
	}
	return StatusInstalled
}

// AddHistory appends a record to an application's history. A record with the ID
// and the start of the last one replaces it, because the step may run twice. A record
// whose number is not greater than the last one gets the next number.
func (s *Store) AddHistory(r Record) error {
	records, totals, err := s.history(r.Application)
	if err != nil {
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return err
		}
		if _, err := keepAside(corrupt.Path); err != nil {
			return err
		}
		records, totals = nil, totalsOf(nil)
	}
	if n := len(records); n > 0 && records[n-1].ID == r.ID && records[n-1].Started.Equal(r.Started) {
		r.Number = records[n-1].Number
		totals.Statuses[records[n-1].Status]--
		records = records[:n-1]
	}
	totals.add(&r)
	r.Number = max(r.Number, after(records))
	records = append(records, r)
	records = records[max(0, len(records)-maxHistory):]
	var out bytes.Buffer
	for i, r := range records {
		l := line{Record: r}
		if i == len(records)-1 {
			l.Totals = totals
		}
		text, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		out.Write(text)
		out.WriteByte('\n')
	}
	if err := durable.MkdirAll(s.meta(historyDir), 0o700); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if err := durable.WriteFile(s.HistoryFile(r.Application), out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return s.dropLogs(r.Application, r.Number)
}

// after returns the next number after those of the records.
func after(records []Record) int64 {
	if len(records) == 0 {
		return 1
	}
	return records[len(records)-1].Number + 1
}

// NextDeployment is the number of the application's next deployment.
func (s *Store) NextDeployment(app string) int64 {
	last, found, err := s.Last(app)
	if err != nil || !found {
		return 1 // AddHistory corrects it
	}
	return last.Number + 1
}

// HistoryFile is the file of an application's history. It may not exist.
func (s *Store) HistoryFile(app string) string { return s.meta(historyDir + "/" + app + ".jsonl") }

// History returns the ended deployments of an application, the oldest first, also
// after the application was removed. It needs no lock.
func (s *Store) History(app string) ([]Record, error) {
	records, _, err := s.history(app)
	return records, err
}

// history also returns the totals. If the last line does not have them, because an
// earlier version wrote it, they are those of the records.
func (s *Store) history(app string) (records []Record, totals *Totals, err error) {
	if err := names.Check(app); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrName, err)
	}
	data, err := readFile(s.HistoryFile(app))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, totalsOf(nil), nil
	}
	if err != nil {
		return nil, nil, err
	}
	for text := range bytes.Lines(data) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, nil, &CorruptError{s.HistoryFile(app), err}
		}
		if l.Number == 0 { // an earlier version wrote it
			l.Number = after(records)
		}
		records, totals = append(records, l.Record), l.Totals
	}
	if totals == nil || totals.Statuses == nil {
		totals = totalsOf(records)
	}
	return records, totals, nil
}

// Query chooses records of a history. The zero value chooses all.
type Query struct {
	Statuses     []string  // any of these
	Since, Until time.Time // they ended in [Since, Until)
	Before       int64     // their numbers are smaller: the cursor of an earlier page
	Limit        int       // at most so many
}

// Deployments returns the chosen deployments, the newest first. more is the cursor of
// the next page, 0 if there is none. It needs no lock.
func (s *Store) Deployments(app string, q Query) (page []Record, more int64, err error) {
	records, err := s.History(app)
	if err != nil {
		return nil, 0, err
	}
	page = []Record{}
	for _, r := range slices.Backward(records) {
		switch {
		case q.Before > 0 && r.Number >= q.Before,
			len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.Status),
			!q.Since.IsZero() && r.Ended.Before(q.Since),
			!q.Until.IsZero() && !r.Ended.Before(q.Until):
			continue
		}
		if q.Limit > 0 && len(page) == q.Limit {
			return page, page[len(page)-1].Number, nil
		}
		page = append(page, r)
	}
	return page, 0, nil
}

// Deployment returns one record. The error may be an ErrNoRecord. It needs no lock.
func (s *Store) Deployment(app string, number int64) (Record, error) {
	records, err := s.History(app)
	if err != nil {
		return Record{}, err
	}
	i := slices.IndexFunc(records, func(r Record) bool { return r.Number == number })
	if i < 0 {
		return Record{}, fmt.Errorf("%w: number %d of %s", ErrNoRecord, number, app)
	}
	return records[i], nil
}

// Last returns the newest record of an application's history, and whether there is
// one. It reads no other record, because a status of many applications calls it for
// each. It needs no lock.
func (s *Store) Last(app string) (r Record, found bool, err error) {
	var l line
	found, err = s.readLast(app, func(text []byte) error { return json.Unmarshal(text, &l) })
	if err == nil && found && l.Number == 0 { // an earlier version wrote it
		records, err := s.History(app)
		if err != nil {
			return r, false, err
		}
		return records[len(records)-1], true, nil
	}
	return l.Record, found, err
}

// Outcome is Last without the steps, which make up most of a record.
func (s *Store) Outcome(app string) (r Record, found bool, err error) {
	var l brief
	found, err = s.readLast(app, l.read)
	if err == nil && found && l.Number == 0 { // an earlier version wrote it
		r, found, err = s.Last(app)
		r.Steps = nil
		return r, found, err
	}
	return l.Record, found, err
}

// brief is a line without the steps.
type brief struct {
	line
	Steps ignored `json:"steps"`
}

func (l *brief) read(text []byte) error { return json.Unmarshal(text, l) }

// ignored is a part of a document to skip.
type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

// readLast calls read with the last line of a history, if there is one.
func (s *Store) readLast(app string, read func(line []byte) error) (found bool, err error) {
	if err := names.Check(app); err != nil {
		return false, fmt.Errorf("%w: %w", ErrName, err)
	}
	text, err := lastLine(s.HistoryFile(app))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := read(text); err != nil {
		return false, &CorruptError{s.HistoryFile(app), err}
	}
	return true, nil
}

// Totals returns the newest record of an application's history without its steps,
// whether there is one, and the totals. Like Last it reads no other record, unless an earlier version wrote
// the history. It needs no lock.
func (s *Store) Totals(app string) (r Record, t Totals, found bool, err error) {
	var l brief
	if found, err = s.readLast(app, l.read); err != nil || !found {
		return r, t, false, err
	}
	if l.Number > 0 && l.Totals != nil && l.Totals.Statuses != nil {
		return l.Record, *l.Totals, true, nil
	}
	records, totals, err := s.history(app)
	if err != nil {
		return r, t, false, err
	}
	r = records[len(records)-1]
	r.Steps = nil
	return r, *totals, true, nil
}

// lastLine reads the last line of a file from its end.
func lastLine(path string) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.close()
	for size := int64(2 << 10); ; size *= 4 {
		begin := max(0, f.size-size)
		data, err := f.read(begin)
		if err != nil {
			return nil, err
		}
		data = bytes.TrimRight(data, "\n")
		if i := bytes.LastIndexByte(data, '\n'); i >= 0 || begin == 0 {
			return data[i+1:], nil
		}
		if size > maxFile {
			return nil, &CorruptError{path, errors.New("a line is too long")}
		}
	}
}
