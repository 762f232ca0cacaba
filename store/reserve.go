package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/store/durable"
)

// reserveBytes is the size of the reserve: enough for the journal, the history
// and the temporary directories of one rollback. If the engine uses the same file
// system, it is enough for the containers of about ten services, too.
const reserveBytes = 1 << 20

// KeepReserve reserves space on the store's file system with a file, so that a
// deployment can be ended when the disk is full. The file is written once, and is
// durable when KeepReserve returns nil.
func (s *Store) KeepReserve() error {
	path := s.meta(reserveFile)
	if st, err := os.Lstat(path); err == nil && st.Size() == reserveBytes {
		return nil
	}
	// Random data takes its full size on file systems that compress, too.
	data := make([]byte, reserveBytes)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("reserve space: %w", err)
	}
	return nil
}

// SpendReserve frees the reserved space. It reports whether there was any.
func (s *Store) SpendReserve() (bool, error) {
	path := s.meta(reserveFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, durable.Remove(path)
}
