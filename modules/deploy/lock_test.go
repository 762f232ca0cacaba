package deploy

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store"
)

// TestEndOfAnUpdateWaitsLonger: where the client does not repeat a rollback, the
// states that end an update wait for another call that has the lock; the others
// give up soon.
func TestEndOfAnUpdateWaitsLonger(t *testing.T) {
	for _, c := range []struct {
		state modules.State
		waits bool
	}{
		{modules.Download, false}, {modules.ArtifactInstall, false}, {modules.ArtifactCommit, true},
		{modules.ArtifactRollback, true}, {modules.ArtifactFailure, true}, {modules.Cleanup, true},
	} {
		t.Run(string(c.state), func(t *testing.T) {
			g := newRig(t)
			cl := newClient(g, true)
			require.NoError(t, cl.install(g.newTree(t, v1)))
			require.NoError(t, cl.commit())
			tr := g.newTree(t, v2)
			require.NoError(t, cl.install(tr))

			e := g.engine()
			e.LockTimeout, e.EndLockTimeout = 50*time.Millisecond, time.Minute
			release, err := e.Store.Lock(context.Background(), "another call")
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- e.Handle(context.Background(), c.state, tr.Tree) }()
			if !c.waits {
				require.ErrorAs(t, <-done, new(*store.LockedError))
				release()
				return
			}
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(time.Second / 2):
			}
			release()
			require.NoError(t, <-done)
		})
	}
}
