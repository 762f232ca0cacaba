package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// LockedError reports that another process has the store's lock.
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

// Protect creates the store and the directory for files that belong to no application,
// and keeps other users out: manifests and states have passwords, and any user who can
// open a lock file can hold it. Protect needs no lock.
func (s *Store) Protect() error {
	if err := durable.PrivateDir(s.meta("")); err != nil {
		return err
	}
	dirs, err := s.Private()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := durable.PrivateDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// Private lists the directories that Protect keeps other users out of: those of the
// applications, and the store itself. An operator may have put other things into the
// store's directory, such as a whole data partition. Then it stays open for their users.
func (s *Store) Private() ([]string, error) {
	dirs := []string{s.meta("")}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dirs, nil
	}
	if err != nil {
		return nil, err
	}
	shared := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == metaDir, strings.HasPrefix(name, durable.TempPrefix), name == "lost+found":
		case e.IsDir() && s.isOurs(name):
			dirs = append(dirs, s.appDir(name))
		case e.IsDir() && s.isOfReference(name):
		default:
			shared = true
		}
	}
	if !shared {
		dirs = append(dirs, s.dir)
	}
	return dirs, nil
}

// isOurs reports whether a directory of the store is one of an application, even of one
// that was being made or that left data when it was removed.
func (s *Store) isOurs(name string) bool {
	if names.Check(name) != nil {
		return false
	}
	for _, part := range append([]string{stateFile, releasesDir}, leftNames...) {
		if _, err := os.Lstat(filepath.Join(s.appDir(name), part)); err == nil {
			return true
		}
	}
	return s.hasState(name)
}

// isOfReference reports whether the shell reference made a directory of the store.
func (s *Store) isOfReference(name string) bool {
	for _, suffix := range []string{legacyLast, legacyPrevious} {
		if base, ok := strings.CutSuffix(name, suffix); ok && (s.isOurs(base) || s.isReference(base)) {
			return true
		}
	}
	return s.isReference(name)
}

// Busy reports whether another process has the lock, as far as this user can see.
func (s *Store) Busy() bool { return durable.Held(s.meta(lockFile)) }
