package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/store/durable"
)

// reserveBytes is what the reserve holds: enough for the journal, the history
// and the directories of the calls of one rollback, and, where the engine lies
// on the same file system, for the containers of some ten services.
const reserveBytes = 1 << 20

// KeepReserve makes sure that the store holds back some space of its file
// system, with which a deployment can be ended where something else has taken
// the rest. It is written once; durable when it returns nil.
func (s *Store) KeepReserve() error {
	path := s.meta(reserveFile)
	if st, err := os.Lstat(path); err == nil && st.Size() == reserveBytes {
		return nil
	}
	// Random, so that a file system that compresses holds it too.
	data := make([]byte, reserveBytes)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("hold space back: %w", err)
	}
	return nil
}

// SpendReserve frees the space held back. It reports whether there was any.
func (s *Store) SpendReserve() (bool, error) {
	path := s.meta(reserveFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, durable.Remove(path)
}
