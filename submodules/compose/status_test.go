package compose

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// STATUS tells of each service what the engine knows: since when, how often it was
// restarted, what was wrong, and what it said last.
func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	before := time.Now().Add(-time.Minute)
	files := compose(b.app, "    healthcheck:\n      test: [CMD, /prog, check, /version]\n      interval: 200ms\n"+
		"    depends_on:\n      job:\n        condition: service_completed_successfully\n"+
		serviceText("job", b.app+":1")+"    command: [exit, \"0\"]\n"+
		serviceText("twin", b.app+":1")+"    restart: always\n    stop_signal: SIGTERM\n    deploy: {replicas: 2}\n")
	require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release("1", files), Components: []submodules.Component{v1}}))
	status := func() (submodules.Status, map[string]submodules.Service) {
		t.Helper()
		st, err := b.mod.Status(t.Context(), submodules.Request{App: b.app})
		require.NoError(t, err)
		found := map[string]submodules.Service{}
		for _, v := range st.Services {
			require.True(t, v.Failed.IsZero() || v.Failed.After(before))
			found[v.Instance] = v
		}
		return st, found
	}
	st, found := status()
	require.True(t, st.Alive && st.Healthy, "%+v", st)
	require.Len(t, found, 4)
	name := func(service string) string { return b.app + "-" + service + "-1" }
	require.Equal(t, submodules.Finished, found[name("job")].Health)
	require.Equal(t, submodules.Healthy, found[name("web")].Health)
	require.Equal(t, b.app+":1", found[name("web")].Image)
	require.WithinRange(t, found[name("web")].Since, before, time.Now())
	require.Empty(t, found[name("web")].Failure)
	require.Equal(t, "twin", found[b.app+"-twin-2"].Name)

	// One of the twins ends, is restarted by the engine, and is well again. QUIT is not
	// its stop signal, with which the engine would leave it stopped.
	killed := b.app + "-twin-2"
	require.NoError(t, b.cli.ContainerKill(t.Context(), killed, "QUIT"))
	require.Eventually(t, func() bool { _, found = status(); return found[killed].Restarts == 1 }, 20*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool { st, found = status(); return st.Healthy }, 20*time.Second, 100*time.Millisecond)
	require.Equal(t, submodules.Healthy, found[killed].Health)
	require.Equal(t, "ended and was restarted (1 time)", found[killed].Failure)
	require.NotEmpty(t, found[killed].Said)
	require.False(t, found[killed].Since.Before(found[killed].Failed), "it runs since it was restarted")

	// A container that is gone, and one that is stopped.
	require.NoError(t, b.cli.ContainerRemove(t.Context(), name("twin"), container.RemoveOptions{Force: true}))
	require.NoError(t, b.cli.ContainerStop(t.Context(), name("web"), container.StopOptions{}))
	st, found = status()
	require.False(t, st.Alive || st.Healthy)
	require.Equal(t, submodules.Service{Name: "twin", Health: submodules.Down, Image: b.app + ":1", Failure: "has 1 of 2 containers"}, found[""])
	web := found[name("web")]
	require.Equal(t, submodules.Down, web.Health)
	require.Contains(t, web.Failure, "exited with code 0")
	require.Equal(t, web.Since, web.Failed)
}

// What a service says does not reach the answer as it is.
func TestStatusOfAnUnhealthyService(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	files := compose(b.app, "    healthcheck:\n      test: [CMD, /prog, check, /none]\n      interval: 200ms\n      retries: 2\n")
	require.Error(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release("1", files), Components: []submodules.Component{v1}}))
	st, err := b.mod.Status(t.Context(), submodules.Request{App: b.app})
	require.NoError(t, err)
	require.True(t, st.Alive)
	require.False(t, st.Healthy)
	require.Len(t, st.Services, 1)
	web := st.Services[0]
	require.Equal(t, submodules.Unhealthy, web.Health)
	require.Contains(t, web.Failure, "is unhealthy: the last check failed with 1: prog [check /none] not well")
	require.Equal(t, "prog [sleep]", web.Said)
	require.False(t, web.Failed.IsZero())
}

// A service with no replicas is off. A release of such services alone is refused.
func TestNoReplicas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	release := func(id, more string) submodules.Request {
		return submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release(id, compose(b.app, more))}
	}
	require.ErrorContains(t, b.mod.Rollout(t.Context(), release("1", "    deploy: {replicas: 0}\n"+serviceText("other", b.app+":1")+"    scale: 0\n")), "no service has a container")
	require.NoError(t, b.mod.Rollout(t.Context(), release("2", serviceText("later", b.app+":1")+"    deploy: {replicas: 0}\n")))
	st, err := b.mod.Status(t.Context(), submodules.Request{App: b.app})
	require.NoError(t, err)
	require.True(t, st.Healthy)
	require.Len(t, st.Services, 2)
	require.Equal(t, submodules.Service{Name: "later", Health: submodules.Off, Image: b.app + ":1"}, st.Services[0])
	require.Equal(t, submodules.Healthy, st.Services[1].Health)
}
