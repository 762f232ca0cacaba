package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// damaged is a store with images of two layers, of which a test damages the
// files that containerd keeps.
type damaged struct {
	*Store
	t    *testing.T
	seed int64
}

func newDamaged(t *testing.T) *damaged {
	s := openStore(t)
	d := &damaged{Store: s, t: t, seed: time.Now().UnixNano()}
	s.SetLog(t.Logf)
	t.Logf("seed %d", d.seed)
	return d
}

// image makes an image on the base that all have, and brings it in for an
// application as its name.
func (d *damaged) image(app string) (img *image.Image, url string) {
	d.t.Helper()
	base := pack(d.t, file{"base", text(d.seed, 50_000)})
	img = build(d.t, app, base, pack(d.t, file{"top", text(d.seed+int64(len(app)), 20_000)}, file{"name", []byte(app)}))
	url = fmt.Sprintf("%s-%d:1", app, d.seed)
	_, err := receive(d.t, d.Store, app, url, archived(d.t, img), id(img))
	require.NoError(d.t, err)
	return img, url
}

func (d *damaged) problems(url string, img *image.Image) []string {
	d.t.Helper()
	problems, err := d.Verify(context.Background(), url, id(img))
	require.NoError(d.t, err)
	return problems
}

// unpacked is the directory of a layer.
func (d *damaged) unpacked(img *image.Image, layer int) string {
	d.t.Helper()
	dir, release, err := d.layerDir(context.Background(), image.ChainIDs(img.DiffIDs)[layer])
	require.NoError(d.t, err)
	defer release()
	require.NotNil(d.t, dir)
	defer dir.Close()
	return dir.Name()
}

// blobFile is where containerd has a blob.
func (d *damaged) blobFile(blob string) string {
	d.t.Helper()
	roots, err := d.Storage(context.Background())
	require.NoError(d.t, err)
	return filepath.Join(roots[0], "blobs/sha256", image.Digest(blob).Hex())
}

func (d *damaged) manifest(url string) ocidigest.Digest {
	d.t.Helper()
	img, err := d.client.ImageService().Get(context.Background(), Canonical(url))
	require.NoError(d.t, err)
	return img.Target.Digest
}

// source is a directory with an image as a repair is given it.
func (d *damaged) source(img *image.Image) string {
	d.t.Helper()
	dir := d.t.TempDir()
	require.NoError(d.t, os.WriteFile(filepath.Join(dir, "image"), archived(d.t, img), 0o600))
	return dir
}

func spec(t *testing.T, app, url string, img *image.Image) imagestore.RepairRequest {
	return imagestore.RepairRequest{App: app, Dir: t.TempDir(), Want: []imagestore.Damaged{{URL: url, Identity: id(img)}}, Log: t.Logf}
}

// repair runs a repair on a node on which nothing runs.
func (s *Store) repair(t *testing.T, q imagestore.RepairRequest) ([]string, error) {
	t.Helper()
	return imagestore.Repair(t.Context(), s.RepairStore(func(context.Context, []string, []Container) ([]string, error) {
		t.Error("nothing runs")
		return nil, nil
	}, nil), q)
}

func emptied(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) }

func flipped(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

// TestRepair damages what containerd keeps of an image, in every way a power cut
// or a bad disk may, and repairs it.
func TestRepair(t *testing.T) {
	d := newDamaged(t)
	ctx := context.Background()
	img, url := d.image("one")
	other, otherURL := d.image("another")
	whole := func(t *testing.T) {
		t.Helper()
		require.Empty(t, d.problems(url, img))
		require.Empty(t, d.problems(otherURL, other))
		for _, l := range []int{0, 1} {
			require.DirExists(t, d.unpacked(img, l))
		}
		_, err := d.client.ImageService().Get(ctx, Canonical(url))
		require.NoError(t, err)
	}
	whole(t)
	apps, err := d.repair(t, spec(t, "one", url, img))
	require.NoError(t, err)
	require.Empty(t, apps)

	for name, c := range map[string]struct {
		damage func()
		says   string
		needs  bool   // the source
		moves  string // "yes": it is unpacked again; "no": what was unpacked stays
	}{
		"files emptied": {damage: func() { emptied(t, d.unpacked(img, 1)+"/top") }, says: "top has 0 bytes", moves: "yes"},
		"files changed": {damage: func() { flipped(t, d.unpacked(img, 1)+"/top") }, says: "top is damaged", moves: "yes"},
		"files lost":    {damage: func() { require.NoError(t, os.Remove(d.unpacked(img, 1)+"/name")) }, says: "name is missing", moves: "yes"},
		"on it was something that was collected": {damage: func() {
			// containerd 1.6 does not strike it off below.
			_, err := d.snapshots().View(ctx, fmt.Sprint("lost-", d.seed), image.ChainIDs(img.DiffIDs)[1].String())
			require.NoError(t, err)
			require.NoError(t, d.collect(ctx))
			emptied(t, d.unpacked(img, 1)+"/top")
		}, says: "top has 0 bytes"},
		"directory lost": {damage: func() { require.NoError(t, os.RemoveAll(d.unpacked(img, 1))) }, says: "the directory that it was unpacked to is lost", moves: "yes"},
		"a shared layer": {damage: func() { emptied(t, d.unpacked(img, 0)+"/base") }, says: "base has 0 bytes"},
		"blob emptied":   {damage: func() { emptied(t, d.blobFile(string(img.DiffIDs[1]))) }, says: "its blob", needs: true, moves: "no"},
		"blob changed":   {damage: func() { flipped(t, d.blobFile(string(img.DiffIDs[0]))) }, says: "its blob", needs: true, moves: "no"},
		"blob lost":      {damage: func() { require.NoError(t, os.Remove(d.blobFile(string(img.DiffIDs[1])))) }, says: "its blob", needs: true, moves: "no"},
		"blob and files": {damage: func() {
			flipped(t, d.blobFile(string(img.DiffIDs[0])))
			emptied(t, d.unpacked(img, 0)+"/base")
		}, says: "its blob", needs: true},
		"neither": {damage: func() {
			require.NoError(t, d.content().Delete(ctx, ocidigest.Digest(img.DiffIDs[1])))
			emptied(t, d.unpacked(img, 0)+"/base")
		}, says: "base has 0 bytes", needs: true},
		"config emptied": {damage: func() { emptied(t, d.blobFile(string(img.ConfigDigest))) }, says: "it is not there", needs: true},
		// The config and the layers are there still: a manifest is made of them.
		"manifest changed": {damage: func() { flipped(t, d.blobFile(string(d.manifest(url)))) }, says: "it is not there"},
		"image deleted": {damage: func() {
			for _, n := range []string{Canonical(url), imagestore.OwnRef("one", img.ConfigDigest)} {
				require.NoError(t, d.client.ImageService().Delete(ctx, n, images.SynchronousDelete()))
			}
		}, says: "it is not there", needs: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := d.unpacked(img, 1)
			c.damage()
			problems := d.problems(url, img)
			require.NotEmpty(t, problems)
			require.Contains(t, fmt.Sprint(problems), c.says)
			s := spec(t, "one", url, img)
			s.Finish = true
			_, err := d.repair(t, s)
			require.NoError(t, err)
			require.Equal(t, problems, d.problems(url, img), "one that had not begun does nothing")
			s.Finish = false
			if c.needs {
				_, err = d.repair(t, s)
				require.ErrorIs(t, err, submodules.ErrContent)
				require.ErrorContains(t, err, "cannot be repaired with what is on this device, and nothing was changed")
				require.ErrorContains(t, err, "mender-app verify --repair --from FILE.mender one")
				require.Equal(t, problems, d.problems(url, img))
				left, err := os.ReadDir(s.Dir)
				require.NoError(t, err)
				require.Empty(t, left)
				s.Source = d.source(img)
			}
			_, err = d.repair(t, s)
			require.NoError(t, err)
			if name == "image deleted" {
				require.NoError(t, d.Tag(ctx, url, url, id(img))) // ROLLOUT's to give
			}
			whole(t)
			if c.moves != "" {
				require.Equal(t, c.moves, map[bool]string{true: "no", false: "yes"}[before == d.unpacked(img, 1)])
			}
			_, err = d.repair(t, s)
			require.NoError(t, err, "again is no error")
		})
	}
}

// TestRepairInUse: what runs from damaged files is stopped first, if it is an
// application's; what has ended goes.
func TestRepairInUse(t *testing.T) {
	d := newDamaged(t)
	ctx := context.Background()
	img, url := d.image("one")
	top := image.ChainIDs(img.DiffIDs)[1].String()
	key := fmt.Sprintf("ended-%d", d.seed)
	// With this label the snapshot is not collected before its container is there.
	root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": time.Now().UTC().Format(time.RFC3339)})
	_, err := d.snapshots().Prepare(ctx, key, top, root)
	require.NoError(t, err)
	_, err = d.client.ContainerService().Create(ctx, containers.Container{
		ID: key, SnapshotKey: key, Snapshotter: d.snapshotter, Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"}, Spec: nothing{},
		Labels: map[string]string{labelPod: "some pod"},
	})
	require.NoError(t, err)
	emptied(t, d.unpacked(img, 1)+"/top")
	_, err = d.repair(t, spec(t, "one", url, img))
	require.NoError(t, err)
	require.Empty(t, d.problems(url, img))
	_, err = d.client.ContainerService().Get(ctx, key)
	require.True(t, errdefs.IsNotFound(err), "%v", err)
}

// nothing is a container's spec that is never run.
type nothing struct{}

func (nothing) GetTypeUrl() string { return "types.containerd.io/opencontainers/runtime-spec/1/Spec" }
func (nothing) GetValue() []byte   { return []byte("{}") }

// TestDistrust: what a load that a power cut ended has left is not taken for
// present.
func TestDistrust(t *testing.T) {
	d := newDamaged(t)
	ctx := context.Background()
	img, url := d.image("one")
	load := func(t *testing.T) {
		t.Helper()
		require.NoError(t, d.Distrust(ctx, imagestore.LoadRequest{App: "one", URL: url, Want: id(img), Log: t.Logf}))
		_, err := receive(d.t, d.Store, "one", url, archived(t, img), id(img)) // it goes with the whole test
		require.NoError(t, err)
		require.Empty(t, d.problems(url, img))
	}
	for name, damage := range map[string]func(t *testing.T){
		"whole":            func(*testing.T) {},
		"files emptied":    func(t *testing.T) { emptied(t, d.unpacked(img, 0)+"/base") },
		"blob emptied":     func(t *testing.T) { emptied(t, d.blobFile(string(img.DiffIDs[0]))) },
		"config emptied":   func(t *testing.T) { emptied(t, d.blobFile(string(img.ConfigDigest))) },
		"manifest emptied": func(t *testing.T) { emptied(t, d.blobFile(string(d.manifest(url)))) },
	} {
		t.Run(name, func(t *testing.T) { damage(t); load(t) })
	}

	t.Run("nothing but a lease", func(t *testing.T) {
		late := build(t, "late", pack(t, file{"late", text(d.seed+99, 30_000)}))
		ls := d.client.LeasesService()
		lease, err := ls.Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Hour))
		require.NoError(t, err)
		held := leases.WithLease(ctx, lease.ID)
		st := &stored{config: late.ConfigDigest, diffIDs: late.DiffIDs, desc: ocispec.Descriptor{Digest: ocidigest.Digest(late.ConfigDigest), Size: int64(len(late.Config))}}
		for _, part := range [][]byte{pack(t, file{"late", text(d.seed+99, 30_000)}), late.Config} {
			_, _, err := d.ingest(held, bytes.NewReader(part), ocidigest.FromBytes(part), nil)
			require.NoError(t, err)
		}
		st.layers = []ocispec.Descriptor{{MediaType: image.MediaTypeLayer, Digest: ocidigest.Digest(late.DiffIDs[0]), Size: 1}}
		require.NoError(t, d.unpack(held, st))
		emptied(t, d.unpacked(late, 0)+"/late")
		_, err = d.snapshots().Prepare(held, fmt.Sprintf("extract-%d %s", d.seed, image.ChainIDs(late.DiffIDs)[0]), image.ChainIDs(late.DiffIDs)[0].String())
		require.NoError(t, err)

		// As long as whoever has the lease may live it stays.
		lateURL := fmt.Sprintf("late-%d:1", d.seed)
		require.NoError(t, d.Distrust(ctx, imagestore.LoadRequest{App: "one", URL: lateURL, Want: id(late), Log: t.Logf}))
		require.True(t, must(d.committed(ctx, image.ChainIDs(late.DiffIDs)[0])))
		again := *d.Store
		again.booted = time.Now().Add(time.Second) // after a boot
		require.NoError(t, again.Distrust(ctx, imagestore.LoadRequest{App: "one", URL: lateURL, Want: id(late), Log: t.Logf}))
		require.False(t, must(d.committed(ctx, image.ChainIDs(late.DiffIDs)[0])))
		require.False(t, must(d.holds(ctx, st.layers[0])))
		_, err = receive(t, d.Store, "one", lateURL, archived(t, late), id(late))
		require.NoError(t, err)
		require.Empty(t, d.problems(lateURL, late))
	})

	t.Run("another needs it", func(t *testing.T) {
		require.NoError(t, d.Tag(ctx, imagestore.OwnRef("other", img.ConfigDigest), url, id(img)))
		t.Cleanup(func() { _ = d.Delete(ctx, "other", url, id(img)) })
		emptied(t, d.unpacked(img, 0)+"/base")
		err := d.Distrust(ctx, imagestore.LoadRequest{App: "one", URL: url, Want: id(img), Log: t.Logf})
		require.ErrorIs(t, err, submodules.ErrContent)
		require.ErrorContains(t, err, "mender-app verify --repair")
	})
}

func must(ok bool, err error) bool {
	if err != nil {
		panic(err)
	}
	return ok
}
