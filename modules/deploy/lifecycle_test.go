package deploy

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// installedRig is a device with these releases committed in turn.
func installedRig(t *testing.T, g *rig, releases ...release) *client {
	c := newClient(g, true)
	for _, r := range releases {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	return c
}

func TestStopAndStart(t *testing.T) {
	g := newRig(t)
	c := installedRig(t, g, v1)
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.NoError(t, g.engine().Stop(t.Context(), "shop"), "it can be repeated")
	require.True(t, g.app(t, "shop").Stopped)
	require.True(t, g.w.running["shop"].stopped)

	// The restart of the machine starts it; resume stops it again.
	run := g.w.running["shop"]
	run.stopped = false
	g.w.running["shop"] = run
	g.boot++
	_, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.True(t, g.w.running["shop"].stopped)

	// A failed update leaves it stopped.
	require.Error(t, c.install(g.newTree(t, v3)))
	require.True(t, g.w.running["shop"].stopped)
	require.Equal(t, v1.compose(), g.w.running["shop"].compose)

	require.NoError(t, g.engine().Start(t.Context(), "shop"))
	g.runs(t, "shop", &v1)
	require.False(t, g.app(t, "shop").Stopped)

	// A committed update ends the stop.
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v2)
	require.False(t, g.app(t, "shop").Stopped)
}

func TestStartOfWhatIsSick(t *testing.T) {
	g := newRig(t)
	installedRig(t, g, v1)
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	g.w.sick[v1.compose()] = true
	require.ErrorContains(t, g.engine().Start(t.Context(), "shop"), "healthy")
	require.True(t, g.app(t, "shop").Stopped, "it was not started")
}

func TestLifecycleRefuses(t *testing.T) {
	g := newRig(t)
	c := installedRig(t, g, v1)
	require.ErrorIs(t, g.engine().Stop(t.Context(), "nothing"), store.ErrNoApp)
	require.ErrorIs(t, g.engine().Purge(t.Context(), "shop", false, false), ErrRunning)
	require.NoError(t, c.install(g.newTree(t, v2)))
	for name, err := range map[string]error{
		"stop": g.engine().Stop(t.Context(), "shop"), "start": g.engine().Start(t.Context(), "shop"),
		"purge": g.engine().Purge(t.Context(), "shop", false, true),
	} {
		require.ErrorIs(t, err, ErrOpen, name)
	}
	g.runs(t, "shop", &v2)
	require.NoError(t, c.rollback())
	g.runs(t, "shop", &v1)
}

func TestBackToAReleaseByName(t *testing.T) {
	g := newRig(t)
	g.keep = 3
	installedRig(t, g, v1, v2, v4)
	_, err := g.engine().GoBack(t.Context(), "shop", "9")
	require.ErrorIs(t, err, store.ErrNoRelease)
	require.ErrorContains(t, err, "kept: 2-shop-2, 1-shop-1")
	// In this order: the release that runs is not among those that are kept.
	for _, c := range []struct {
		name string
		want release
	}{{"1", v1}, {"3-shop-4", v4}, {"shop-2", v2}} {
		_, err := g.engine().GoBack(t.Context(), "shop", c.name)
		require.NoError(t, err, c.name)
		g.runs(t, "shop", &c.want)
		g.clean(t, "shop")
		require.Len(t, g.app(t, "shop").Kept, 2)
	}
}

func TestPurge(t *testing.T) {
	g := newRig(t)
	c := installedRig(t, g, v1, v2, o1)
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.NoError(t, g.engine().Purge(t.Context(), "shop", true, false))
	require.Nil(t, g.app(t, "shop"))
	require.Empty(t, g.w.loaded("shop"))
	require.Equal(t, []string{"shop-1 installed", "shop-2 installed", " purged"}, g.history(t, "shop"))
	g.runs(t, "other", &o1)
	g.clean(t, "other")
	require.ErrorIs(t, g.engine().Purge(t.Context(), "shop", true, false), store.ErrNoApp)
	require.NoError(t, c.install(g.newTree(t, v4)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v4)
	g.clean(t, "shop")
}

// What an older version left of a first installation that failed is removed by a resume, and
// by a purge. Of an application that a person runs again, a resume touches nothing.
func TestPurgeOfWhatIsLeft(t *testing.T) {
	g := newRig(t)
	installedRig(t, g, o1)
	g.w.features = append(g.w.features, submodules.FeatureStatus)
	require.NoError(t, g.engine().Remember(g.engine().Store, store.Record{ID: "1", Application: "shop", Status: store.StatusRolledBack}))
	leave := func() { g.w.refs["shop"] = map[digest.Digest]bool{"sha256:x": true} }

	leave()
	e := g.engine()
	e.Installed = func() []string { return []string{"fake"} }
	g.w.running["shop"] = g.w.running["other"]
	_, err := e.Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.NotEmpty(t, g.w.refs["shop"])
	delete(g.w.running, "shop")
	_, err = e.Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.Empty(t, g.w.refs["shop"])
	g.runs(t, "other", &o1)

	leave()
	require.NoError(t, e.Purge(t.Context(), "shop", false, false))
	require.Empty(t, g.w.refs["shop"])
	require.ErrorIs(t, e.Purge(t.Context(), "never", false, false), store.ErrNoApp)
}

// A purge that is killed anywhere, or fails anywhere, is ended by each of what
// may come next.
func TestPurgeKilledAnywhere(t *testing.T) {
	sharedWhole(t)
	for name, next := range map[string]func(t *testing.T, g *rig, c *client){
		"purge": func(t *testing.T, g *rig, _ *client) {
			err := g.engine().Purge(t.Context(), "shop", false, true)
			if !errors.Is(err, store.ErrNoApp) { // it had ended
				require.NoError(t, err)
			}
		},
		"resume": func(t *testing.T, g *rig, _ *client) {
			found, err := g.engine().Resume(t.Context(), "", "")
			require.NoError(t, err)
			require.Empty(t, found)
		},
		"install": func(t *testing.T, g *rig, c *client) {
			require.NoError(t, c.install(g.newTree(t, o1)))
			require.NoError(t, c.commit())
		},
	} {
		if testing.Short() && name != "resume" {
			continue
		}
		for _, fails := range []bool{false, true} {
			for n, step := stride(); ; n += step {
				g := newRig(t)
				c := installedRig(t, g, v1, v2)
				if !stoppedAt(n, fails, func() { _ = g.engine().Purge(t.Context(), "shop", false, true) }) {
					g.remove()
					break
				}
				if a := g.app(t, "shop"); a != nil && a.Purge == "" {
					g.runs(t, "shop", &v2) // it had not begun
					g.remove()
					continue
				}
				next(t, g, c)
				require.Nil(t, g.app(t, "shop"), "%s after step %d (fails: %v)", name, n, fails)
				require.Empty(t, g.w.loaded("shop"))
				_, up := g.w.running["shop"]
				require.False(t, up)
				g.named(t)
				g.remove()
			}
		}
	}
}

// What an operator decides is either not recorded or started, whenever the power goes, once
// resume has run.
func TestDecisionKilledAnywhere(t *testing.T) {
	const text = "services: {web: {labels: {a: b}}}"
	with := fmt.Sprint([]submodules.Override{{Name: settings.OperatorLayer, Text: text}})
	var before, after int
	for n := 1; ; n++ {
		g := newRig(t)
		g.w.features = append(g.w.features, submodules.FeatureOverrides, submodules.FeatureCheck)
		installedRig(t, g, v1)
		set := func() { _ = g.engine().SetOverrides(t.Context(), "shop", text) }
		if !stoppedAt(n, false, set) {
			g.remove()
			break
		}
		g.boot++
		_, err := g.engine().Resume(t.Context(), "", "")
		require.NoError(t, err)
		a := g.app(t, "shop")
		require.False(t, a.Deciding)
		if a.Overrides == nil {
			before++
			require.Equal(t, "[]", g.w.running["shop"].overrides, "point %d", n)
		} else {
			after++
			require.Equal(t, with, g.w.running["shop"].overrides, "point %d", n)
		}
		g.runs(t, "shop", &v1)
		g.remove()
	}
	require.NotZero(t, before)
	require.NotZero(t, after)
}

// stoppedAt kills an operation at its n-th point, or makes that fail; false means that it
// has fewer.
func stoppedAt(n int, fails bool, operation func()) (hit bool) {
	count := 0
	restore := durable.Inject(func(string) error {
		if count++; count < n || fails && count > n {
			return nil
		}
		hit = true
		if fails {
			return unix.EIO
		}
		panic(errKilled)
	})
	defer restore()
	defer func() {
		if p := recover(); p != nil && p != errKilled {
			panic(p)
		}
	}()
	operation()
	return hit
}
