package docker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dimage "github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules/imagestore"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// TestSnapshotOfNoImage: what a load that a power cut ended has unpacked in the
// containerd store, hollow and of no image any more, is not taken for present by
// a load that is told to distrust, with what is on top of it: also with what only
// that load's lease holds, and so cannot be removed. Other images' layers stay,
// and what a container's lease holds.
func TestSnapshotOfNoImage(t *testing.T) {
	for _, test := range []struct {
		name  string
		above func(t *testing.T, s *snapshots, app, chain string)
	}{
		{"unpacking", func(t *testing.T, s *snapshots, app, chain string) {
			ask(t, s, snapshotService+"Prepare", protoFields{{1, s.snapshotter}, {2, "extract-1-" + app + " " + chain}, {3, chain}})
			ask(t, s, snapshotService+"View", protoFields{{1, s.snapshotter}, {2, viewPrefix + app}, {3, chain}})
		}},
		{"leased", func(t *testing.T, s *snapshots, app, chain string) {
			label := protoFields{{1, expireLabel}, {2, time.Now().Add(24 * time.Hour).Format(time.RFC3339)}}
			hold(t, s, "load-"+app, protoFields{{3, string(label.message())}}, chain, "unknown-"+app)
			ask(t, s, snapshotService+"Prepare", protoFields{{1, s.snapshotter}, {2, "unknown-" + app}, {3, chain}})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
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
			t.Cleanup(func() { require.NoError(t, at.Close()) })

			base := layerTar(t, entry{"d/a", app + "a"})
			s := makeImage(t, "amd64", base, layerTar(t, entry{"d/b", app + "b"}))
			other := makeImage(t, "amd64", base, layerTar(t, entry{"d/c", app + "c"}))
			require.NoError(t, e.loadBytes(t, app, ours(t, other, app+":2"), imagestore.LoadRequest{}))
			require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{}))
			container := protoFields{{1, at.snapshotter}, {2, "container-" + app}, {3, image.ChainIDs(other.img.DiffIDs)[1].String()}}
			hold(t, at, "container-"+app, nil, "container-"+app)
			ask(t, at, snapshotService+"Prepare", container)

			// A view keeps the layer while its image goes.
			chain := image.ChainIDs(s.img.DiffIDs)[1].String()
			root := protoFields{{1, "containerd.io/gc.root"}, {2, "2026-11-20T00:00:00Z"}}
			kept := protoFields{{1, at.snapshotter}, {2, "kept-" + app}, {3, chain}, {4, string(root.message())}}
			dir, err := upperOf(ask(t, at, snapshotService+"View", kept))
			require.NoError(t, err)
			img, err := e.Find(ctx, app, s.identity(), "")
			require.NoError(t, err)
			_, err = e.cli.ImageRemove(ctx, img.ID, dimage.RemoveOptions{Force: true, PruneChildren: true})
			require.NoError(t, err)
			require.NoError(t, os.Truncate(dir+"/d/b", 0))
			test.above(t, at, app, chain)
			ask(t, at, snapshotService+"Remove", kept[:2])

			spec := imagestore.LoadRequest{Want: s.identity(), Distrust: true}
			require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
			require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
			require.NoError(t, e.Verify(ctx, app, other.identity(), ""))
			ask(t, at, snapshotService+"Stat", container[:2])
		})
	}
}

// ask makes a call of containerd's that has to succeed.
func ask(t *testing.T, s *snapshots, method string, fields protoFields) []byte {
	t.Helper()
	reply, err := s.call(context.WithoutCancel(t.Context()), method, fields.message())
	require.NoError(t, err, method)
	return reply
}

// hold makes a lease of snapshots, which is gone after the test. It may name one
// before there is one, and has to: containerd collects at any time what nothing
// holds.
func hold(t *testing.T, s *snapshots, id string, labels protoFields, names ...string) {
	t.Helper()
	ask(t, s, leaseService+"Create", append(protoFields{{1, id}}, labels...))
	t.Cleanup(func() {
		_, _ = s.call(context.WithoutCancel(t.Context()), leaseService+"Delete", protoFields{{1, id}}.message())
	})
	for _, name := range names {
		resource := protoFields{{1, name}, {2, "snapshots/" + s.snapshotter}}
		ask(t, s, leaseService+"AddResource", protoFields{{1, id}, {2, string(resource.message())}})
	}
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
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{Want: s.identity()}))
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
