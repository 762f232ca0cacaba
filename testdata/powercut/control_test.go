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
	// The kernel writes by itself what is half a minute old: on a busy machine
	// that may be before the cut.
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

// afterLoad cuts when everything is loaded, the journal says so, and no
// container was made yet: to unmount a container's file system syncs the one
// below it, too.
var afterLoad = plan{scenario: scenarios[1], way: ways[1], fresh: "4", mode: "none", kind: "point", point: point{"app ArtifactInstall/call.ROLLOUT", 1, 1}}

// cutAfterLoad cuts the power of a machine there, boots it, and reads every
// image. The machine is there until the test ends.
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
