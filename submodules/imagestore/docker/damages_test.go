package docker

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules/imagestore"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// inPlace is the classic store of an engine on this machine.
func inPlace(t *testing.T, e *Engine) *overlay {
	t.Helper()
	o, err := e.openOverlay(t.Context())
	require.NoError(t, err)
	if o == nil {
		t.Skip("this test needs an engine with the classic store on this machine")
	}
	return o
}

// layerDir is where the driver has a layer of an image.
func layerDir(t *testing.T, o *overlay, s sample, n int) string {
	t.Helper()
	dir, err := o.place(filepath.Join(o.root, "image", "overlay2", "layerdb", "sha256", image.ChainIDs(s.img.DiffIDs)[n].Hex()))
	require.NoError(t, err)
	return dir
}

// TestDamages: every damaged layer and file is named.
func TestDamages(t *testing.T) {
	e, app := engine(t)
	base := layerTar(t, entry{"d/a", app + "a"}, entry{"d/b", app + "b"}, entry{"d/empty", ""}, entry{"e", app + "e"})
	over := layerTar(t, entry{"d/.wh.b", ""}, entry{"d/c", app + "c"})
	s := makeImage(t, "amd64", base, over)
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{}))
	img, err := e.Find(t.Context(), app, s.identity(), "")
	require.NoError(t, err)
	whole, err := e.Damages(t.Context(), img)
	require.NoError(t, err)
	require.Empty(t, whole)

	lower, upper := e.unpacked(t, s, 0), e.unpacked(t, s, 1)
	require.NoError(t, os.Truncate(filepath.Join(lower, "d/a"), 0))
	require.NoError(t, os.WriteFile(filepath.Join(lower, "d/b"), []byte(strings.Repeat("x", len(app)+1)), 0o644))
	require.NoError(t, os.Remove(filepath.Join(lower, "d/empty")))
	require.NoError(t, os.Remove(filepath.Join(lower, "d/link")))
	require.NoError(t, os.Remove(filepath.Join(upper, "d/b")))
	above := []string{"d/b is not removed any more"}
	if !e.twice(t) {
		require.NoError(t, os.WriteFile(filepath.Join(upper, "../link"), nil, 0o644))
		above = append(above, "the driver's file link is damaged")
	}
	have, err := e.Damages(t.Context(), img)
	require.NoError(t, err)
	require.Len(t, have, 2)
	require.Equal(t, s.img.DiffIDs[0], have[0].Layer)
	require.ElementsMatch(t, []string{"d/a has 0 bytes, not 10", "d/b is damaged", "d/empty is missing", "d/link is missing"}, have[0].What)
	require.Equal(t, s.img.DiffIDs[1], have[1].Layer)
	require.ElementsMatch(t, above, have[1].What)
	require.ErrorIs(t, e.Verify(t.Context(), app, s.identity(), ""), submodules.ErrContent)

	// A damaged image that is loaded as one that can be trusted stays damaged;
	// as a suspect one it is loaded again.
	spec := imagestore.LoadRequest{Want: s.identity()}
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
	require.ErrorIs(t, e.Verify(t.Context(), app, s.identity(), ""), submodules.ErrContent)
	spec.Distrust = true
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
	require.NoError(t, e.Verify(t.Context(), app, s.identity(), ""))
	// A whole one is only read.
	require.NoError(t, e.loadBytes(t, app, nil, spec))
}

// TestSplitOfDamagedRecord: a record of files that is damaged is an error in
// words, not a crash.
func TestSplitOfDamagedRecord(t *testing.T) {
	for name, content := range map[string][]byte{
		"empty": nil, "no gzip": []byte("x"), "no json": zipped(t, "{"), "odd": zipped(t, `{"type":9}`),
		"short": zipped(t, `{"type":2,"payload":"YQ==","position":0}`), "name": zipped(t, `{"type":1,"name":"../../etc/passwd","size":5,"position":0}`),
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			d := digest.Of([]byte(name))
			db := filepath.Join(root, "image/overlay2/layerdb/sha256", image.ChainIDs([]image.Digest{d})[0].Hex())
			require.NoError(t, os.MkdirAll(db, 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(root, "overlay2/x/diff"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(root, "overlay2/l"), 0o755))
			require.NoError(t, os.Symlink("../x/diff", filepath.Join(root, "overlay2/l/X")))
			for file, text := range map[string]string{"diff": d.String(), "cache-id": "x"} {
				require.NoError(t, os.WriteFile(filepath.Join(db, file), []byte(text), 0o644))
			}
			require.NoError(t, os.WriteFile(filepath.Join(root, "overlay2/x/link"), []byte("X"), 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(db, "tar-split.json.gz"), content, 0o644))
			o := &overlay{root: root}
			img := Image{}
			img.DiffIDs = []image.Digest{d}
			have, err := o.damages(t.Context(), img)
			require.NoError(t, err)
			require.Len(t, have, 1)
			require.Len(t, have[0].What, 1, "%v", have)
		})
	}
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// TestNamesOnly: the archive that layers are dropped with is one.
func TestNamesOnly(t *testing.T) {
	d := digest.Of([]byte("x"))
	config, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []image.Digest{d}}})
	require.NoError(t, err)
	imgs, err := image.ReadStream(bytes.NewReader(namesOnly(digest.Of(config), config, []image.Digest{d})), image.Limits{}, image.Handler{})
	require.NoError(t, err)
	require.Len(t, imgs, 1)
	require.Equal(t, digest.Of(config), imgs[0].ConfigDigest)
	require.Equal(t, []string{""}, imgs[0].Members)
}
