package compose

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// CHECK says what ROLLOUT then does, and what it would refuse; nothing changes.
func TestCheck(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	_, v2 := b.image("2")
	files := func(web, more string) map[string]string {
		all := compose(b.app, "    volumes: [\"./page:/page\"]\n"+serviceText("stock", b.app+":1")+more)
		all["page"] = web
		return all
	}
	check := func(dir string, components ...submodules.Component) (submodules.Changes, error) {
		return b.mod.Check(t.Context(), submodules.Request{App: b.app, Dir: dir, Components: components})
	}
	write := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		return dir
	}
	one, old := files("one", ""), serviceText("old", b.app+":1")
	got, err := check(write(one), v1)
	require.NoError(t, err)
	require.Equal(t, []string{"stock", "web"}, got.Starts)
	require.Empty(t, b.ids(), "nothing was started")

	require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release("1", files("one", old)), Components: []submodules.Component{v1}}))
	before := b.ids()
	got, err = check(write(files("one", old)), v1)
	require.NoError(t, err)
	require.Equal(t, submodules.Changes{Starts: []string{}, Restarts: []string{}, Keeps: []string{"old", "stock", "web"}, Removes: []string{}, HealthyWithin: 20}, got)
	// The file that web mounts is another one, and a service is gone.
	got, err = check(write(files("two", "")), v1)
	require.NoError(t, err)
	require.Equal(t, submodules.Changes{Starts: []string{}, Restarts: []string{"web"}, Keeps: []string{"stock"}, Removes: []string{"old"}, HealthyWithin: 20}, got)
	// The image under the same name is another one, and not loaded yet.
	got, err = check(write(one), v2)
	require.NoError(t, err)
	require.Equal(t, []string{"stock", "web"}, got.Restarts)
	// What ROLLOUT refuses.
	_, err = check(write(map[string]string{"compose.yaml": "services: {web: {image: 7, no-such-key: 1}}"}), v1)
	require.ErrorIs(t, err, submodules.ErrContent)
	_, err = check(write(compose(b.app, serviceText("more", "no-such-image:1"))), v1)
	require.ErrorIs(t, err, submodules.ErrNotFound)
	require.Equal(t, before, b.ids(), "nothing was touched")

	// What CHECK says is what ROLLOUT does.
	require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release("2", files("two", "")), Components: []submodules.Component{v1}}))
	was, now := before, b.ids()
	require.Equal(t, was["stock"], now["stock"])
	require.NotEqual(t, was["web"], now["web"])
	require.Empty(t, now["old"])
}

// How an image is made and pulled is not compared, wherever its context is: Compose makes no
// container again for it.
func TestCheckOfBuilds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	rollout := func(id, more string) {
		t.Helper()
		require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release(id, compose(b.app, more)), Components: []submodules.Component{v1}}))
	}
	rollout("1", "    build: ..\n    pull_policy: never\n")
	before := b.ids()
	for i, more := range []string{
		"    build: ..\n    pull_policy: never\n", "    build: ../..\n", "    build: {context: ., args: {A: b}}\n    pull_policy: missing\n", "",
	} {
		id := fmt.Sprint(i + 2)
		got, err := b.mod.Check(t.Context(), submodules.Request{App: b.app, Dir: b.release(id, compose(b.app, more)), Components: []submodules.Component{v1}})
		require.NoError(t, err)
		require.Equal(t, []string{"web"}, got.Keeps, more)
		rollout(id, more)
		require.Equal(t, before, b.ids(), more)
	}
}

// CHECK knows what Compose restarts or makes again with a service that changes: it asks
// which Compose the device has.
func TestCheckOfDependents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	files := func(value string) map[string]string {
		on := func(name, more string) string { return serviceText(name, b.app+":1") + "    " + more + "\n" }
		return compose(b.app, "    environment: {A: "+value+"}\n"+
			on("depends", "depends_on: [web]")+
			on("depends-again", "depends_on: [depends]")+
			on("restarts", "depends_on: {web: {condition: service_started, restart: true}}")+
			on("restarts-again", "depends_on: {restarts: {condition: service_started, restart: true}}")+
			on("volumes", "volumes_from: [web]")+
			on("volumes-again", "volumes_from: [volumes]")+
			on("process", "pid: \"service:web\"")+
			on("other", "labels: {a: b}"))
	}
	rollout := func(id, value string) {
		t.Helper()
		require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release(id, files(value)), Components: []submodules.Component{v1}}))
	}
	starts := func() map[string]string {
		t.Helper()
		list, err := b.mod.Status(t.Context(), submodules.Request{App: b.app})
		require.NoError(t, err)
		m := map[string]string{}
		for _, v := range list.Services {
			m[v.Name] = v.Instance + " " + v.Since.String()
		}
		return m
	}
	rollout("1", "a")
	before := starts()
	next := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(next, "compose.yaml"), []byte(files("b")["docker-compose.yml"]), 0o600))
	said, err := b.mod.Check(t.Context(), submodules.Request{App: b.app, Dir: next, Components: []submodules.Component{v1}})
	require.NoError(t, err)
	rollout("2", "b")
	var kept, restarted []string
	for name, at := range starts() {
		if at == before[name] {
			kept = append(kept, name)
		} else {
			restarted = append(restarted, name)
		}
	}
	require.ElementsMatch(t, restarted, said.Restarts)
	require.ElementsMatch(t, kept, said.Keeps)
	require.Contains(t, kept, "other")
}

// A service that was stopped and did not change is started. Its container stays, and so does
// what depends on it.
func TestCheckOfStoppedDependency(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	files := compose(b.app, serviceText("depends", b.app+":1")+"    depends_on: {web: {condition: service_started, restart: true}}\n"+
		serviceText("volumes", b.app+":1")+"    volumes_from: [web]\n")
	r := submodules.Request{App: b.app, Dir: b.release("1", files), Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(t.Context(), r))
	require.NoError(t, b.cli.ContainerStop(t.Context(), b.one("web").ID, container.StopOptions{}))
	was := map[string]string{}
	made := func(name string) string {
		full, err := b.cli.ContainerInspect(t.Context(), b.one(name).ID)
		require.NoError(t, err)
		return full.ID + " " + full.State.StartedAt
	}
	for _, name := range []string{"depends", "volumes", "web"} {
		was[name] = made(name)
	}
	said, err := b.mod.Check(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, said.Starts)
	require.Equal(t, []string{"depends", "volumes"}, said.Keeps)
	require.NoError(t, b.mod.Rollout(t.Context(), r))
	require.NotEqual(t, was["web"], made("web"))
	require.Equal(t, was["depends"], made("depends"))
	require.Equal(t, was["volumes"], made("volumes"))
}

// CHECK is right about services that wait for the health of others, and share the processes
// of those, whichever of them changes.
func TestCheckOfSharedProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	var order []string
	files := func(changed string, n int) map[string]string {
		text := "services:\n"
		order = nil
		on := func(name string, more ...string) {
			order = append(order, name)
			value := 0
			if name == changed {
				value = n
			}
			text += serviceText(name, b.app+":1") + fmt.Sprintf("    environment: {VALUE: \"%d\"}\n", value)
			for _, line := range more {
				text += "    " + line + "\n"
			}
		}
		on("queue", "restart: always", "healthcheck: {test: [CMD, /prog, check, /version], interval: 300ms}")
		on("database", "restart: always")
		on("server", "restart: always", "depends_on: [database]")
		on("requester", "restart: always", "depends_on: {queue: {condition: service_healthy}, server: {condition: service_started}}")
		on("recorder", "restart: always", "depends_on: {queue: {condition: service_healthy}}")
		for _, name := range []string{"requester", "server", "recorder"} {
			on("watch-"+name, "pid: \"service:"+name+"\"", "depends_on: ["+name+"]")
		}
		on("traces")
		on("load", "restart: always")
		return map[string]string{"docker-compose.yml": text}
	}
	rollout := func(id string, files map[string]string) {
		t.Helper()
		require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release(id, files), Components: []submodules.Component{v1}}))
	}
	made := func() map[string]string {
		t.Helper()
		m := map[string]string{}
		for _, name := range order {
			full, err := b.cli.ContainerInspect(t.Context(), b.one(name).ID)
			require.NoError(t, err)
			m[name] = full.ID + " " + full.State.StartedAt
		}
		return m
	}
	rollout("0", files("", 0))
	for i, changed := range []string{"queue", "database", "server", "requester", "recorder", "watch-server", "traces"} {
		before := made()
		next := t.TempDir()
		text := files(changed, i+1)
		require.NoError(t, os.WriteFile(filepath.Join(next, "compose.yaml"), []byte(text["docker-compose.yml"]), 0o600))
		said, err := b.mod.Check(t.Context(), submodules.Request{App: b.app, Dir: next, Components: []submodules.Component{v1}})
		require.NoError(t, err)
		rollout(fmt.Sprint(i+1), text)
		var kept []string
		for name, at := range made() {
			if at == before[name] {
				kept = append(kept, name)
			}
		}
		require.ElementsMatch(t, kept, said.Keeps, "%s changes, and what changed before it changes back", changed)
	}
}

// ids are the containers by their service.
func (b *bench) ids() map[string]string {
	m := map[string]string{}
	for _, name := range []string{"web", "stock", "old"} {
		for _, c := range b.service(name) {
			m[name] = c.ID
		}
	}
	return m
}
