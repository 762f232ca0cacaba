package powercut

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// This is the control experiment. Without the barrier, a cut after all images are
// reported as loaded leaves images that are listed but incomplete, and the
// inspection finds them. With the barrier the same cut leaves them complete. Without
// this failure the other tests would prove nothing.
func TestWithoutTheBarrierACutIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts real disks; left out of -short")
	}
	prepared(t)
	lost := func() error {
		m, configs, err := cutAfterLoad(t, true)
		if err == nil {
			t.Logf("the cut was not felt: %v", configs)
			return nil
		}
		_, found := inspect(m.Device, m.catalogue, work.records)
		require.Error(t, found)
		return err
	}
	// The kernel writes data back after half a minute by itself. On a busy machine
	// that may happen before the cut.
	err := lost()
	for tries := 1; err == nil && tries < 4; tries++ {
		err = lost()
	}
	require.ErrorContains(t, err, "is not whole")
	t.Log(err)

	m, _, err := cutAfterLoad(t, false)
	require.NoError(t, err)
	ended, err := m.goOn(afterLoad, 0, false, work.records)
	require.NoError(t, err)
	require.Equal(t, afterLoad.fresh, ended)
}

// afterLoad cuts when everything is loaded and the journal says so, but no container
// has been created. Unmounting a container's file system would also sync the file
// system below it.
var afterLoad = plan{scenario: scenarios[1], way: ways[1], fresh: "4", mode: "none", kind: "point", point: point{"app ArtifactInstall/call.ROLLOUT", 1, 1}}

// cutAfterLoad cuts the power of a machine at afterLoad, boots it, and reads every
// image. The machine is removed when the test ends.
func cutAfterLoad(t *testing.T, noBarrier bool) (*machine, map[string]string, error) {
	m, err := newMachine(work.installed, work.catalogue)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.close()) })
	m.noBarrier = noBarrier
	require.NoError(t, m.boot())
	at, done, err := m.interrupted(afterLoad)
	require.NoError(t, err)
	require.Zero(t, at)
	require.False(t, done)
	require.NoError(t, m.cut("none", 0))
	require.NoError(t, m.boot())
	configs, err := m.ReadImages(context.Background())
	return m, configs, err
}
