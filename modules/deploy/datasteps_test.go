package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// What is done with data is in the journal while it is done, and in the events and the
// history afterwards.
func TestDataIsVisible(t *testing.T) {
	g := newDataRig(t)
	cl := newClient(g, true)
	require.NoError(t, cl.install(g.newTree(t, k1)))
	require.NoError(t, cl.commit())
	during := map[string]bool{}
	g.hooks.during = func(event string) {
		d := g.app(t, "shop").Deployment
		during[event+" "+d.Steps[len(d.Steps)-1].Data] = true
	}
	require.NoError(t, cl.install(g.newTree(t, k2)))
	require.NoError(t, cl.rollback())
	require.True(t, during["migrate "+store.DataMigrate], "%v", during)

	events, err := view.Events(g.engine().Store, "shop")
	require.NoError(t, err)
	var steps []string
	for _, e := range events {
		if e.ArtifactName == k2.name && (e.Phase == "installing" || e.Phase == "rolling-back") {
			steps = append(steps, e.Phase+" "+e.Data)
		}
	}
	require.Equal(t, []string{
		"installing ", "installing copy", "installing migrate", "installing ", "rolling-back ", "rolling-back restore", "rolling-back ",
	}, steps)
	last, found, err := g.engine().Store.Last("shop")
	require.NoError(t, err)
	require.True(t, found)
	require.Positive(t, last.Measured.DataSeconds)
	for _, s := range last.Steps {
		require.True(t, s.Data == "" || s.Outcome == store.OutcomeDone, "%v", s)
		require.False(t, s.End.IsZero())
	}
}
