package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/mender-app/mender-app/store/durable"
)

// holdFile is the hold, for all applications.
const holdFile = "hold.json"

// Hold blocks updates of all applications until it is released or its time is over.
// It survives a restart of the machine.
type Hold struct {
	Format int       `json:"format"`
	Reason string    `json:"reason"`
	Asked  *Asked    `json:"asked,omitempty"`
	Since  time.Time `json:"since"`
	// Seconds is how long it lasts from Since on.
	Seconds int64 `json:"seconds"`
	// BootID is the boot of the machine in which the hold was taken, and Uptime the age
	// of that boot in seconds. In the same boot these count, not the clock, which may be
	// set meanwhile.
	BootID string `json:"boot_id,omitempty"`
	Uptime int64  `json:"uptime,omitempty"`
}

// Hold reads the hold; nil without one. Its time may be over. The error is a
// *CorruptError if the file is damaged. It needs no lock.
func (s *Store) Hold() (*Hold, error) {
	path := s.meta(holdFile)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := new(Hold)
	if err := json.Unmarshal(data, h); err != nil {
		return nil, &CorruptError{path, err}
	}
	return h, nil
}

// SetHold replaces the hold.
func (s *Store) SetHold(h Hold) error {
	h.Format = Format
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(s.meta(holdFile), append(data, '\n'), 0o600)
}

// DropHold removes the hold. Without one it does nothing.
func (s *Store) DropHold() error { return durable.Remove(s.meta(holdFile)) }
