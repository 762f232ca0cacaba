package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// Files keep their type from the artifact to the store, in every sub-module, and
// are verified by it, or by what SAVE writes.
func TestFilesKeepTheirType(t *testing.T) {
	for name, g := range map[string]*rig{"plain": newPlainRig(t), "with all features": newRig(t)} {
		t.Run(name, func(t *testing.T) {
			c := newClient(g, true)
			require.NoError(t, c.install(g.newTree(t, f1)))
			require.NoError(t, c.commit())
			require.NoError(t, c.install(g.newTree(t, f2)))
			require.NoError(t, c.commit())
			g.runs(t, "shop", &f2)
			g.clean(t, "shop")
			a := g.app(t, "shop")
			r, err := a.Release(a.Current)
			require.NoError(t, err)
			for _, c := range r.Components {
				require.Equal(t, "binary", c.Type)
			}
			problems, err := g.engine().Verify(t.Context(), "shop")
			require.NoError(t, err)
			require.Empty(t, problems)
		})
	}
}

func TestPlainVerify(t *testing.T) {
	g := newPlainRig(t)
	g.keep = 1
	c := newClient(g, true)
	for _, r := range []release{f1, f2} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	want := f2.meta().Components[0]
	other := digest.Of([]byte("image other"))
	g.w.texts[other], g.w.content[other] = "other", "whole"
	g.w.tags[want.URL] = other
	problems, err := g.engine().Verify(t.Context(), "shop")
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, want.URL+": it is "+other.String()+", and should be "+want.Digest.String(), problems[0].Text)
	delete(g.w.tags, want.URL)
	problems, err = g.engine().Verify(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, want.URL+": it is missing", problems[0].Text)
	left, err := filepath.Glob(filepath.Join(g.dir, "store", "*", "tmp", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A file that is not what the metadata announces is refused before LOAD, whatever
// the sub-module would do with it.
func TestWrongFileIsRefused(t *testing.T) {
	for name, g := range map[string]*rig{"plain": newPlainRig(t), "with all features": newRig(t)} {
		t.Run(name, func(t *testing.T) {
			c := newClient(g, true)
			require.NoError(t, c.install(g.newTree(t, f1)))
			require.NoError(t, c.commit())
			tr := g.newTree(t, f2)
			content := "image " + f2.images[len(f2.images)-1]
			forged := strings.ToUpper(content)
			tr.payload[artifact.ImagesPayload] = repacked(t, f2, content, forged)
			g.w.calls = nil
			err := c.install(tr)
			require.ErrorIs(t, err, artifact.ErrPayload)
			require.ErrorContains(t, err, "and should be "+digest.Of([]byte(content)).String())
			for _, call := range g.w.calls {
				require.False(t, strings.HasPrefix(call, "LOAD shop "+f2.meta().Components[len(f2.images)-1].URL) && !g.w.plain, call)
			}
			g.runs(t, "shop", &f1)
			g.clean(t, "shop")
		})
	}
}

// repacked is the images payload of r, with other content in the place of content.
func repacked(t *testing.T, r release, content, other string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := artifact.NewImagesWriter(&b)
	for i, c := range r.meta().Components {
		text := "image " + r.images[i]
		if text == content {
			text = other
		}
		require.NoError(t, w.Add(artifact.ImageInfo{Digest: c.Digest, URLNew: c.URL, Kind: artifact.KindFull}, int64(len(text)), strings.NewReader(text)))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestIsImageArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, text := range []string{"", "x", strings.Repeat("manifest.json", 1000)} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		archive, err := isImageArchive(path)
		require.NoError(t, err)
		require.False(t, archive)
	}
}

func TestTypesOf(t *testing.T) {
	require.Equal(t, map[string]string{"a": "python-package"}, listedTypes([]submodules.Component{
		{Type: "python-package", URL: "a"}, {Type: "", URL: "b"}, {Type: "Bad", URL: "c"}, {Type: "-x", URL: "d"},
	}))
}

// withDelta is the images payload of d2 with another delta.
func withDelta(t *testing.T, delta string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := artifact.NewImagesWriter(&b)
	for i, c := range d2.meta().Components {
		text, kind := "image "+d2.images[i], artifact.KindFull
		if len(c.Bases) > 0 {
			text, kind = delta, artifact.KindDelta
		}
		require.NoError(t, w.Add(artifact.ImageInfo{Digest: c.Digest, URLNew: c.URL, URLCurrent: c.URL, Kind: kind}, int64(len(text)), strings.NewReader(text)))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}
