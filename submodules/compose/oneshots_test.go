package compose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// A job that is done and unchanged does not run again: in no update of others, no stop and
// start, and no rollback. One that changes does.
func TestJobsRunOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	// web waits for awaited, which waits for the health of db. alone is waited for by nobody.
	request := func(id, job, web string) submodules.Request {
		text := fmt.Sprintf(`services:
  db:
    image: %[1]s:1
    network_mode: none
    stop_grace_period: 1s
    healthcheck: {test: [CMD, /prog, check, /version], interval: 300ms}
  awaited:
    image: %[1]s:1
    network_mode: none
    command: [exit, "0", %[2]q]
    depends_on: {db: {condition: service_healthy}}
  alone:
    image: %[1]s:1
    network_mode: none
    restart: on-failure
    command: [exit, "0"]
  quiet:
    image: %[1]s:1
    network_mode: none
    stop_grace_period: 1s
  web:
    image: %[1]s:1
    network_mode: none
    stop_grace_period: 1s
    environment: [WEB=%[3]s]
    depends_on: {awaited: {condition: service_completed_successfully}}
`, b.app, job, web)
		return submodules.Request{App: b.app, Dir: b.release(id, map[string]string{"docker-compose.yml": text}), Components: []submodules.Component{v1}}
	}
	ran := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, name := range []string{"db", "awaited", "alone", "web", "quiet"} {
			full, err := b.cli.ContainerInspect(t.Context(), b.one(name).ID)
			require.NoError(t, err)
			out[name] = full.ID[:12] + " " + full.State.StartedAt
		}
		return out
	}
	check := func(r submodules.Request) submodules.Changes {
		t.Helper()
		c, err := b.mod.Check(t.Context(), r)
		require.NoError(t, err)
		return c
	}
	// next is a request before its release is the current one.
	next := func(job, web string) submodules.Request {
		r, dir := request("next", job, web), t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(r.Dir)))
		r.Dir = dir
		return r
	}
	require.NoError(t, b.mod.Rollout(t.Context(), request("1", "0.1", "1")))
	first := ran()

	// An update of web alone.
	r := next("0.1", "2")
	b.release("1", nil)
	changes := check(r)
	require.Equal(t, []string{"web"}, changes.Restarts)
	require.Equal(t, []string{"alone", "awaited", "db", "quiet"}, changes.Keeps)
	two := request("2", "0.1", "2")
	require.NoError(t, b.mod.Rollout(t.Context(), two))
	second := ran()
	require.NotEqual(t, first["web"], second["web"])
	first["web"] = second["web"]
	require.Equal(t, first, second)
	require.Contains(t, b.log.String(), "service awaited is done and did not change: it does not run again")

	// Stop and start. What was stopped with 0 and is not a job starts, and web after db is well.
	require.NoError(t, b.mod.Stop(t.Context(), submodules.StopRequest{Request: two}))
	require.Equal(t, "exited", string(b.one("quiet").State))
	require.NotContains(t, check(two).Keeps, "quiet", "START starts it")
	require.NoError(t, b.mod.Start(t.Context(), two))
	third := ran()
	require.Equal(t, second["awaited"], third["awaited"])
	require.Equal(t, second["alone"], third["alone"])
	for _, name := range []string{"db", "web", "quiet"} {
		require.NotEqual(t, second[name], third[name])
		require.Equal(t, "running", string(b.one(name).State))
	}
	started := func(name string) string { return strings.Fields(third[name])[1] }
	require.Less(t, started("db"), started("web"), "web waits for what its job has waited for")

	// A job that changes runs, and again when it changes back.
	r = next("0.2", "2")
	b.release("2", nil)
	require.Equal(t, []string{"awaited"}, check(r).Starts)
	require.NoError(t, b.mod.Rollout(t.Context(), request("3", "0.2", "2")))
	fourth := ran()
	require.NotEqual(t, third["awaited"], fourth["awaited"])
	require.Equal(t, third["alone"], fourth["alone"])
	require.Equal(t, third["db"], fourth["db"])
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request("2", "0.1", "2")}))
	require.NotEqual(t, fourth["awaited"], ran()["awaited"])
	require.Equal(t, third["alone"], ran()["alone"])

	// Without the record, a job that nobody waits for may have been a service that was
	// stopped: it runs, as with Compose.
	require.NoError(t, os.Remove(filepath.Join(b.store, b.app, endedName)))
	require.Equal(t, []string{"alone"}, check(two).Starts)
	before := ran()
	require.NoError(t, b.mod.Rollout(t.Context(), two))
	require.NotEqual(t, before["alone"], ran()["alone"])
	require.Equal(t, before["awaited"], ran()["awaited"])
}

// A job that failed runs again.
func TestJobThatFailedRunsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	request := func(id, code string) submodules.Request {
		return submodules.Request{App: b.app, Dir: b.release(id, compose(b.app, "  job:\n    image: "+b.app+":1\n    network_mode: none\n    command: [exit, \""+code+"\"]\n")), Components: []submodules.Component{v1}}
	}
	require.NoError(t, b.mod.Rollout(t.Context(), request("1", "0")))
	done := b.one("job").ID
	require.ErrorIs(t, b.mod.Rollout(t.Context(), request("2", "3")), submodules.ErrUnhealthy)
	require.ErrorIs(t, b.mod.Rollout(t.Context(), request("2", "3")), submodules.ErrUnhealthy, "it is not taken for done")
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request("1", "0")}))
	require.NotEqual(t, done, b.one("job").ID)
}
