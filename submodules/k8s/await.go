package k8s

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// awaitGone waits until none of the objects is there, or is another one than
// that with the uid. It gives up, with false, after Settings.TerminateFor.
func (s *session) awaitGone(ctx context.Context, ids []id, uids map[id]types.UID) (bool, error) {
	end := time.Now().Add(s.set.TerminateFor)
	for len(ids) > 0 {
		there := make([]bool, len(ids))
		err := each(ctx, len(ids), func(ctx context.Context, n int) error {
			o, err := s.c.get(ctx, ids[n])
			there[n] = o != nil && (uids[ids[n]] == "" || uids[ids[n]] == o.GetUID())
			return err
		})
		if err != nil {
			return false, err
		}
		var left []id
		for n, i := range ids {
			if there[n] {
				left = append(left, i)
			}
		}
		if ids = left; len(ids) == 0 {
			break
		}
		if time.Now().After(end) {
			return false, nil
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return false, err
		}
	}
	return true, nil
}

// awaitEnding waits for the pods that the release took the place of, not for
// ever: as long as they are there, their images are in use.
func (s *session) awaitEnding(ctx context.Context, ids []id) error {
	for end := time.Now().Add(s.set.TerminateFor); ; {
		left, err := s.running(ctx, ids, func(p *pod) bool { return p.Metadata.DeletionTimestamp != nil })
		if err != nil || left == "" {
			return err
		}
		if time.Now().After(end) {
			s.log("warning: pod %s of the release before is still ending", left)
			return nil
		}
		if err := sleep(ctx, s.pause()); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
