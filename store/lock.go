package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
)

// LockedError says that another process is at work on the store.
type LockedError struct {
	Holder string // what it said it is
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("another call is at work on the store (%s); try again when it has ended", e.Holder)
}

// lockPoll is how often a lock that is taken is asked for again.
const lockPoll = 50 * time.Millisecond

// Lock takes the store for this process, waiting until ctx ends. The kernel
// holds the lock for the process, so that one that was killed holds none: a
// stale lock cannot be. who is shown to those who wait. The error is a
// *LockedError when ctx ended.
func (s *Store) Lock(ctx context.Context, who string) (release func(), err error) {
	if err := durable.MkdirAll(s.meta(""), 0o755); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	f, err := os.OpenFile(s.meta(lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			holder, _ := io.ReadAll(io.LimitReader(f, 200))
			_ = f.Close()
			text := strings.TrimSpace(string(holder))
			if text == "" {
				text = "unknown"
			}
			return nil, &LockedError{Holder: text}
		case <-time.After(lockPoll):
		}
	}
	// Who holds it is a courtesy to the one who waits; nothing depends on it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(fmt.Sprintf("process %d, %s\n", os.Getpid(), who)), 0)
	}
	return func() { _ = f.Truncate(0); _ = f.Close() }, nil
}
