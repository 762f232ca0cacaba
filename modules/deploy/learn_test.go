package deploy

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store"
)

// pupil notes what it is told, in its order.
type pupil struct{ told []string }

func (p *pupil) Revocations(m *artifact.Metadata) error {
	p.told = append(p.told, "revocations "+string(m.Revocations))
	return nil
}

func (p *pupil) Time(application string, s *statement.Signed) error {
	p.told = append(p.told, "time of "+application+" "+s.Version)
	return nil
}

// A list of revocations is learnt before the artifact is judged, so also from one that is
// refused; the time of a statement only after it is trusted. A check of an artifact learns
// nothing.
func TestLearns(t *testing.T) {
	v1 := release{app: "shop", name: "shop-1", images: []string{"web 1"}, version: "1"}
	g := newRig(t)
	var p pupil
	var refuse error
	g.with = func(e *Engine) {
		e.Learn = &p
		e.Trust = func(string, *statement.Signed) error {
			p.told = append(p.told, "trust")
			return refuse
		}
	}
	m := v1.meta()
	v1.sign(t, m, m)
	m.Revocations = json.RawMessage(`{"list":1}`)
	refuse = unfit("nobody trusts it")
	require.ErrorIs(t, g.call(modules.Download, g.withMeta(t, v1, m)), ErrUnfit)
	require.Equal(t, []string{`revocations {"list":1}`, "trust"}, p.told)

	p.told, refuse = nil, nil
	_, err := g.engine().Check(t.Context(), v1.name, m, Manifests{Lacking: "not needed"})
	require.NoError(t, err)
	require.Equal(t, []string{"trust"}, p.told)

	p.told = nil
	cl := newClient(g, true)
	require.NoError(t, cl.install(g.withMeta(t, v1, m)))
	require.NoError(t, cl.commit())
	require.Equal(t, []string{`revocations {"list":1}`, "trust", "time of shop 1"}, p.told)
}

// An operator cannot go back to a release that must not run again, and what runs goes on. An
// update that fails still ends with the release before it, whatever was learnt since.
func TestMayGoBack(t *testing.T) {
	v1 := release{app: "shop", name: "shop-1", images: []string{"web 1"}, version: "1"}
	v2 := release{app: "shop", name: "shop-2", images: []string{"web 2"}, version: "2"}
	g := newRig(t)
	asked := 0
	g.with = func(e *Engine) {
		e.MayGoBack = func(r *store.Release) error {
			require.Equal(t, "shop-1", r.ArtifactName)
			asked++
			return errors.New("it is revoked")
		}
	}
	cl := newClient(g, true)
	for _, v := range []release{v1, v2} {
		require.NoError(t, cl.install(g.newTree(t, v)))
		require.NoError(t, cl.commit())
	}
	_, err := g.engine().GoBack(t.Context(), "shop", "")
	require.ErrorContains(t, err, "it is revoked")
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")
	require.Equal(t, 1, asked)

	g = newRig(t)
	g.with = func(e *Engine) { e.MayGoBack = func(*store.Release) error { return errors.New("it is revoked") } }
	cl = newClient(g, true)
	require.NoError(t, cl.install(g.newTree(t, v1)))
	require.NoError(t, cl.commit())
	require.NoError(t, cl.install(g.newTree(t, v2)))
	require.NoError(t, cl.rollback())
	g.runs(t, "shop", &v1)
}
