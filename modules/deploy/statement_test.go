package deploy

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
)

// stated makes a tree whose artifact carries a statement, about the metadata that
// stated changes and the manifests of the release about.
func (g *rig) stated(t tb, r, about release, change func(*artifact.Metadata)) *tree {
	t.Helper()
	signed := about.meta()
	if change != nil {
		change(signed)
	}
	m := r.meta()
	about.sign(t, m, signed)
	return g.withMeta(t, r, m)
}

// sign gives metadata a statement with the manifests of a release, by a new key.
func (r release) sign(t tb, m, signed *artifact.Metadata) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	written, err := artifact.WriteManifests(io.Discard, fstest.MapFS{"compose.yaml": {Data: []byte(r.compose())}})
	require.NoError(t, err)
	m.Statement, err = statement.Sign(statement.Of(signed, written.Digest), mender.Options{Key: key})
	require.NoError(t, err)
}

func (g *rig) withMeta(t tb, r release, m *artifact.Metadata) *tree {
	t.Helper()
	tr := g.newTree(t, r)
	b, err := m.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tr.Dir(), "header/meta-data"), b, 0o644))
	return tr
}

// unread is a payload that nobody may read.
type unread struct{ t *testing.T }

func (u unread) Next() (*modules.Stream, error) {
	u.t.Error("the payload is read")
	return nil, io.EOF
}

// An artifact that is not what its statement says, or whose statement the
// configuration does not trust, is refused before its payload is read, and the
// refusal is in the history.
func TestStatementRefused(t *testing.T) {
	v1 := release{app: "shop", name: "shop-1", images: []string{"web 1"}, version: "1"}
	v2 := release{app: "shop", name: "shop-2", images: []string{"web 2"}, version: "2"}
	till := release{app: "till", name: "till-2", images: []string{"web 2"}, version: "2"}
	untrusted := errors.New("refused: nobody trusts it")
	for name, c := range map[string]struct {
		about  release
		change func(*artifact.Metadata)
		trust  error
		says   string
	}{
		"other application": {about: till, says: `it is about application "till", and the artifact has "shop"`},
		"replayed":          {about: v1, says: `it is about version "1", and the artifact has "2"`},
		"other image": {about: v2, change: func(m *artifact.Metadata) { m.Components[0].Digest = digest.Of([]byte("other")) },
			says: "it lacks the component web:1"},
		"not trusted": {about: v2, trust: untrusted, says: "nobody trusts it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			cl := newClient(g, true)
			require.NoError(t, cl.install(g.newTree(t, v1)))
			require.NoError(t, cl.commit())
			before := len(g.w.calls)
			tr := g.stated(t, v2, c.about, c.change)
			e := g.engine()
			e.Trust = func(app string, s *statement.Signed) error {
				require.Equal(t, "shop", app)
				require.NotNil(t, s)
				return c.trust
			}
			release, err := e.lock(context.Background(), "test")
			require.NoError(t, err)
			err = e.download(t.Context(), tr.Tree, unread{t})
			release()
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "refused: ")
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, g.w.calls[before:], "LOAD shop web:1")
			require.Equal(t, []string{"shop-1 installed", "shop-2 refused"}, g.history(t, "shop"))
			g.runs(t, "shop", &v1)
			g.clean(t, "shop")
		})
	}
}

// Where no statement is there, Trust decides.
func TestNoStatement(t *testing.T) {
	v1 := release{app: "shop", name: "shop-1", images: []string{"web 1"}}
	g := newRig(t)
	asked := 0
	g.with = func(e *Engine) {
		e.Trust = func(app string, s *statement.Signed) error {
			require.Nil(t, s)
			if asked++; asked == 1 {
				return unfit("a statement is demanded")
			}
			return nil
		}
	}
	require.ErrorIs(t, g.call(modules.Download, g.newTree(t, v1)), ErrUnfit)
	cl := newClient(g, true)
	require.NoError(t, cl.install(g.newTree(t, v1)))
	require.NoError(t, cl.commit())
	a := g.app(t, "shop")
	r, err := a.Release(a.Current)
	require.NoError(t, err)
	require.Nil(t, r.Statement)
}

// The statement stays with the release, whenever the device is killed.
func TestStatementIsKept(t *testing.T) {
	v1 := release{app: "shop", name: "shop-1", images: []string{"web 1"}, version: "1"}
	v2 := release{app: "shop", name: "shop-2", images: []string{"web 2"}, version: "2"}
	for n := 1; ; n++ {
		g := newRig(t)
		cl := newClient(g, true)
		require.NoError(t, cl.install(g.stated(t, v1, v1, nil)))
		require.NoError(t, cl.commit())
		tr := g.stated(t, v2, v2, nil)
		points, err := g.killedCall(modules.Download, tr, n)
		a := g.app(t, "shop")
		r, rerr := a.Release(a.Current)
		require.NoError(t, rerr)
		s, serr := statement.Parse(r.Statement)
		require.NoError(t, serr)
		require.Equal(t, "1", s.Version)
		if a.Deployment != nil { // a release that is there is there with its statement
			if r, err := a.Release(a.Deployment.To); err == nil {
				s, err := statement.Parse(r.Statement)
				require.NoError(t, err)
				require.NoError(t, s.Check(v2.meta()))
			}
		}
		g.remove()
		if n > points {
			require.NoError(t, err)
			return
		}
	}
}

// The payload is held to the statement: other manifests, and images that neither
// the metadata nor the statement names.
func TestPayloadIsNotAsStated(t *testing.T) {
	v1 := release{app: "shop", name: "shop-1", images: []string{"web 1"}, version: "1"}
	v2 := release{app: "shop", name: "shop-2", images: []string{"web 2"}, version: "2"}
	for name, c := range map[string]struct {
		tree func(g *rig) *tree
		says string
	}{
		"manifests": {func(g *rig) *tree {
			tr := g.stated(t, v2, v2, nil)
			tr.payload[artifact.ManifestsPayload] = v1.payload(t)[artifact.ManifestsPayload]
			return tr
		}, "the manifests are not those that the artifact's statement is about"},
		"an image that nothing names": {func(g *rig) *tree {
			none := v2
			none.images = nil
			tr := g.stated(t, none, none, nil)
			tr.payload = v2.payload(t)
			return tr
		}, "is not announced in the metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			cl := newClient(g, true)
			require.NoError(t, cl.install(g.newTree(t, v1)))
			require.NoError(t, cl.commit())
			tr := c.tree(g)
			err := g.call(modules.Download, tr)
			require.ErrorIs(t, err, artifact.ErrPayload)
			require.ErrorContains(t, err, c.says)
			require.NoError(t, g.call(modules.Cleanup, tr))
			require.NoError(t, cl.install(g.stated(t, v2, v2, nil)))
			require.NoError(t, cl.commit())
			g.runs(t, "shop", &v2)
			g.clean(t, "shop")
		})
	}
}
