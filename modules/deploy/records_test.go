package deploy

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// outcomes are the steps of a record with their outcomes.
func outcomes(r store.Record) (list []string) {
	for _, s := range r.Steps {
		list = append(list, string(s.Phase)+" "+s.Outcome)
	}
	return list
}

// The history says what each deployment did, and what was said in it.
func TestRecordsOfDeployments(t *testing.T) {
	g := newRig(t)
	g.with = func(e *Engine) {
		e.Asked = store.Asked{How: store.AskedByHand, User: "kim"}
		e.Transcript = journal.NewTranscript(slog.DiscardHandler, func(r slog.Record) string { return r.Message })
		e.Transcript.Handler = slog.NewTextHandler(t.Output(), nil)
		e.Log = slog.New(e.Transcript)
	}
	c := newClient(g, true)
	for _, r := range []release{v1, v2} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	require.Error(t, c.install(g.newTree(t, v3)))
	require.NoError(t, c.install(g.newTree(t, v4)))
	require.NoError(t, c.rollback())
	record := func(number int64) store.Record {
		t.Helper()
		r, err := g.engine().Store.Deployment("shop", number)
		require.NoError(t, err)
		for i, s := range r.Steps[1:] {
			require.Equal(t, s.At, r.Steps[i].End)
		}
		return r
	}
	two := record(2)
	require.Equal(t, "shop-1", two.Changed.FromArtifact)
	require.Equal(t, &store.Asked{How: store.AskedByHand, User: "kim"}, two.Asked)
	require.Equal(t, []string{"downloading done", "loaded done", "installing done", "installed done", "committed done", "cleaning done"}, outcomes(two))
	require.Positive(t, two.Measured.Received)
	for _, number := range []int64{2, 3, 4} { // of a release that was removed too
		change := record(number).Changed.Components[0]
		require.NotEqual(t, change.From, change.To, "what changed comes first")
		require.NotEmpty(t, change.To)
	}
	require.Equal(t, []string{"downloading done", "loaded done", "installing failed", "rolling-back done", "rolled-back done"}, outcomes(record(3)))
	require.Equal(t, []string{"downloading done", "loaded done", "installing done", "installed undone", "rolling-back done", "rolled-back done"}, outcomes(record(4)))

	said := func(number int64) (list []string) {
		t.Helper()
		require.NoError(t, g.engine().Store.DeploymentLog("shop", number, func(l store.LogEntry) error {
			list = append(list, l.Step+": "+l.Level+": "+l.Text)
			return nil
		}))
		return list
	}
	require.Contains(t, said(2), "installing: info: rolling out")
	require.Contains(t, said(3), "installing: error: "+record(3).Error)
	require.Contains(t, said(4), "rolling-back: info: rolling back")

	// The download of the fifth is killed: nobody says why.
	require.NoError(t, g.call(modules.Download, g.newTree(t, v4)))
	a := g.app(t, "shop")
	a.Deployment.Phase, a.Deployment.Steps = "downloading", a.Deployment.Steps[:1]
	require.NoError(t, a.Save())
	_, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.Equal(t, []string{"downloading interrupted", "rolled-back done"}, outcomes(record(5)))
}

// A service that went down in a rollout that failed is ready again after the rollback;
// it was down in between as well. What stays failed is down until the end.
func TestDowntimesOfDeployments(t *testing.T) {
	g := newRig(t)
	g.w.features = append(g.w.features, submodules.FeatureDowntime)
	g.w.clock = time.Now().Add(-time.Minute)
	c := newClient(g, true)
	down := func(number int64) store.Downtime {
		t.Helper()
		r, err := g.engine().Store.Deployment("shop", number)
		require.NoError(t, err)
		require.Len(t, r.Measured.Downtimes, 1)
		return r.Measured.Downtimes[0]
	}
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	require.Equal(t, store.Downtime{Service: "web", Seconds: 1}, down(1))

	require.Error(t, c.install(g.newTree(t, v3)))
	require.Equal(t, store.Downtime{Service: "web", Seconds: 2}, down(2))

	d := &store.Deployment{}
	since := time.Now()
	journal.Downtimes(d)([]submodules.Downtime{{Service: "web", Down: since}, {Service: "stock", Up: since}})
	journal.Downtimes(d)([]submodules.Downtime{{Service: "web", Down: since.Add(time.Second)}})
	r := journal.RecordOf("shop", d, store.StatusFailed, since.Add(90*time.Second))
	require.Equal(t, []store.Downtime{{Service: "web", Seconds: 90, Since: since}}, r.Measured.Downtimes)
	require.Zero(t, d.Measured.Downtimes[0].Seconds, "the journal goes on")
}
