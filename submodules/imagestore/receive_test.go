package imagestore

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
)

// disk is a target of which only the free space is asked.
type disk struct {
	Target
	free int64
}

func (d disk) Room(context.Context) (int64, error) { return d.free, nil }

// A load leaves a margin of the engine's disk free, and takes no more than is
// announced.
func TestRoom(t *testing.T) {
	const layer = 100 << 20
	fits := func(free int64, announced *announcement, taken, size int64) error {
		rc := &receiver{ctx: t.Context(), target: disk{free: free}, announced: announced}
		rc.taken = taken
		return rc.fits(size)
	}
	require.NoError(t, fits(layer+freeMargin, nil, 0, layer))
	require.ErrorIs(t, fits(layer+freeMargin-1, nil, 0, layer), submodules.ErrSpace)
	require.ErrorIs(t, fits(layer+freeMargin, nil, 1, layer), submodules.ErrSpace)
	require.ErrorIs(t, fits(0, nil, 0, 1), submodules.ErrSpace)
	require.NoError(t, fits(NoRoomLimit, nil, 0, layer))

	one := &announcement{Announced: &submodules.Announced{Layers: []submodules.AnnouncedLayer{{Size: 10, Unpacked: 30}, {Size: 20}}}}
	require.NoError(t, fits(layer, one, 0, 50))
	require.ErrorIs(t, fits(layer, one, 0, 51), errNotAnnounced)
	require.ErrorIs(t, fits(layer, one, 45, 6), errNotAnnounced)
	require.True(t, errors.Is(fits(layer, one, 45, 6), submodules.ErrContent))
}

// A delta is decoded only as far as the target lacks something.
func TestLastNeeded(t *testing.T) {
	object := func(name string, e delta.Encoding) delta.ObjectInfo {
		return delta.ObjectInfo{Digest: digest.Of([]byte(name)), Encoding: e}
	}
	objects := []delta.ObjectInfo{
		object("config", delta.Verbatim), object("a", delta.Delta), object("b", delta.Delta), object("c", delta.Omitted), object("d", delta.Delta),
	}
	present := func(names ...string) map[image.Digest]image.Descriptor {
		m := map[image.Digest]image.Descriptor{}
		for _, n := range names {
			m[digest.Of([]byte(n))] = image.Descriptor{}
		}
		return m
	}
	require.Equal(t, 4, lastNeeded(objects, present()))
	require.Equal(t, 2, lastNeeded(objects, present("d")))
	require.Equal(t, 1, lastNeeded(objects, present("b", "d")))
	require.Equal(t, 0, lastNeeded(objects, present("a", "b", "d")))
}
