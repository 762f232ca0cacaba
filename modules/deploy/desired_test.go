package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
)

// l1 is loaded and not started. If it were, it would not get healthy.
var l1 = release{app: "shop", name: "shop-l1", images: []string{"web idle", "side same"}, sick: true, policy: "desired_state = 'stopped'"}

// idle reports whether the release is not to be started.
func (r release) idle() bool { return r.name == l1.name }

// idle asserts that a release is there, and that nothing runs.
func (g *rig) idle(t tb, app string, want *release) {
	t.Helper()
	run, up := g.w.running[app]
	require.True(t, !up || run.stopped, "nothing is to run, and %+v does", run)
	a := g.app(t, app)
	require.NotNil(t, a)
	require.True(t, a.Deployment != nil || a.Stopped)
	text, err := os.ReadFile(filepath.Join(a.ManifestsDir(), "compose.yaml"))
	require.NoError(t, err)
	require.Equal(t, want.compose(), string(text))
}

// TestDesiredState: a release that is to be stopped or only loaded is not started, and
// takes the place of the one before, which is stopped. Each step begins where the one
// before it ends.
func TestDesiredState(t *testing.T) {
	well := l1
	well.sick, well.policy = false, "desired_state = 'loaded'"
	both(t, func(t *testing.T, c *client) {
		g := c.g
		for _, s := range []struct {
			name    string
			do      func() error
			fails   string
			is      *release
			stopped bool
		}{
			{"first", func() error { return installCommit(c, g.newTree(t, l1)) }, "", &l1, true},
			{"a person cannot start it", func() error { return g.engine().Start(t.Context(), "shop") }, "healthy", nil, true},
			{"a running release over it", func() error { return installCommit(c, g.newTree(t, v1)) }, "", &v1, false},
			{"over a running release, rolled back", func() error { return installRollback(c, g.newTree(t, l1)) }, "", &v1, false},
			{"over a running release", func() error { return installCommit(c, g.newTree(t, l1)) }, "", &l1, true},
			{"a release that fails, over it", func() error { return installCommit(c, g.newTree(t, v3)) }, "healthy", &l1, true},
			{"the same again", func() error { return installCommit(c, g.newTree(t, well)) }, "", &well, true},
			{"the boot stops it", func() error {
				g.boot++
				run := g.w.running["shop"]
				run.stopped = false
				g.w.running["shop"] = run
				_, err := g.engine().Resume(t.Context(), "", "")
				return err
			}, "", &well, true},
			{"a person starts it", func() error { return g.engine().Start(t.Context(), "shop") }, "", nil, false},
			{"a release that fails, over the started one", func() error { return installCommit(c, g.newTree(t, v3)) }, "healthy", nil, false},
			{"a person stops it", func() error { return g.engine().Stop(t.Context(), "shop") }, "", &well, true},
		} {
			err := s.do()
			if s.fails == "" {
				require.NoError(t, err, s.name)
			} else {
				require.ErrorContains(t, err, s.fails, s.name)
			}
			require.False(t, c.broken, s.name)
			require.Equal(t, s.stopped, g.app(t, "shop").Stopped, s.name)
			if s.is != nil {
				g.is(tbAt{t, s.name}, "shop", s.is)
			} else if !s.stopped {
				started := well
				started.name = l1.name
				g.runs(tbAt{t, s.name}, "shop", &started)
			}
			g.clean(tbAt{t, s.name}, "shop")
		}
	})
}

// TestDesiredStateAfterARestart: between installation and commit the boot may have
// started what was stopped.
func TestDesiredStateAfterARestart(t *testing.T) {
	g := newRig(t)
	require.NoError(t, installCommit(newClient(g, true), g.newTree(t, v1)))
	c := newClient(g, true)
	tr := g.newTree(t, l1)
	require.NoError(t, c.install(tr))
	c.restart(tr)
	run := g.w.running["shop"]
	run.stopped = false
	g.w.running["shop"] = run
	require.NoError(t, c.call(modules.ArtifactCommit, tr))
	g.idle(t, "shop", &l1)
}
