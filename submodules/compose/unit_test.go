package compose

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/secrets"
)

func TestJudge(t *testing.T) {
	state := func(status string, code int, policy container.RestartPolicyMode, health container.HealthStatus) container.InspectResponse {
		st := &container.State{Status: container.ContainerState(status), Running: status == "running", Restarting: status == "restarting", ExitCode: code}
		if health != "" {
			st.Health = &container.Health{Status: health, Log: []*container.HealthcheckResult{{ExitCode: 1, Output: "no\nanswer"}}}
		}
		return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{State: st, HostConfig: &container.HostConfig{RestartPolicy: container.RestartPolicy{Name: policy}}}}
	}
	for _, c := range []struct {
		state container.InspectResponse
		want  condition
		text  string
	}{
		{state("running", 0, "", ""), well, "is running"},
		{state("running", 0, "", container.Healthy), well, "is healthy"},
		{state("running", 0, "", container.Starting), pending, "is not healthy yet: the last check failed with 1: no answer"},
		{state("running", 0, "", container.Unhealthy), failed, "is unhealthy: the last check failed with 1: no answer"},
		{state("running", 0, "", container.NoHealthcheck), well, "is running"},
		{state("exited", 0, "", ""), well, "is done"},
		{state("exited", 0, "on-failure", ""), well, "is done"},
		{state("exited", 0, "always", ""), failed, "exited with code 0"},
		{state("exited", 7, "", ""), failed, "exited with code 7"},
		{state("restarting", 7, "always", ""), failed, "restarts (exit code 7)"},
		{state("created", 0, "", ""), pending, "is created"},
	} {
		got, text := judge(c.state, true, 0, 0)
		require.Equal(t, c.want, got, text)
		require.Equal(t, c.text, text)
	}
	got, text := judge(state("exited", 0, "", ""), false, 0, 0)
	require.Equal(t, failed, got, "a service that is there to stay")
	require.Contains(t, text, "exited with code 0 but should keep running")
	got, _ = judge(state("restarting", 7, "always", ""), true, 0, 2)
	require.Equal(t, pending, got, "a restart that is forgiven")
	unstarted := state("exited", 137, "always", "")
	unstarted.State.Error = "port is already allocated"
	_, text = judge(unstarted, false, 0, 0)
	require.Equal(t, "could not be started: port is already allocated", text)
	flapping := state("running", 0, "always", "")
	flapping.RestartCount = 3
	got, _ = judge(flapping, true, 0, 0)
	require.Equal(t, failed, got)
	got, _ = judge(flapping, true, 3, 0)
	require.Equal(t, well, got, "what happened before does not count")
	got, _ = judge(flapping, true, 1, 2)
	require.Equal(t, well, got, "some may be forgiven")
}

// Which services may end by themselves, as Compose's JSON has them.
func TestMayEnd(t *testing.T) {
	for text, want := range map[string]bool{
		`{"services":{"x":{}}}`:                                      true,
		`{"services":{"x":{"ports":[{"target":80}]}}}`:               false,
		`{"services":{"x":{"healthcheck":{"test":["CMD","true"]}}}}`: false,
		`{"services":{"x":{"healthcheck":{"test":["NONE"]}}}}`:       true,
		`{"services":{"x":{"healthcheck":{"disable":true}}}}`:        true,
		`{"services":{"x":{"healthcheck":{"test":["CMD","true"]}},"y":{"depends_on":{"x":{"condition":"service_completed_successfully"}}}}}`: true,
		`{"services":{"x":{"ports":[{"target":80}]},"y":{"depends_on":{"x":{"condition":"service_healthy"}}}}}`:                              false,
	} {
		var m model
		require.NoError(t, json.Unmarshal([]byte(text), &m))
		require.Equal(t, want, m.mayEnd("x"), text)
	}
}

func TestSameDir(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real/shop"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.True(t, sameDir("/a/manifests", "/a/manifests"))
	require.True(t, sameDir(filepath.Join(dir, "real/shop/manifests"), filepath.Join(dir, "link/shop/manifests")))
	require.False(t, sameDir(filepath.Join(dir, "real/shop/manifests"), filepath.Join(dir, "real/other/manifests")))
	require.False(t, sameDir("", "/a/manifests"))
	require.True(t, ownDirectory("shop", "/data/mender-app/shop/manifests"))
	require.False(t, ownDirectory("shop", "/data/mender-app/shop2/manifests"))
}

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	env := func(n string) string {
		if n == submodules.EnvConfigDir {
			return dir
		}
		return ""
	}
	var warned []string
	warn := func(_ string, args ...any) { warned = append(warned, args[0].(string)) }
	s, err := readSettings(env, warn)
	require.NoError(t, err)
	require.Equal(t, settings{docker: []string{"docker"}, deadline: defaultDeadline, window: defaultWindow, logLines: defaultLogLines, sandbox: true,
		secrets: secrets.Settings{Identity: secrets.DefaultIdentity, Dir: secrets.DefaultTmpfs}, modules: containermodules.At(containermodules.DefaultDir)}, s)
	modules := filepath.Join(dir, containermodules.ConfigName)
	require.NoError(t, os.WriteFile(modules, []byte("PERSISTENT_STORE=/srv/x\n"), 0o600))
	s, err = readSettings(env, warn)
	require.NoError(t, err)
	require.Equal(t, "/srv/x", s.modules.Dir())
	require.Empty(t, warned)
	require.NoError(t, os.WriteFile(modules, []byte("PERSISTENT_STORE=$(pwd)\n"), 0o600))
	s, err = readSettings(env, func(_ string, args ...any) { warned = append(warned, args[0].(error).Error()) })
	require.NoError(t, err, "another program's file is no reason to fail")
	require.Equal(t, containermodules.DefaultDir, s.modules.Dir())
	require.Len(t, warned, 1)
	require.Contains(t, warned[0], containermodules.ConfigName)
	require.NoError(t, os.Remove(modules))
	warned = nil
	file := filepath.Join(dir, "mender-app-docker-compose.conf")
	require.NoError(t, os.WriteFile(file, []byte("DOCKER_COMMAND=\"/opt/docker -H unix:///x\"\nDOCKER_COMPOSE_COMMAND='docker compose'\nSANDBOX=no\nOTHER=1\n"), 0o600))
	s, err = readSettings(env, warn)
	require.NoError(t, err)
	require.Equal(t, []string{"/opt/docker", "-H", "unix:///x"}, s.docker)
	require.Equal(t, []string{"docker", "compose"}, s.compose)
	require.False(t, s.sandbox)
	require.Len(t, warned, 1)
	require.NoError(t, os.WriteFile(file, []byte("[health]\ndeadline = \"3m\"\nrestarts = 2\n"), 0o600))
	s, err = readSettings(env, warn)
	require.NoError(t, err)
	require.EqualValues(t, 2, s.restarts)
	require.Equal(t, "3m0s", s.deadline.String())
	require.NoError(t, os.WriteFile(file, []byte("HEALTH_WINDOW=soon\n"), 0o600))
	_, err = readSettings(env, warn)
	require.ErrorContains(t, err, "mender-app-docker-compose.conf:1: HEALTH_WINDOW")
}

func TestWithin(t *testing.T) {
	const window = 10 * time.Second
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	require.True(t, within("2026-11-20T11:59:55.123456789Z", now, window))
	require.False(t, within("2026-11-20T11:59:50Z", now, window))
	require.False(t, within("2026-11-20T12:00:01Z", now, window), "the clock was set back")
	require.False(t, within("2026-11-20T12:00:01Z", time.Unix(5, 0), window), "no clock since the boot")
	require.False(t, within("1970-01-01T00:00:03Z", now, window), "the clock came later")
	require.False(t, within("", now, window))
}

// Checks from before a call say nothing about it; as many as the engine needs to call a
// container unhealthy do.
func TestIsStale(t *testing.T) {
	at := func(second int) *container.HealthcheckResult {
		return &container.HealthcheckResult{Start: time.Unix(int64(second), 0), ExitCode: 1}
	}
	seen := func(status container.HealthStatus, log ...*container.HealthcheckResult) container.InspectResponse {
		return container.InspectResponse{
			ContainerJSONBase: &container.ContainerJSONBase{ID: "a", State: &container.State{Running: true, Health: &container.Health{Status: status, Log: log}}},
			Config:            &container.Config{Healthcheck: &container.HealthConfig{Retries: 2}},
		}
	}
	before := map[string]bygone{"a": bygoneOf(seen(container.Unhealthy, at(1), at(2)))}
	require.True(t, isStale(seen(container.Unhealthy, at(1), at(2)), before))
	require.True(t, isStale(seen(container.Unhealthy, at(1), at(2), at(3)), before))
	require.False(t, isStale(seen(container.Unhealthy, at(1), at(2), at(3), at(4)), before))
	require.False(t, isStale(seen(container.Healthy, at(1), at(2)), before))
	late := map[string]bygone{"a": bygoneOf(seen(container.Unhealthy, at(2e9)))}
	require.True(t, isStale(seen(container.Unhealthy, at(2e9), at(1)), late), "the clock was set back")
	require.False(t, isStale(seen(container.Unhealthy, at(2e9), at(1), at(3e9)), late))
	require.False(t, isStale(seen(container.Unhealthy, at(1), at(2), at(3), at(4), at(5)), late), "the engine has forgotten it")
	require.False(t, isStale(seen(container.Unhealthy), nil), "it was made in the call")
	paused := seen(container.Unhealthy, at(1), at(2))
	paused.State.Paused = true
	require.False(t, isStale(paused, before))
}

// A release that comes back may crash a few times.
func TestRestartsAllowed(t *testing.T) {
	require.Equal(t, 0, (&session{}).restartsAllowed())
	require.Equal(t, restartsBack, (&session{back: true}).restartsAllowed())
	require.Equal(t, 7, (&session{back: true, set: settings{restarts: 7}}).restartsAllowed())
}

// What is paused does nothing: ALIVE says so, and reconcile starts it again.
func TestPausedIsNotAlive(t *testing.T) {
	c := container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{State: &container.State{Status: "running", Running: true}}}
	require.Empty(t, (&session{}).dead(c, false))
	c.State.Status, c.State.Paused = "paused", true
	require.Equal(t, "is paused", (&session{}).dead(c, false))
}

// A tree has one hash wherever it lies: a release is checked in a temporary directory, often of
// another file system, and installed in the store.
func TestHashTree(t *testing.T) {
	here := t.TempDir()
	for i := range 300 { // ext4 does not make a directory smaller again
		name := filepath.Join(here, "conf", "sub", strings.Repeat("x", 100)+strconv.Itoa(i))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, nil, 0o644))
		require.NoError(t, os.Remove(name))
	}
	sums := map[string]bool{}
	for _, parent := range []string{here, t.TempDir(), "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, "mender-app-test-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		if parent == here {
			dir = here
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "conf", "sub", "empty"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "conf", "sub", "a"), []byte("a"), 0o644))
		h := sha256.New()
		require.NoError(t, hashTree(h, dir, "conf"))
		sums[string(h.Sum(nil))] = true
	}
	require.Len(t, sums, 1)
}

// Only what is data, and may be written, counts.
func TestWritten(t *testing.T) {
	p := &project{dir: "/store/shop/manifests", data: "/store/shop/data"}
	mounts := []container.MountPoint{
		{Type: "bind", Source: "/store/shop/data/a", RW: true}, {Type: "bind", Source: "/store/shop/data/b"},
		{Type: "volume", Source: "/store/shop/data/c", RW: true}, {Type: "bind", Source: "/etc", RW: true},
	}
	require.Equal(t, []string{"/store/shop/manifests/a"}, p.written([]container.Summary{{Mounts: mounts}}))
	p.data = ""
	require.Empty(t, p.written([]container.Summary{{Mounts: mounts}}))
}
