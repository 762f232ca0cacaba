package k8s

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// awaitGone waits until each object is gone, or replaced by one with another uid. It
// returns false after Settings.TerminateFor.
func (s *session) awaitGone(ctx context.Context, ids []cluster.ID, uids map[cluster.ID]types.UID) (bool, error) {
	end := time.Now().Add(s.set.TerminateFor)
	for len(ids) > 0 {
		there := make([]bool, len(ids))
		err := cluster.Each(ctx, len(ids), func(ctx context.Context, n int) error {
			o, err := s.c.Get(ctx, ids[n])
			there[n] = o != nil && (uids[ids[n]] == "" || uids[ids[n]] == o.GetUID())
			return err
		})
		if err != nil {
			return false, err
		}
		var left []cluster.ID
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
		if err := cluster.Sleep(ctx, 200*time.Millisecond); err != nil {
			return false, err
		}
	}
	return true, nil
}

// awaitEnding waits, for a limited time, for the pods that the release replaced:
// their images are in use as long as they run.
func (s *session) awaitEnding(ctx context.Context, ids []cluster.ID) error {
	for end := time.Now().Add(s.set.TerminateFor); ; {
		left, err := s.running(ctx, ids, func(p *pod) bool { return p.Metadata.DeletionTimestamp != nil })
		if err != nil || left == "" {
			return err
		}
		if time.Now().After(end) {
			s.log("warning: pod %s of the previous release is still terminating", left)
			return nil
		}
		if err := cluster.Sleep(ctx, s.pause()); err != nil {
			return err
		}
	}
}
