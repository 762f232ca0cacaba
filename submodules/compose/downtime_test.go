package compose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// A rollout tells how long each service that it restarted was down, also one that
// failed; the rollback tells when it was ready again.
func TestDowntime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1, v2 := b.load("1"), b.load("2")
	files := func(value, more string) map[string]string {
		return compose(b.app, "    environment: {A: "+value+"}\n"+more+serviceText("stock", b.app+":1")+serviceText("twin", b.app+":1")+"    environment: {A: "+value+"}\n")
	}
	var down map[string]submodules.Downtime
	request := func(id, value, more string, c submodules.Component) submodules.Request {
		down = map[string]submodules.Downtime{}
		return submodules.Request{App: b.app, Dir: b.release(id, files(value, more)), Components: []submodules.Component{c}}
	}
	b.mod.Downtimes = func(list []submodules.Downtime) {
		for _, d := range list {
			down[d.Service] = d
		}
	}
	started := func(service string) time.Time {
		full, err := b.cli.ContainerInspect(t.Context(), b.one(service).ID)
		require.NoError(t, err)
		return docker.Time(full.State.StartedAt)
	}
	healthy := "    healthcheck:\n      test: [CMD, /prog, check, /version]\n      interval: 300ms\n"
	require.NoError(t, b.mod.Rollout(t.Context(), request("1", "a", healthy, v1)))
	for _, d := range down {
		require.True(t, d.Down.IsZero(), "nothing ran before: %+v", d)
	}

	// The image has one tag, so stock, of the same content, goes on.
	before := time.Now()
	require.NoError(t, b.mod.Rollout(t.Context(), request("2", "b", healthy, v1)))
	require.Len(t, down, 2, "%+v", down)
	require.Equal(t, started("twin"), down["twin"].Up)
	require.Greater(t, down["web"].Up.Sub(started("web")), 250*time.Millisecond, "until its health check succeeded")
	for _, d := range down {
		require.WithinRange(t, d.Down, before, d.Up)
		require.WithinRange(t, d.Up, d.Down, time.Now())
	}

	// Down in a rollout that fails, and ready again in the rollback.
	sick := "    healthcheck:\n      test: [CMD, /prog, check, /none]\n      interval: 200ms\n      retries: 2\n"
	require.Error(t, b.mod.Rollout(t.Context(), request("3", "c", sick, v2)))
	require.Len(t, down, 3, "%+v", down)
	require.False(t, down["web"].Down.IsZero())
	require.True(t, down["web"].Up.IsZero())
	require.Equal(t, started("stock"), down["stock"].Up)
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request("2", "b", healthy, v1)}))
	require.True(t, down["web"].Up.After(started("web")))
}
