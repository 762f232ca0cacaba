package deploy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

// installAbort is an update that an operator aborts while it waits for its commit.
func installAbort(c *client, tr *tree) error {
	if err := c.install(tr); err != nil {
		return err
	}
	if err := c.g.abort(c.g.t); errors.Is(err, errKilled) {
		return err
	}
	return c.commit() // the client knows nothing of a request, nor of one that failed
}

// abort asks for the end of the open deployment.
func (g *rig) abort(t tb) error { return g.app(t, "shop").RequestAbort(&store.Asked{User: "anna"}) }

// TestAbortOfWhatWaits: the next state fails, and the client rolls back. Hooks learn of
// it, and cannot stop it.
func TestAbortOfWhatWaits(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		f := newFakeHooks(g)
		g.hooks = f
		require.NoError(t, installCommit(c, g.newTree(t, h1)))
		f.fails["pre-abort shop-h2"], f.fails["post-abort shop-h1"] = true, true
		f.ran = nil
		err := installAbort(c, g.newTree(t, h2))
		require.ErrorIs(t, err, ErrAborted)
		require.ErrorContains(t, err, "aborted by an operator (anna)")
		require.Equal(t, []string{"pre-abort shop-h2", "pre-rollback shop-h2", "post-rollback shop-h1", "post-abort shop-h1"}, f.ran[len(f.ran)-4:])
		require.Equal(t, "abort", f.calls[len(f.calls)-1].Operation)
		g.runs(t, "shop", &h1)
		g.clean(t, "shop")
		require.Equal(t, []string{"shop-h1 installed", "shop-h2 rolled-back"}, g.history(t, "shop"))
		records, err := g.engine().Store.History("shop")
		require.NoError(t, err)
		require.Equal(t, "aborted by an operator (anna)", records[1].Error)
		r, err := g.app(t, "shop").Abort()
		require.NoError(t, err)
		require.Nil(t, r, "it ends with the deployment")
		// What is left of a request means nothing to another deployment.
		require.NoError(t, c.install(g.newTree(t, h2)))
		a := g.app(t, "shop")
		a.Deployment.Started = a.Deployment.Started.Add(-time.Second)
		require.NoError(t, a.RequestAbort(nil))
		require.NoError(t, c.commit())
		g.runs(t, "shop", &h2)
	})
}

// TestAbortOfARunningCall: a call that loads or starts a release stops, also where a person
// goes back to a kept one.
func TestAbortOfARunningCall(t *testing.T) {
	for verb, start := range map[string]func(c *client) error{
		"LOAD":    func(c *client) error { return installCommit(c, c.g.newTree(c.g.t, v3)) },
		"ROLLOUT": func(c *client) error { return installCommit(c, c.g.newTree(c.g.t, s3)) },
		"ROLLOUT of a kept release": func(c *client) error {
			_, err := c.g.engine().GoBack(c.g.t.Context(), "shop", "")
			return err
		},
	} {
		t.Run(verb, func(t *testing.T) {
			g := newRig(t)
			c := newClient(g, true)
			require.NoError(t, installCommit(c, g.newTree(t, v1)))
			require.NoError(t, installCommit(c, g.newTree(t, v2)))
			verb, _, _ := strings.Cut(verb, " ")
			g.w.stuck = map[string]func() error{verb: func() error { return g.abort(t) }}
			err := start(c)
			require.ErrorIs(t, err, ErrAborted)
			g.runs(t, "shop", &v2)
			g.clean(t, "shop")
			require.Nil(t, g.app(t, "shop").Deployment)
			require.False(t, c.broken)
			require.Contains(t, []string{"shop-3 rolled-back", "shop-s3 rolled-back", "shop-1 rolled-back"}, g.history(t, "shop")[2])
		})
	}
}
