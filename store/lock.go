package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/store/durable"
)

// LockedError says that another process has the store's lock.
type LockedError struct {
	Holder string // what that process wrote into the lock file
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("another call is using the store (%s); try again when it has ended", e.Holder)
}

// Lock takes the store for this process, and waits for it until ctx ends. The kernel
// holds the lock for the process: a killed process holds none, so there is no stale
// lock. No other user can take it. Waiting processes show who. If ctx ends first, the
// error is a *LockedError.
func (s *Store) Lock(ctx context.Context, who string) (release func(), err error) {
	if err := s.Protect(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	release, err = durable.WaitLock(ctx, s.meta(lockFile), who)
	var held *durable.HeldError
	if errors.As(err, &held) {
		return nil, &LockedError{Holder: held.Holder}
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return release, nil
}

// Protect creates the directory for files that belong to no application, and keeps
// other users out: any user who can open a lock file can hold it. Protect needs no
// lock.
func (s *Store) Protect() error { return durable.PrivateDir(s.meta("")) }

// Busy reports whether another process has the lock, as far as this user can see.
func (s *Store) Busy() bool { return durable.Held(s.meta(lockFile)) }
