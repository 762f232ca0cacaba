package docker

import (
	"os"
	"testing"

	dimage "github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
)

// TestSnapshotOfNoImage: what a load that a power cut ended has unpacked in the
// containerd store, hollow and of no image any more, is not taken for present by
// a load that is told to distrust. Other images' layers stay.
func TestSnapshotOfNoImage(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	ctd, err := e.containerd(ctx)
	require.NoError(t, err)
	if !ctd {
		t.Skip("this test is of the containerd store")
	}
	at, err := e.openSnapshots(ctx)
	require.NoError(t, err)
	require.NotNil(t, at)
	defer at.Close()

	base := layerTar(t, entry{"d/a", app + "a"})
	s := makeImage(t, "amd64", base, layerTar(t, entry{"d/b", app + "b"}))
	other := makeImage(t, "amd64", base, layerTar(t, entry{"d/c", app + "c"}))
	require.NoError(t, e.loadBytes(t, app, ours(t, other, app+":2"), LoadSpec{}))
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), LoadSpec{}))

	// As the lease of a load does, a view keeps the layer while its image goes.
	chain := image.ChainIDs(s.img.DiffIDs)[1]
	root := protoFields{{1, "containerd.io/gc.root"}, {2, "2026-11-20T00:00:00Z"}}
	reply, err := at.call(ctx, snapshotService+"View", protoFields{
		{1, at.snapshotter}, {2, "kept-" + app}, {3, chain.String()}, {4, string(root.append(nil))},
	})
	require.NoError(t, err)
	dir, err := upperOf(reply)
	require.NoError(t, err)
	img, err := e.Find(ctx, app, s.identity(), "")
	require.NoError(t, err)
	_, err = e.cli.ImageRemove(ctx, img.ID, dimage.RemoveOptions{Force: true, PruneChildren: true})
	require.NoError(t, err)
	require.NoError(t, os.Truncate(dir+"/d/b", 0))
	_, err = at.call(ctx, snapshotService+"Remove", protoFields{{1, at.snapshotter}, {2, "kept-" + app}})
	require.NoError(t, err)
	// And it had begun to unpack the layer above.
	_, err = at.call(ctx, snapshotService+"Prepare", protoFields{{1, at.snapshotter}, {2, "extract-1-" + app + " " + chain.String()}, {3, chain.String()}})
	require.NoError(t, err)

	spec := LoadSpec{Want: s.identity(), Distrust: true}
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
	require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
	require.NoError(t, e.Verify(ctx, app, other.identity(), ""))
}
