package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store/durable"
)

// Suspect names components that an engine loaded in one boot of the machine and that
// were not made durable in that boot. After a restart the engine may list them
// although their files are empty; it may even have a layer without an image. The
// entry stays when the components' release is discarded.
type Suspect struct {
	// BootID is the boot in which they were loaded.
	BootID string `json:"boot_id"`
	// Orchestrator is the sub-module that loaded them.
	Orchestrator string `json:"orchestrator"`
	// Digests identify the components; Layers are their diffIDs, if known.
	Digests []digest.Digest `json:"digests,omitempty"`
	Layers  []digest.Digest `json:"layers,omitempty"`

	extra extra
}

type plainSuspect Suspect

// UnmarshalJSON also keeps unknown fields, for MarshalJSON.
func (s *Suspect) UnmarshalJSON(data []byte) (err error) {
	s.extra, err = decode(data, (*plainSuspect)(s))
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (s Suspect) MarshalJSON() ([]byte, error) { return encode(plainSuspect(s), s.extra) }

// suspects is suspects.json.
type suspects struct {
	Format   int       `json:"format"`
	Suspects []Suspect `json:"suspects"`

	extra extra
}

type plainSuspects suspects

// UnmarshalJSON also keeps unknown fields, for MarshalJSON.
func (s *suspects) UnmarshalJSON(data []byte) (err error) {
	s.extra, err = decode(data, (*plainSuspects)(s))
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (s suspects) MarshalJSON() ([]byte, error) { return encode(plainSuspects(s), s.extra) }

const suspectsFile = "suspects.json"

// maxSuspects is the greatest number of interrupted downloads in the list; the
// oldest are dropped first.
const maxSuspects = 100

// Suspects returns the list of suspects, the oldest first. A file that cannot be
// read is a *CorruptError: then every component is suspect. It needs no lock.
func (s *Store) Suspects() ([]Suspect, error) {
	doc, err := s.readSuspects()
	return doc.Suspects, err
}

func (s *Store) readSuspects() (doc suspects, err error) {
	path := s.meta(suspectsFile)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return doc, nil
	}
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return suspects{}, &CorruptError{path, err}
	}
	if doc.Format > Format {
		return suspects{}, fmt.Errorf("%s: %w", path, ErrNewer)
	}
	return doc, nil
}

// PutSuspects replaces the list of suspects; an empty list removes the file. A
// damaged file is renamed, not overwritten.
func (s *Store) PutSuspects(list []Suspect) error {
	path := s.meta(suspectsFile)
	list = slices.DeleteFunc(slices.Clone(list), func(x Suspect) bool { return len(x.Digests)+len(x.Layers) == 0 })
	var corrupt *CorruptError
	doc, err := s.readSuspects()
	if errors.As(err, &corrupt) {
		if _, err := keepAside(path); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		if err := durable.Remove(path); err != nil {
			return fmt.Errorf("suspects: %w", err)
		}
		return nil
	}
	doc.Format, doc.Suspects = Format, list[max(0, len(list)-maxSuspects):]
	data, err := marshal(doc)
	if err != nil {
		return fmt.Errorf("suspects: %w", err)
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("suspects: %w", err)
	}
	return nil
}
