package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
)

// cutIn makes a download that loses power right after the point.
func cutIn(t *testing.T, g *rig, tr *tree, point int) {
	t.Helper()
	_, err := g.killedCall(modules.Download, tr, point)
	require.ErrorIs(t, err, errKilled)
	g.w.powerCut()
	g.boot++
}

// pointOf finds the number of the first point of a name that a download passes.
func pointOf(t *testing.T, first, what release, name string) int {
	t.Helper()
	g := newRig(t)
	c := newClient(g, false)
	require.NoError(t, c.install(g.newTree(t, first)))
	require.NoError(t, c.commit())
	n, at := 0, 0
	restore := injectNames(func(p string) {
		if n++; p == name && at == 0 {
			at = n
		}
	})
	defer restore()
	require.NoError(t, g.call(modules.Download, g.newTree(t, what)))
	require.NotZero(t, at, "no point %s", name)
	return at
}

// TestHollowLayerOfInterruptedDownload: a power cut in the middle of LOAD leaves
// a layer that no image has, nobody can delete and the engine takes for present.
func TestHollowLayerOfInterruptedDownload(t *testing.T) {
	at := pointOf(t, v1, v2, "inside.LOAD")
	for _, trusting := range []bool{false, true} {
		g := newRig(t)
		g.w.trusting = trusting
		c := newClient(g, false)
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		cutIn(t, g, g.newTree(t, v2), at)
		hollow := digestOf("shop", "web two")
		require.Equal(t, "hollow", g.w.content[hollow])

		err := c.install(g.newTree(t, v2))
		if trusting {
			require.ErrorContains(t, err, "install the artifact again")
			g.runs(t, "shop", &v1)
			g.clean(t, "shop")
			err = c.install(g.newTree(t, v2))
		}
		require.NoError(t, err)
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")
		list, err := g.engine().Store.Suspects()
		require.NoError(t, err)
		for _, s := range list {
			require.NotContains(t, s.Layers, hollow, "it was verified")
			require.NotContains(t, s.Digests, hollow, "it was verified")
		}
	}
}

// TestVerifiedOnlyWhenSuspect: an update without a power cut reads no image.
func TestVerifiedOnlyWhenSuspect(t *testing.T) {
	g := newRig(t)
	c := newClient(g, false)
	for _, r := range []release{v1, v2} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	require.Error(t, c.install(g.newTree(t, v3)), "it gets never healthy")
	// A download that is given up in the same boot: the next barrier makes
	// durable what it may have left.
	at := pointOf(t, v2, v4, "inside.LOAD")
	_, err := g.killedCall(modules.Download, g.newTree(t, v4), at)
	require.ErrorIs(t, err, errKilled)
	require.NoError(t, c.install(g.newTree(t, v4)))
	require.NoError(t, c.commit())
	list, err := g.engine().Store.Suspects()
	require.NoError(t, err)
	require.Empty(t, list)
	g.w.powerCut()
	g.boot++
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	require.NotContains(t, strings.Join(g.w.calls, "\n"), "VERIFY")
}

// TestDiskThatLied: what was made durable is hollow after the boot. The release
// before is there, is not touched, and runs on.
func TestDiskThatLied(t *testing.T) {
	for _, state := range []modules.State{modules.ArtifactInstall, modules.ArtifactCommit, modules.ArtifactVerifyReboot} {
		t.Run(string(state), func(t *testing.T) {
			both(t, func(t *testing.T, c *client) {
				g := c.g
				require.NoError(t, c.install(g.newTree(t, v1)))
				require.NoError(t, c.commit())
				tr := g.newTree(t, v2)
				require.NoError(t, g.call(modules.Download, tr))
				if state != modules.ArtifactInstall {
					require.NoError(t, g.call(modules.ArtifactInstall, tr))
				}
				g.w.content[digestOf("shop", "web two")] = "hollow"
				g.boot++
				require.ErrorContains(t, g.call(state, tr), "damaged")
				for _, s := range []modules.State{modules.ArtifactRollback, modules.ArtifactFailure, modules.Cleanup} {
					require.NoError(t, g.call(s, tr))
				}
				g.runs(t, "shop", &v1)
				g.clean(t, "shop")
				require.Empty(t, g.w.content[digestOf("shop", "web two")], "what is hollow is deleted")
				require.NoError(t, c.install(g.newTree(t, v2)))
				require.NoError(t, c.commit())
				g.runs(t, "shop", &v2)
			})
		})
	}
}

// TestSuspectSharedComponent: what the running release has in common with the
// one that was interrupted is verified, found good, and never deleted.
func TestSuspectSharedComponent(t *testing.T) {
	g := newRig(t)
	c := newClient(g, false)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	cutIn(t, g, g.newTree(t, v2), pointOf(t, v1, v2, "inside.LOAD"))
	g.w.calls = nil
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit())
	for _, call := range g.w.calls {
		require.NotEqual(t, "DELETE shop side:1", call)
	}
	require.Contains(t, g.w.calls, "VERIFY shop")
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")
}

// TestDamagedSuspects: without the record everything is suspect, and it is
// written anew.
func TestDamagedSuspects(t *testing.T) {
	g := newRig(t)
	c := newClient(g, false)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	cutIn(t, g, g.newTree(t, v2), pointOf(t, v1, v2, "inside.LOAD"))
	path := g.engine().Store.Meta("suspects.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	writeFile(t, path, "{")
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v2)
	require.FileExists(t, path+".corrupt-1")
	_, err := g.engine().Store.Suspects()
	require.NoError(t, err)
}
