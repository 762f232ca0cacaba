package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/mender-app/mender-app/store/durable"
)

// Trust is what the device has learnt from signed texts. It only grows: a text that is older
// than what is known changes nothing.
type Trust struct {
	Format int `json:"format"`
	// Times are the newest times at which statements were issued, by application; those of
	// keys that may sign for all applications are at "".
	Times map[string]time.Time `json:"times,omitempty"`
	// Revocations is the newest signed list of revocations, whose signatures were verified
	// when it arrived (package statement); nil for none.
	Revocations json.RawMessage `json:"revocations,omitempty"`

	extra extra
}

type plainTrust Trust

// UnmarshalJSON also keeps unknown fields, for MarshalJSON.
func (t *Trust) UnmarshalJSON(data []byte) (err error) {
	t.extra, err = decode(data, (*plainTrust)(t))
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (t Trust) MarshalJSON() ([]byte, error) { return encode(plainTrust(t), t.extra) }

const trustFile = "trust.json"

// Trust returns what the device has learnt. A file that cannot be read is a *CorruptError:
// then it is not known what is revoked. It needs no lock.
func (s *Store) Trust() (t Trust, err error) {
	path := s.meta(trustFile)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return Trust{}, &CorruptError{path, err}
	}
	if t.Format > Format {
		return Trust{}, fmt.Errorf("%s: %w", path, ErrNewer)
	}
	return t, nil
}

// PutTrust replaces what the device has learnt, durably. The caller holds the lock.
func (s *Store) PutTrust(t Trust) error {
	t.Format = Format
	data, err := marshal(t)
	if err == nil {
		err = durable.WriteFile(s.meta(trustFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", trustFile, err)
	}
	return nil
}
