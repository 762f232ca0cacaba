package delta_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/codec"
)

// A program larger than a window: what is moved and refers to what is far away is
// predicted, and matches go on from window to window.
func TestLargeProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("it sorts 40 MiB: not short")
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	old, err := os.ReadFile(exe)
	require.NoError(t, err)
	old = append(old, noise(1, max(codec.Window-len(old), 0)+1<<20)...)
	new := bytes.Clone(old)
	for _, i := range []int{1000, len(old) / 2, codec.Window - 1, codec.Window, len(old) - 10} {
		new[i]++
	}
	a, b := makeTar(tarFile{name: "x", typ: '0', data: old}), makeTar(tarFile{name: "x", typ: '0', data: new})
	d, _ := roundTrip(t, []delta.Image{{Name: "1", Objects: []delta.Object{bytesObject(delta.Tar, a)}}},
		delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Tar, b)}})
	require.Less(t, len(d), 1000)
}
