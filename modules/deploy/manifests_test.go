package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/submodules"
)

// Manifests that the sub-module refuses change nothing: no data is copied and nothing is
// stopped. Where they come before the images, none is loaded.
func TestManifestsAreCheckedBefore(t *testing.T) {
	called := func(g *rig, verbs ...string) (found bool) {
		for _, c := range g.w.calls {
			found = found || slices.Contains(verbs, strings.Fields(c)[0])
		}
		return found
	}
	start := func(t *testing.T) (*rig, *client) {
		g := newDataRig(t)
		g.w.features = append(g.w.features, submodules.FeatureCheck)
		g.w.unfit[k2.compose()] = true
		cl := newClient(g, true)
		require.NoError(t, cl.install(g.newTree(t, k1)))
		require.NoError(t, cl.commit())
		g.w.calls = nil
		return g, cl
	}
	ended := func(t *testing.T, g *rig) {
		t.Helper()
		require.False(t, called(g, "STOP", "ROLLOUT", "ROLLBACK", "VOLUMES", "RUN"), "%v", g.w.calls)
		g.runs(t, "shop", &k1)
		g.clean(t, "shop")
		require.Equal(t, []string{"shop-k1 installed", "shop-k2 refused"}, g.history(t, "shop"))
	}
	t.Run("images first", func(t *testing.T) {
		g, cl := start(t)
		err := cl.install(g.newTree(t, k2))
		require.ErrorIs(t, err, ErrUnfit)
		require.ErrorContains(t, err, "the device has no such network")
		require.True(t, called(g, "LOAD"))
		ended(t, g)
	})
	t.Run("manifests first", func(t *testing.T) {
		g, _ := start(t)
		tr := g.newTree(t, k2)
		e := g.engine()
		release, err := e.lock(t.Context(), "test")
		require.NoError(t, err)
		err = e.download(t.Context(), tr.Tree, &streams{names: []string{artifact.ManifestsPayload, artifact.ImagesPayload}, payload: tr.payload})
		release()
		require.ErrorIs(t, err, ErrUnfit)
		require.NoError(t, g.call(modules.Cleanup, tr))
		require.False(t, called(g, "LOAD"), "%v", g.w.calls)
		ended(t, g)
	})
	t.Run("what cannot be checked yet is loaded", func(t *testing.T) {
		g, _ := start(t)
		g.w.unfit = nil
		g.w.fail["CHECK"] = 1
		tr := g.newTree(t, k2)
		e := g.engine()
		release, err := e.lock(t.Context(), "test")
		require.NoError(t, err)
		err = e.download(t.Context(), tr.Tree, &streams{names: []string{artifact.ManifestsPayload, artifact.ImagesPayload}, payload: tr.payload})
		release()
		require.NoError(t, err)
		require.NoError(t, g.call(modules.ArtifactInstall, tr))
		g.runs(t, "shop", &k2)
	})
	t.Run("a sub-module without CHECK", func(t *testing.T) {
		g, cl := start(t)
		g.w.features = g.w.features[:len(g.w.features)-1]
		require.NoError(t, cl.install(g.newTree(t, k2)))
		require.False(t, called(g, "CHECK"))
	})
}
