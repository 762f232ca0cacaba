package compose

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// LOGS merges what the containers wrote by time, and follows them over restarts and
// new containers, without a line lost or said twice.
func TestLogs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	files := compose(b.app, "    command: [say, \"300\", \"20ms\"]\n    restart: always\n    stop_signal: SIGTERM\n"+serviceText("other", b.app+":1"))
	req := submodules.Request{App: b.app, Dir: b.release("1", files), Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(t.Context(), req))

	list := func(service string, n int) (lines []submodules.LogLine) {
		t.Helper()
		require.NoError(t, b.mod.Logs(t.Context(), submodules.LogsRequest{Request: submodules.Request{App: b.app}, Service: service, Lines: &n}, func(l submodules.LogLine) error {
			lines = append(lines, l)
			return nil
		}))
		return lines
	}
	require.Eventually(t, func() bool { return len(list("web", 1000)) > 20 }, 20*time.Second, 100*time.Millisecond)
	lines := list("", 10)
	require.Len(t, lines, 11, "ten of one and the only one of the other")
	for i, l := range lines[1:] {
		require.False(t, l.At.Before(lines[i].At))
		require.Equal(t, b.app+"-"+l.Service+"-1", l.Instance)
	}
	require.Equal(t, "prog [sleep]", list("other", 1)[0].Text)
	require.Equal(t, "stdout", list("other", 1)[0].Stream)
	require.Empty(t, list("", 0))
	require.ErrorIs(t, b.mod.Logs(t.Context(), submodules.LogsRequest{Request: submodules.Request{App: b.app}, Service: "none"}, nil), submodules.ErrNotFound)

	// Followed while it is restarted by the engine, and made anew by a person.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var said []string
	ended := make(chan error, 1)
	go func() {
		none := 0
		ended <- b.mod.Logs(ctx, submodules.LogsRequest{Request: submodules.Request{App: b.app}, Service: "web", Lines: &none, Follow: true}, func(l submodules.LogLine) error {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, l.Text)
			return nil
		})
	}()
	runs := func() (list []string) { // the numbers that each run of the program said
		mu.Lock()
		defer mu.Unlock()
		run := ""
		for _, text := range said {
			if strings.HasPrefix(text, "prog ") {
				list, run = append(list, run), ""
				continue
			}
			run += text + "\n"
		}
		return append(list, run)
	}
	require.Eventually(t, func() bool { return strings.Count(runs()[0], "\n") > 5 }, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, b.cli.ContainerKill(t.Context(), b.app+"-web-1", "QUIT"))
	require.Eventually(t, func() bool { r := runs(); return len(r) > 1 && strings.Count(r[1], "\n") > 5 }, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, b.cli.ContainerRemove(t.Context(), b.app+"-web-1", container.RemoveOptions{Force: true}))
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.Eventually(t, func() bool { r := runs(); return len(r) > 2 && strings.Count(r[2], "\n") > 5 }, 20*time.Second, 50*time.Millisecond)
	for _, run := range runs()[1:] {
		require.True(t, strings.HasPrefix(run, "line 1\nline 2\nline 3\nline 4\nline 5\n"), "%q", run)
	}
	cancel()
	require.Error(t, <-ended)
}
