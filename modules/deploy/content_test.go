package deploy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store/durable"
)

// shelf has content by its digest, as a fetcher gives it. What it gives is in the directory
// until it is dropped; a kill comes before the first byte, after half of them and after all.
type shelf struct {
	dir     string
	content map[digest.Digest][]byte
	fetched int
	dropped bool
}

func newShelf(t testing.TB) *shelf {
	return &shelf{dir: filepath.Join(t.TempDir(), "fetched"), content: map[digest.Digest][]byte{}}
}

func (s *shelf) Fetch(_ context.Context, c artifact.Content, sources []string) (*os.File, error) {
	b, ok := s.content[c.Digest]
	if !ok {
		return nil, errors.New("no place has it: " + strings.Join(sources, ", "))
	}
	s.fetched, s.dropped = s.fetched+1, false
	path := filepath.Join(s.dir, c.Digest.Hex())
	for _, part := range [][]byte{nil, b[:len(b)/2], b} {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, part, 0o600); err != nil {
			return nil, err
		}
		if err := durable.Point("fetch"); err != nil {
			return nil, err
		}
	}
	return os.Open(path)
}

func (s *shelf) Drop() error {
	s.dropped = true
	if err := durable.Point("drop"); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

// fromShelf is the tree of a release that is apart.
func (g *rig) fromShelf(t tb, r release) *tree {
	t.Helper()
	if g.shelf == nil {
		g.shelf = newShelf(g.t)
	}
	inside := r
	inside.apart = false
	tr := g.byReference(t, inside, g.shelf)
	tr.release = r
	return tr
}

// A release whose images are apart, one that fails, and one of several images.
var (
	r2 = release{app: "shop", name: "shop-r2", images: []string{"web two", "db one"}, apart: true}
	r3 = release{app: "shop", name: "shop-r3", images: []string{"web three", "db three"}, sick: true, apart: true}
)

var contentScenarios = []scenario{
	{name: "by reference: first install", run: installCommit, what: r2, alike: true},
	{name: "by reference: update", first: &v1, run: installCommit, what: r2},
	{name: "by reference: update fails", first: &v1, run: installCommit, what: r3, alike: true},
	{name: "by reference: update rolled back", first: &v1, run: installRollback, what: r2, alike: true},
}

// byReference is the tree of a release whose images are on a shelf.
func (g *rig) byReference(t tb, r release, s *shelf) *tree {
	t.Helper()
	m := r.meta()
	for i := range m.Components {
		c := &m.Components[i]
		var b bytes.Buffer
		w := artifact.NewImagesWriter(&b)
		text := "image " + r.images[i]
		require.NoError(t, w.Add(artifact.ImageInfo{Digest: c.Digest, URLNew: c.URL, URLCurrent: c.URL, Kind: artifact.KindFull, Variant: -1}, int64(len(text)), strings.NewReader(text)))
		require.NoError(t, w.Close())
		d := digest.Of(b.Bytes())
		s.content[d] = b.Bytes()
		c.Variants = []artifact.Variant{{
			Format: artifact.FormatFull, PayloadBytes: c.PayloadBytes, Content: &artifact.Content{Digest: d, Size: int64(b.Len())},
			Layers: []artifact.VariantLayer{{Encoding: artifact.EncodingVerbatim, Bytes: 10}},
		}}
		c.Format, c.Layers[0].Encoding, c.Layers[0].Bytes = artifact.FormatVariants, artifact.EncodingVariant, 0
	}
	m.Requires = append(m.Requires, artifact.FeatureDelta, artifact.FeatureVariants, artifact.FeatureContent)
	m.ContentSources = []string{"https://downloads.example/content"}
	tr := g.withMeta(t, r, m)
	delete(tr.payload, artifact.ImagesPayload)
	return tr
}

// Images that are outside of the payload are fetched before anything is stopped, one after
// the other, and nothing of them stays. What cannot be fetched, or is of another image,
// changes nothing.
func TestContent(t *testing.T) {
	g := newRig(t)
	s := newShelf(t)
	c := installedRig(t, g, v1)
	refused := func(err error, says string) {
		t.Helper()
		require.ErrorContains(t, err, says)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	}
	refused(c.install(g.byReference(t, v2, s)), "nothing on this device fetches them: install mender-app")

	empty := &shelf{dir: s.dir, content: map[digest.Digest][]byte{}}
	g.with = func(e *Engine) { e.Content = empty }
	refused(c.install(g.byReference(t, v2, s)), "no place has it: https://downloads.example/content")

	swapped := &shelf{dir: s.dir, content: map[digest.Digest][]byte{}}
	other := &shelf{content: map[digest.Digest][]byte{}}
	g.byReference(t, v4, other)
	for d := range s.content {
		for _, b := range other.content {
			swapped.content[d] = b
		}
	}
	g.with = func(e *Engine) { e.Content = swapped }
	refused(c.install(g.byReference(t, v2, s)), "the content is of sha256:")

	g.with = func(e *Engine) { e.Content = s }
	tr := g.byReference(t, v2, s)
	require.NoError(t, g.call(modules.Download, tr))
	require.Positive(t, s.fetched)
	require.True(t, s.dropped)
	g.runs(t, "shop", &v1)
	require.NoError(t, g.call(modules.ArtifactInstall, tr))
	g.runs(t, "shop", &v2)
	require.NoError(t, g.call(modules.ArtifactCommit, tr))
	require.NoError(t, g.call(modules.Cleanup, tr))
	g.clean(t, "shop")
}
