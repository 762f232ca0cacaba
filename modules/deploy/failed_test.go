package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
)

// s3 never gets healthy, and its policy leaves it to a person.
var s3 = release{app: "shop", name: "shop-s3", images: []string{"web stays", "side same"}, sick: true, policy: "upgrades = {rollback_on_failure = false}"}

// stays reports whether the release fails and is left to a person.
func (r release) stays() bool { return r.name == s3.name || r.name == h5.name }

// failed reports whether the current release of an application was left to a person.
func (g *rig) failed(app string) bool {
	a := g.app(g.t, app)
	return a != nil && a.HasFailed(a.Current)
}

// stays asserts that a failed release was left as it was.
func (g *rig) stays(t tb, app string, want *release) {
	t.Helper()
	require.Equal(t, want.compose(), g.w.running[app].compose)
	a := g.app(t, app)
	require.NotNil(t, a)
	require.True(t, a.HasFailed(a.Current), "it is marked")
	link, err := os.ReadFile(filepath.Join(a.ManifestsDir(), "compose.yaml"))
	require.NoError(t, err)
	require.Equal(t, want.compose(), string(link))
}

// TestFailedReleaseStays: the clients know of it, a person goes back, and another
// artifact may replace it.
func TestFailedReleaseStays(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		g.keep = 0 // the way back stays all the same
		fails := func() {
			t.Helper()
			require.ErrorContains(t, c.install(g.newTree(t, s3)), "healthy")
			require.True(t, c.broken, "the client has to know")
			g.stays(t, "shop", &s3)
			g.clean(t, "shop")
		}
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		fails()
		require.Equal(t, []string{"shop-1 installed", "shop-s3 failed"}, g.history(t, "shop"))
		r, err := g.engine().GoBack(t.Context(), "shop", "")
		require.NoError(t, err)
		require.Equal(t, v1.name, r.ArtifactName)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
		require.Empty(t, g.app(t, "shop").Kept, "a failed release is never kept for rollback")

		// Twice; then one that may be rolled back fails as well.
		fails()
		fails()
		require.Len(t, g.app(t, "shop").Kept, 1)
		careful := v3
		careful.policy = "managed = true" // from_unhealthy = false
		require.Error(t, c.install(g.newTree(t, careful)))
		require.False(t, c.broken)
		g.stays(t, "shop", &s3)
		g.clean(t, "shop")
		r, err = g.engine().GoBack(t.Context(), "shop", "")
		require.NoError(t, err)
		require.Equal(t, v1.name, r.ArtifactName)

		fails()
		require.NoError(t, c.install(g.newTree(t, v2)))
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")
		require.False(t, g.failed("shop"))

		// What a person has mended is not failed any more.
		fails()
		g.w.sick[s3.compose()] = false
		require.NoError(t, g.engine().Start(t.Context(), "shop"))
		g.runs(t, "shop", &s3)
		require.False(t, g.failed("shop"))
	})
}

// TestFailedReleaseRefusesRollback: a client that keeps an earlier answer to
// SupportsRollback must not believe that the old release is back. If it has not cleaned
// up, it may know nothing: then the old release comes back.
func TestFailedReleaseRefusesRollback(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	tr := g.newTree(t, s3)
	require.NoError(t, g.call(modules.Download, tr))
	require.False(t, StaysFailed(g.engine().Store, tr.Tree))
	require.Error(t, g.call(modules.ArtifactInstall, tr))
	require.True(t, StaysFailed(g.engine().Store, tr.Tree))
	for _, s := range []modules.State{modules.ArtifactRollback, modules.ArtifactInstall, modules.ArtifactCommit} {
		require.ErrorContains(t, g.call(s, tr), "rollback_on_failure", s)
	}
	require.NoError(t, g.call(modules.ArtifactFailure, tr))
	g.stays(t, "shop", &s3)

	found, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.Equal(t, []Resumed{{App: "shop", Phase: journal.Failed}}, found)
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")
	require.False(t, g.failed("shop"))
}

// TestEngineFailsNotTheRelease: an engine that does not answer says nothing of the
// release, which is rolled back.
func TestEngineFailsNotTheRelease(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		g.w.fail["ROLLOUT"] = 1
		require.Error(t, c.install(g.newTree(t, s3)))
		require.False(t, c.broken)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	})
}
