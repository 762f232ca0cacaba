package powercut

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// The control: without the barrier, a cut when everything is said to be loaded
// leaves images that are listed and not whole, and inspecting the device finds
// it. With the barrier the same cut leaves them whole. If this did not fail so,
// the other tests would show nothing.
func TestWithoutTheBarrierACutIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts real disks; left out of -short")
	}
	prepared(t)
	for _, noBarrier := range []bool{true, false} {
		m, err := newMachine(work.installed, work.catalogue)
		require.NoError(t, err)
		defer func() { require.NoError(t, m.close()) }()
		m.noBarrier = noBarrier
		require.NoError(t, m.boot())
		// Everything is loaded, the journal says so, and no container was made
		// yet: to unmount a container's file system syncs the one below it, too.
		p := plan{scenario: scenarios[1], way: ways[1], fresh: "4", mode: "none", kind: "point", point: point{"app ArtifactInstall/call.ROLLOUT", 1, 1}}
		at, done, err := m.interrupted(p)
		require.NoError(t, err)
		require.Zero(t, at)
		require.False(t, done)
		require.NoError(t, m.cut("none", 0))
		require.NoError(t, m.boot())
		configs, err := m.ReadImages(context.Background())
		if noBarrier {
			require.Error(t, err, "the cut was not felt: %v", configs)
			require.ErrorContains(t, err, "is not whole")
			t.Log(err)
			_, err = inspect(m.Device, m.catalogue, work.records)
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		ended, err := m.goOn(p, at, done, work.records)
		require.NoError(t, err)
		require.Equal(t, p.fresh, ended)
	}
}
