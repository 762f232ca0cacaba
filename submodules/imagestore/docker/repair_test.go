package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// nobody owns no container.
func nobody(container.Summary) (string, bool) { return "", false }

// repair runs a repair in which no container is any application's.
func (e *Engine) repair(t *testing.T, q imagestore.RepairRequest) ([]string, error) {
	t.Helper()
	q.Log = t.Logf
	return imagestore.Repair(t.Context(), e.RepairStore(t.TempDir(), nobody), q)
}

// stopped is a store in which a repair is stopped as soon as its plan is durable.
type stopped struct{ imagestore.RepairStore }

var errStopped = errors.New("stopped")

func (stopped) RemoveDamaged(context.Context, *imagestore.RepairPlan) (func(), error) {
	return nil, errStopped
}

// sources writes image archives into a directory.
func sources(t *testing.T, archives ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	for i, a := range archives {
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))), a, 0o644))
	}
	return dir
}

func emptyDir(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestRepairSharedLayer: two images share a damaged layer. An archive of one of
// them repairs both; without it nothing is changed.
func TestRepairSharedLayer(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	base := layerTar(t, entry{"d/base", app + "base"})
	one := makeImage(t, "amd64", base, layerTar(t, entry{"one", app + "1"}))
	two := makeImage(t, "amd64", base, layerTar(t, entry{"two", app + "2"}))
	require.NoError(t, e.loadBytes(t, app, ours(t, one, app+":1"), imagestore.LoadRequest{Want: one.identity()}))
	require.NoError(t, e.loadBytes(t, app, ours(t, two, app+":2"), imagestore.LoadRequest{URL: app + ":2", Want: two.identity()}))
	img, err := e.Find(ctx, app, two.identity(), "")
	require.NoError(t, err)
	require.NoError(t, e.Tag(ctx, img, app+":also"))

	spec := imagestore.RepairRequest{
		App: app, Dir: t.TempDir(),
		Want: []imagestore.Damaged{{URL: app + ":1", Identity: one.identity()}, {URL: app + ":2", Identity: two.identity()}},
	}
	apps, err := e.repair(t, spec)
	require.NoError(t, err)
	require.Empty(t, apps)
	emptyDir(t, spec.Dir)

	what := "d/base has 0 bytes"
	if e.twice(t) { // what was unpacked is brought back out of the blob
		require.NoError(t, os.Truncate(filepath.Join(e.unpacked(t, one, 0), "d/base"), 0))
		own := spec
		own.Dir = t.TempDir()
		_, err = e.repair(t, own)
		require.NoError(t, err)
		for _, s := range []sample{one, two} {
			require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
		}
		what = "its blob " + one.img.DiffIDs[0].String() + " is damaged"
	}
	e.lose(t, app, one, 0, "d/base")
	_, err = e.repair(t, spec)
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, what)
	require.ErrorContains(t, err, "--from FILE.mender")
	emptyDir(t, spec.Dir)
	for _, tag := range []string{app + ":1", app + ":2", app + ":also"} {
		_, err := e.Inspect(ctx, tag)
		require.NoError(t, err, "nothing was changed")
	}
	spec.Source = sources(t, ours(t, makeImage(t, "amd64", layerTar(t, entry{"x", app})), "x:1"))
	_, err = e.repair(t, spec)
	require.ErrorContains(t, err, "does not carry it whole")
	emptyDir(t, spec.Dir)

	// What belongs to no application keeps the layer.
	person := makeImage(t, "amd64", base)
	require.NoError(t, target{e: e}.Load(ctx, strings.NewReader(string(ours(t, person, app+"-person:1")))))
	spec.Source = sources(t, ours(t, two, "x:1"))
	_, err = e.repair(t, spec)
	require.ErrorContains(t, err, "docker rmi "+app+"-person:1")
	emptyDir(t, spec.Dir)
	_, err = e.Untag(ctx, app+"-person:1")
	require.NoError(t, err)

	apps, err = e.repair(t, spec)
	require.NoError(t, err)
	require.Empty(t, apps, "no containers")
	for _, s := range []sample{one, two} {
		require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
	}
	img, err = e.Find(ctx, app, two.identity(), "")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{imagestore.OwnRef(app, two.img.ConfigDigest), app + ":2", app + ":also"}, img.Tags)
	// It is said again until the caller has taken the directory away.
	spec.Finish = true
	_, err = e.repair(t, spec)
	require.NoError(t, err)
}

// TestRepairInterrupted: a plan that is there is carried through, whatever of it
// was done.
func TestRepairInterrupted(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	base := layerTar(t, entry{"d/base", app + "base"})
	one := makeImage(t, "amd64", base, layerTar(t, entry{"one", app + "1"}))
	two := makeImage(t, "amd64", base, layerTar(t, entry{"two", app + "2"}))
	for _, done := range []string{"nothing", "one removed", "all removed", "one loaded"} {
		t.Run(done, func(t *testing.T) {
			require.NoError(t, e.loadBytes(t, app, ours(t, one, app+":1"), imagestore.LoadRequest{Want: one.identity()}))
			require.NoError(t, e.loadBytes(t, app, ours(t, two, app+":2"), imagestore.LoadRequest{URL: app + ":2", Want: two.identity()}))
			e.lose(t, app, one, 0, "d/base")
			spec := imagestore.RepairRequest{
				App: app, Dir: t.TempDir(), Source: sources(t, ours(t, one, "x:1")),
				Want: []imagestore.Damaged{{URL: app + ":1", Identity: one.identity()}},
			}
			_, err := imagestore.Repair(ctx, stopped{e.RepairStore(t.TempDir(), nobody)}, spec)
			require.ErrorIs(t, err, errStopped)
			require.ErrorContains(t, err, "continue it with mender-app resume")
			remove := func(s sample) {
				img, err := e.Find(ctx, app, s.identity(), "")
				require.NoError(t, err)
				require.NoError(t, e.removeImages(ctx, []Image{img}))
			}
			switch done {
			case "one removed":
				remove(two)
			case "all removed":
				remove(one)
				remove(two)
			case "one loaded":
				remove(one)
				remove(two)
				require.NoError(t, e.loadBytes(t, app, ours(t, two, app+":2"), imagestore.LoadRequest{URL: app + ":2", Want: two.identity()}))
			}
			spec.Source, spec.Finish = "", true
			_, err = e.repair(t, spec)
			require.NoError(t, err)
			for _, s := range []sample{one, two} {
				img, err := e.Find(ctx, app, s.identity(), "")
				require.NoError(t, err)
				require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
				require.Len(t, img.Tags, 2)
				require.NoError(t, e.removeImages(ctx, []Image{img}))
			}
		})
	}
	// One that had not begun to change anything does nothing.
	spec := imagestore.RepairRequest{App: app, Dir: t.TempDir(), Finish: true, Want: []imagestore.Damaged{{URL: app + ":1", Identity: one.identity()}}}
	require.NoError(t, os.MkdirAll(filepath.Dir(imagestore.RepairDir(spec.Dir).Path(one.img.ConfigDigest)), 0o755))
	_, err := e.repair(t, spec)
	require.NoError(t, err)
	emptyDir(t, spec.Dir)
}

// TestRepairMissing: an image that is not there at all comes from the source.
func TestRepairMissing(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app}))
	spec := imagestore.RepairRequest{
		App: app, Dir: t.TempDir(),
		Want: []imagestore.Damaged{{URL: app + ":1", Identity: imagestore.Identity{Config: s.img.ConfigDigest}}},
	}
	_, err := e.repair(t, spec)
	require.ErrorContains(t, err, "--from FILE.mender")
	emptyDir(t, spec.Dir)
	spec.Source = sources(t, ours(t, s, "x:1"))
	_, err = e.repair(t, spec)
	require.NoError(t, err)
	require.NoError(t, e.Verify(ctx, app, s.identity(), ""))
	_, err = e.Inspect(ctx, imagestore.OwnRef(app, s.img.ConfigDigest))
	require.NoError(t, err)
}

// TestRepairFromAnotherPlace: the layer is there a second time, over another one;
// in the containerd store as a blob, too.
func TestRepairFromAnotherPlace(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	shared := layerTar(t, entry{"shared", app})
	one := makeImage(t, "amd64", layerTar(t, entry{"one", app + "1"}), shared)
	two := makeImage(t, "amd64", layerTar(t, entry{"two", app + "2"}), shared)
	for _, s := range []sample{one, two} {
		require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":x"), imagestore.LoadRequest{Want: s.identity(), Stage: true}))
	}
	require.NoError(t, os.Remove(filepath.Join(e.unpacked(t, one, 1), "shared")))
	spec := imagestore.RepairRequest{
		App: app, Dir: t.TempDir(),
		Want: []imagestore.Damaged{{URL: app + ":1", Identity: one.identity()}},
	}
	_, err := e.repair(t, spec)
	require.NoError(t, err)
	require.NoError(t, e.Verify(ctx, app, one.identity(), ""))
	require.NoError(t, e.Verify(ctx, app, two.identity(), ""))
}
