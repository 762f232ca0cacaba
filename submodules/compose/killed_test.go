package compose

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Docker Compose is killed in any one of its calls, as by a kernel that is out of memory. It is
// called again. One that is killed each time says nothing of the files.
func TestComposeIsKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1}}
	dir := t.TempDir()
	wrapper, left := filepath.Join(dir, "compose"), filepath.Join(dir, "left")
	require.NoError(t, os.WriteFile(wrapper, []byte(fmt.Sprintf(`#!/bin/sh
case "$*" in *version*) exec docker compose "$@" ;; esac
n=$(cat '%[1]s')
[ "$n" = always ] && kill -9 $$
echo $((n - 1)) >'%[1]s'
if [ "$n" = 1 ]; then
	case "$*" in *" up "*) docker compose "$@" & sleep 0.3; kill -9 $! ;; esac
	kill -9 $$
fi
exec docker compose "$@"
`, left)), 0o755))
	b.conf("HEALTH_DEADLINE=20\nHEALTH_WINDOW=300ms\nDOCKER_COMPOSE_COMMAND=" + wrapper + "\n")
	kill := func(call string) { require.NoError(t, os.WriteFile(left, []byte(call+"\n"), 0o644)) }

	for n, more := 1, true; more; n++ { // until there are no more calls than that
		require.Less(t, n, 20)
		release := fmt.Sprint(n)
		req.Dir = b.release(release, compose(b.app, "    command: [sleep, '"+release+"']\n"))
		kill(release)
		require.NoError(t, b.mod.Rollout(t.Context(), req), "the %s. call", release)
		kill(release)
		require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}), "the %s. call", release)
		require.Len(t, b.ids(), 1)
		said, err := os.ReadFile(left)
		require.NoError(t, err)
		uncalled, err := strconv.Atoi(strings.TrimSpace(string(said)))
		require.NoError(t, err)
		more = uncalled <= 0
	}
	kill("always")
	err := b.mod.Start(t.Context(), req)
	require.ErrorContains(t, err, "Docker Compose was killed while it read them")
	require.NotErrorIs(t, err, submodules.ErrContent)
}

// The error of an engine that went away in the middle is one for which the caller waits, also
// where the engine is back by then; what a service says is not.
func TestEngineGone(t *testing.T) {
	t.Parallel()
	newBench(t)
	engine, err := docker.Open(t.Context(), host(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s := &session{engine: engine}
	gone := errors.New(`docker compose up failed half-way: error during connect: Post "http://x/stop": EOF`)
	require.ErrorIs(t, s.orGone(t.Context(), gone), submodules.ErrRequirement)
	require.NotErrorIs(t, s.orGone(t.Context(), submodules.Mark(gone, submodules.ErrUnhealthy)), submodules.ErrRequirement)
	require.NotErrorIs(t, s.orGone(t.Context(), errors.New("connection refused")), submodules.ErrRequirement)
	require.NoError(t, s.orGone(t.Context(), nil))
}
