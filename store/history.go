package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// maxHistory is how many deployments of an application the history has.
const maxHistory = 200

// Record is a deployment that has ended.
type Record struct {
	ID           string    `json:"id"`
	Application  string    `json:"application"`
	ArtifactName string    `json:"artifact_name,omitempty"`
	From         string    `json:"from,omitempty"`
	To           string    `json:"to,omitempty"`
	Status       string    `json:"status"`
	Driver       string    `json:"driver,omitempty"`
	Started      time.Time `json:"started"`
	Ended        time.Time `json:"ended"`
	Error        string    `json:"error,omitempty"`
	Steps        []Step    `json:"steps,omitempty"`
}

// How a deployment ended.
const (
	StatusInstalled  = "installed"   // committed
	StatusRestored   = "restored"    // committed: a kept release that an operator went back to
	StatusRolledBack = "rolled-back" // undone; the previous release runs
	StatusRefused    = "refused"     // refused before anything was changed
	StatusPurged     = "purged"      // an operator removed the application
	StatusFailed     = "failed"      // the rollback failed; the previous release may not run
)

// CommittedStatus is the status of a deployment that was committed.
func (d *Deployment) CommittedStatus() string {
	if d.Reused {
		return StatusRestored
	}
	return StatusInstalled
}

// AddHistory appends a record to an application's history. A record with the ID
// and the start of the last one replaces it, because the step may run twice.
func (s *Store) AddHistory(r Record) error {
	records, err := s.History(r.Application)
	if err != nil {
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return err
		}
		if _, err := keepAside(corrupt.Path); err != nil {
			return err
		}
		records = nil
	}
	if n := len(records); n > 0 && records[n-1].ID == r.ID && records[n-1].Started.Equal(r.Started) {
		records = records[:n-1]
	}
	records = append(records, r)
	records = records[max(0, len(records)-maxHistory):]
	var out bytes.Buffer
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	if err := durable.MkdirAll(s.meta(historyDir), 0o700); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if err := durable.WriteFile(s.historyFile(r.Application), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

func (s *Store) historyFile(app string) string { return s.meta(historyDir + "/" + app + ".jsonl") }

// History returns the ended deployments of an application, the oldest first, also
// after the application was removed. It needs no lock.
func (s *Store) History(app string) ([]Record, error) {
	if err := names.Check(app); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrName, err)
	}
	data, err := readFile(s.historyFile(app))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []Record
	for line := range bytes.Lines(data) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, &CorruptError{s.historyFile(app), err}
		}
		records = append(records, r)
	}
	return records, nil
}

// Last returns the newest record of an application's history, and whether there is
// one. It reads no other record: a status of many applications asks for each. It needs
// no lock.
func (s *Store) Last(app string) (r Record, found bool, err error) {
	if err := names.Check(app); err != nil {
		return r, false, fmt.Errorf("%w: %w", ErrName, err)
	}
	data, err := readFile(s.historyFile(app))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	data = bytes.TrimRight(data, "\n")
	if len(data) == 0 {
		return r, false, nil
	}
	if err := json.Unmarshal(data[bytes.LastIndexByte(data, '\n')+1:], &r); err != nil {
		return r, false, &CorruptError{s.historyFile(app), err}
	}
	return r, true, nil
}
