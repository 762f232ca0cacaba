package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dimage "github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
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

	// And a view of ours was there.
	_, err = at.call(ctx, snapshotService+"View", protoFields{{1, at.snapshotter}, {2, viewPrefix + app}, {3, chain.String()}})
	require.NoError(t, err)

	spec := LoadSpec{Want: s.identity(), Distrust: true}
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
	require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
	require.NoError(t, e.Verify(ctx, app, other.identity(), ""))
}

// TestNameOfNothing: a name in the containerd store can be removed although what
// it names is gone.
func TestNameOfNothing(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	dirs, err := e.contentDirs(ctx)
	require.NoError(t, err)
	ctd, err := e.containerd(ctx)
	require.NoError(t, err)
	if !ctd || len(dirs) == 0 {
		t.Skip("this test is of the containerd store")
	}
	s := makeImage(t, "amd64", layerTar(t, entry{"d/a", app + "a"}))
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), LoadSpec{Want: s.identity()}))
	img, err := e.Find(ctx, app, s.identity(), "")
	require.NoError(t, err)
	own, ok := img.OwnRef(app)
	require.True(t, ok)
	for _, dir := range dirs {
		_ = os.Remove(filepath.Join(dir, strings.TrimPrefix(img.ID, "sha256:")))
	}
	named := func() bool {
		list, err := e.cli.ImageList(ctx, dimage.ListOptions{})
		require.NoError(t, err)
		return slices.ContainsFunc(list, func(s dimage.Summary) bool { return slices.Contains(s.RepoTags, own) })
	}
	require.True(t, named())
	_, err = e.Find(ctx, app, s.identity(), "")
	require.ErrorIs(t, err, submodules.ErrNotFound)
	_, err = e.Untag(ctx, own)
	require.NoError(t, err)
	require.False(t, named())
}
