package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// Bounds of the logs in the history.
const (
	maxLogs     = 20       // deployments of an application that have one
	maxLog      = 64 << 10 // bytes of one log; the final error may exceed it
	maxLogEntry = 4 << 10  // bytes of a text
)

// LogEntry is a line that the update module or a sub-module wrote in a deployment.
type LogEntry struct {
	At    time.Time `json:"at"`
	Step  string    `json:"step"`  // the phase in which it was written
	Level string    `json:"level"` // debug, info, warn, error
	Text  string    `json:"text"`
}

func (s *Store) logsDir(app string) string { return s.meta(historyDir + "/" + app + ".logs") }

func (s *Store) logFile(app string, number int64) string {
	return filepath.Join(s.logsDir(app), strconv.FormatInt(number, 10)+".jsonl")
}

// AddLog appends a line to the log of a deployment. It is not synced: the barriers of
// the deployment make it durable, and a power cut may take the newest lines.
func (s *Store) AddLog(app string, number int64, l LogEntry) error {
	if err := names.Check(app); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	if len(l.Text) > maxLogEntry {
		l.Text = strings.ToValidUTF8(l.Text[:maxLogEntry], "") + "…"
	}
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	path := s.logFile(app, number)
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog && l.Level != LevelError {
		return nil
	}
	return durable.Append(path, append(line, '\n'), 2*maxLog)
}

// LevelError is the level of errors.
const LevelError = "error"

// DeploymentLog passes each line of a deployment's log to yield, the oldest first.
// number may be that of the open deployment. The error may be an ErrNoRecord. It needs
// no lock.
func (s *Store) DeploymentLog(app string, number int64, yield func(LogEntry) error) error {
	if err := names.Check(app); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	data, err := readFile(s.logFile(app, number))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no log of number %d of %s", ErrNoRecord, number, app)
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		var l LogEntry
		if json.Unmarshal(line, &l) != nil {
			continue // a power cut left half of it
		}
		if err := yield(l); err != nil {
			return err
		}
	}
	return nil
}

// dropLogs removes the logs of deployments that are too old.
func (s *Store) dropLogs(app string, newest int64) error {
	entries, err := os.ReadDir(s.logsDir(app))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		number, err := strconv.ParseInt(strings.TrimSuffix(e.Name(), ".jsonl"), 10, 64)
		if err == nil && number > newest-maxLogs {
			continue
		}
		if err := durable.Remove(filepath.Join(s.logsDir(app), e.Name())); err != nil {
			return err
		}
	}
	return nil
}
