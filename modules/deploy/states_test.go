package deploy

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// phases are all but None.
var phases = []journal.Phase{journal.Downloading, journal.Loaded, journal.Installing, journal.Installed, journal.Committed, journal.Cleaning, journal.RollingBack, journal.RolledBack, journal.Failed}

var events = []journal.Event{
	journal.EventReceived, journal.EventStays, journal.EventInstall, journal.EventCommit, journal.EventRollback, journal.EventFailure, journal.EventCleanup,
	journal.EventReboot, journal.EventVerifyReboot, journal.EventVerifyRollback, journal.EventFollow,
}

var (
	v1 = release{app: "shop", name: "shop-1", images: []string{"web one", "side same"}}
	v2 = release{app: "shop", name: "shop-2", images: []string{"web two", "side same"}}
	v3 = release{app: "shop", name: "shop-3", images: []string{"web three", "side same"}, sick: true}
	v4 = release{app: "shop", name: "shop-4", images: []string{"web four", "side same", "more four"}}
	b1 = release{app: "shop", name: "shop-b1", images: []string{"web boot", "side same"}, reboot: true}
	b2 = release{app: "shop", name: "shop-b2", images: []string{"web worn", "side same"}, reboot: true, worn: true}
	o1 = release{app: "other", name: "other-1", images: []string{"web one", "own x"}}
)

// history is how the deployments of an application ended.
func (g *rig) history(t tb, app string) (status []string) {
	records, err := g.engine().Store.History(app)
	require.NoError(t, err)
	for _, r := range records {
		status = append(status, r.ArtifactName+" "+r.Status)
	}
	return status
}

func both(t *testing.T, f func(t *testing.T, c *client)) {
	for name, cpp := range map[string]bool{"3.4.0": false, "C++": true} {
		t.Run(name, func(t *testing.T) { f(t, newClient(newRig(t), cpp)) })
	}
}

func TestInstallUpdateFailRollBack(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, v1)))
		g.runs(t, "shop", &v1)
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")

		require.NoError(t, c.install(g.newTree(t, v2)))
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")
		require.Len(t, g.app(t, "shop").Kept, 1)

		before, err := os.ReadFile(g.app(t, "shop").Dir() + "/app.json")
		require.NoError(t, err)
		require.ErrorContains(t, c.install(g.newTree(t, v3)), "healthy")
		after, err := os.ReadFile(g.app(t, "shop").Dir() + "/app.json")
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "nothing has changed")
		require.False(t, c.broken)
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")

		require.NoError(t, c.install(g.newTree(t, v4)))
		g.runs(t, "shop", &v4)
		require.NoError(t, c.rollback())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")

		require.Equal(t, []string{"shop-1 installed", "shop-2 installed", "shop-3 rolled-back", "shop-4 rolled-back"}, g.history(t, "shop"))

		// Days later.
		r, err := g.engine().GoBack(t.Context(), "shop", "")
		require.NoError(t, err)
		require.Equal(t, "shop-1", r.ArtifactName)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
		require.Len(t, g.app(t, "shop").Kept, 1)

		// Without a name a rollback never leads forward again.
		_, err = g.engine().GoBack(t.Context(), "shop", "")
		require.ErrorIs(t, err, store.ErrNoWayBack)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
		r, err = g.engine().GoBack(t.Context(), "shop", "shop-2")
		require.NoError(t, err)
		require.Equal(t, "shop-2", r.ArtifactName)
	})
}

func TestFirstInstallFails(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		require.Error(t, c.install(c.g.newTree(t, v3)))
		c.g.runs(t, "shop", nil)
		require.Nil(t, c.g.app(t, "shop"))
		require.Equal(t, []string{"shop-3 rolled-back"}, c.g.history(t, "shop"))
		require.NoError(t, c.install(c.g.newTree(t, v1)))
		require.NoError(t, c.commit())
		c.g.runs(t, "shop", &v1)
	})
}

func TestTwoApplications(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		for _, r := range []release{v1, o1, v2} {
			require.NoError(t, c.install(g.newTree(t, r)))
			require.NoError(t, c.commit())
		}
		g.runs(t, "shop", &v2)
		g.runs(t, "other", &o1)
		require.Error(t, c.install(g.newTree(t, v3)))
		g.runs(t, "shop", &v2)
		g.runs(t, "other", &o1)
		g.clean(t, "shop")
		g.clean(t, "other")
		require.Equal(t, "whole", g.w.content[digestOf("", "web one")], "the other application's image")
	})
}

// TestTwoImagesOfOneName: two applications ship different images under one name.
// What fails gives the name back to the one that it took it from.
func TestTwoImagesOfOneName(t *testing.T) {
	theirs := release{app: "other", name: "other-1", images: []string{"cache of other"}}
	bad := release{app: "shop", name: "shop-bad", images: []string{"web bad", "cache of shop"}, sick: true}
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, theirs)))
		require.NoError(t, c.commit())
		for _, before := range []*release{nil, &v1} { // the first release of shop, and a later one
			if before != nil {
				require.NoError(t, c.install(g.newTree(t, *before)))
				require.NoError(t, c.commit())
			}
			require.Error(t, c.install(g.newTree(t, bad)))
			g.runs(t, "shop", before)
			g.runs(t, "other", &theirs)
			require.Equal(t, digestOf("", "cache of other"), g.w.tags["cache:1"])
			g.clean(t, "other")
		}
		// A release before that has the name too keeps it.
		own := release{app: "shop", name: "shop-own", images: []string{"web one", "cache of the shop"}}
		require.NoError(t, c.install(g.newTree(t, own)))
		require.NoError(t, c.commit())
		require.Error(t, c.install(g.newTree(t, bad)))
		g.runs(t, "shop", &own)
		require.Equal(t, digestOf("", "cache of the shop"), g.w.tags["cache:1"])
	})
}

// TestSecondInstallWhileOpen: 3.4.0 allows it, and forgets the first.
func TestSecondInstallWhileOpen(t *testing.T) {
	g := newRig(t)
	c := newClient(g, false)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.Error(t, c.install(g.newTree(t, v3)))
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.install(g.newTree(t, o1)), "of another application, too")
	g.runs(t, "shop", &v1)
	require.NoError(t, c.commit())
	g.runs(t, "other", &o1)
}

func TestRollbackFails(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		g.w.fail["ROLLBACK"] = 2 // in RB and in F
		require.Error(t, c.install(g.newTree(t, v3)))
		require.True(t, c.broken, "the client has to know")
		found, err := g.engine().Resume(t.Context(), "", "")
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, found[0].Err)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	})
}

// TestRepairAfterFailedRollback: a working artifact gets in even where the old
// release cannot be brought back.
func TestRepairAfterFailedRollback(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		g.w.fail["ROLLBACK"] = 3
		require.Error(t, c.install(g.newTree(t, v3)))
		require.NoError(t, c.install(g.newTree(t, v2)))
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")
		require.Contains(t, g.history(t, "shop"), "shop-3 failed")
	})
}

func TestCommitOfSickApplication(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		require.NoError(t, c.install(g.newTree(t, v2)))
		g.w.sick[v2.compose()] = true
		require.ErrorContains(t, c.commit(), "it does not get healthy")
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
		require.False(t, c.broken)
	})
}

// TestRepeatedStates makes each call of an installation twice.
func TestRepeatedStates(t *testing.T) {
	g := newRig(t)
	twice := func(s modules.State, tr *tree) {
		require.NoError(t, g.call(s, tr), s)
		require.NoError(t, g.call(s, tr), s)
	}
	first := g.newTree(t, v1)
	for _, s := range []modules.State{modules.Download, modules.ArtifactInstall, modules.ArtifactCommit, modules.Cleanup} {
		twice(s, first)
	}
	require.NoError(t, g.call(modules.ArtifactCommit, first), "3.4.0 killed in Cleanup commits again")
	require.NoError(t, g.call(modules.Cleanup, first))
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")
	second := g.newTree(t, v2)
	for _, s := range []modules.State{
		modules.Download, modules.ArtifactInstall, modules.ArtifactReboot, modules.ArtifactVerifyReboot, modules.ArtifactCommit,
		modules.ArtifactRollback, modules.ArtifactRollbackReboot, modules.ArtifactVerifyRollbackReboot,
		modules.ArtifactFailure, modules.Cleanup,
	} {
		twice(s, second)
	}
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")
}

// TestOutOfOrder makes calls that no client was seen to make.
func TestOutOfOrder(t *testing.T) {
	for _, s := range []modules.State{modules.ArtifactInstall, modules.ArtifactCommit, modules.ArtifactVerifyReboot} {
		g := newRig(t)
		require.Error(t, g.call(s, g.newTree(t, v1)), s)
		require.Empty(t, g.w.calls)
	}
	for _, s := range []modules.State{modules.ArtifactRollback, modules.ArtifactFailure, modules.Cleanup, modules.ArtifactVerifyRollbackReboot} {
		g := newRig(t)
		require.NoError(t, g.call(s, g.newTree(t, v1)), s)
		require.Empty(t, g.w.calls)
	}
	g := newRig(t)
	tr := g.newTree(t, v1)
	require.NoError(t, g.call(modules.Download, tr))
	require.Error(t, g.call(modules.ArtifactCommit, tr))
	require.NoError(t, g.call(modules.Cleanup, tr))
	require.Error(t, g.call(modules.ArtifactInstall, tr))
	g.runs(t, "shop", nil)
}

func TestTableIsWhole(t *testing.T) {
	for _, p := range append(slices.Clone(phases), journal.None) {
		for i, ev := range slices.Concat(events, events) {
			overwrites := i >= len(events)
			pl, err := journal.PlanFor(p, ev, false, overwrites)
			require.NoError(t, err, "%q %s", p, ev)
			n := 0
			for _, set := range []bool{len(pl.Steps) > 0, pl.Refuse != "", pl.Note != ""} {
				if set {
					n++
				}
			}
			require.Equal(t, 1, n, "%q %s", p, ev)
		}
	}
}

func TestKeepNone(t *testing.T) {
	g := newRig(t)
	g.keep = 0
	c := newClient(g, true)
	for _, r := range []release{v1, v2, v4} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
		g.clean(t, "shop")
	}
	g.runs(t, "shop", &v4)
	_, err := g.engine().GoBack(t.Context(), "shop", "")
	require.ErrorIs(t, err, store.ErrNoWayBack)
}

func TestDeleteFailsOnce(t *testing.T) {
	g := newRig(t)
	g.keep = 0
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	g.w.fail["DELETE"] = 1
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit(), "after the commit nothing fails")
	require.NoError(t, c.install(g.newTree(t, v4)))
	require.NoError(t, c.commit())
	g.clean(t, "shop")
}

func TestDamagedState(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	for _, r := range []release{v1, v2} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	a := g.app(t, "shop")
	writeFile(t, a.Dir()+"/app.json", "{")
	require.NoError(t, c.install(g.newTree(t, v4)))
	require.NoError(t, c.rollback())
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")
	require.FileExists(t, a.Dir()+"/app.json.corrupt-1")
	require.Equal(t, []string{"1-shop-1"}, g.app(t, "shop").Kept)
	_ = store.AdoptedID
}

// TestEngineIsRestarted: a commit and a rollback wait for it.
func TestEngineIsRestarted(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		require.NoError(t, c.install(g.newTree(t, v1)))
		g.w.away = 1
		require.NoError(t, c.commit())
		require.NoError(t, c.install(g.newTree(t, v2)))
		g.w.away = 1
		require.NoError(t, c.rollback())
		require.False(t, c.broken)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")

		// One that stays away is given up.
		g.patience = 1
		require.NoError(t, c.install(g.newTree(t, v2)))
		g.w.away = 1000
		require.ErrorContains(t, c.commit(), "no engine")
		require.True(t, c.broken)
		g.w.away = 0
		found, err := g.engine().Resume(t.Context(), "", "")
		require.NoError(t, err)
		require.NoError(t, found[0].Err)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	})
}

// TestReboot: an application that asks for it gets its restart, and is committed
// only if it is well afterwards.
func TestReboot(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	c.daemon = true
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.Zero(t, g.boot, "it does not ask")
	require.NoError(t, c.commit())

	require.NoError(t, c.install(g.newTree(t, b1)))
	require.Equal(t, 1, g.boot)
	require.NoError(t, c.commit())
	g.runs(t, "shop", &b1)
	g.clean(t, "shop")

	require.ErrorContains(t, c.install(g.newTree(t, b2)), "healthy")
	require.Equal(t, 3, g.boot, "into the new release, and back")
	require.False(t, c.broken)
	g.runs(t, "shop", &b1)
	g.clean(t, "shop")

	tr := g.newTree(t, b1)
	for state, want := range map[modules.State]string{modules.NeedsArtifactReboot: modules.Automatic, modules.SupportsRollback: modules.Yes} {
		answer, asks := Reply(state, tr.Tree)
		require.True(t, asks)
		require.Equal(t, want, answer)
	}
	answer, _ := Reply(modules.NeedsArtifactReboot, g.newTree(t, v1).Tree)
	require.Equal(t, modules.No, answer)
	answer, _ = Reply(modules.NeedsArtifactReboot, nil)
	require.Equal(t, modules.No, answer)
	_, asks := Reply(modules.ArtifactInstall, tr.Tree)
	require.False(t, asks)
}

// A name given back is the same in its short and its full form.
func TestRollbackGivesNamesBack(t *testing.T) {
	for _, name := range []string{"web", "docker.io/library/web", "library/web"} {
		g := newRig(t)
		c := newClient(g, true)
		other := release{app: "other", name: "other-1", images: []string{name + " one"}}
		require.NoError(t, c.install(g.newTree(t, other)))
		require.NoError(t, c.commit())
		require.NoError(t, c.install(g.newTree(t, v1)))
		g.w.calls = nil
		require.NoError(t, c.rollback())
		require.Contains(t, g.w.calls, "LOAD other "+name+":1")
	}
}
