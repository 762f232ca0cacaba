package compose

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// RUN runs a command of the new release on the data of the old one, starts nothing else,
// moves no tag, and leaves no container, whether the command succeeds, fails or hangs.
func TestRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1, v2 := b.load("1"), b.load("2")
	const volume = "    restart: always\n    volumes: [\"data:/data\"]\nvolumes:\n  data: {}\n"
	old := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", compose(b.app, volume))}
	t.Cleanup(func() {
		_ = b.mod.Purge(context.Background(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}, Data: true})
	})
	require.NoError(t, b.mod.Rollout(t.Context(), old))
	data, err := b.cli.VolumeInspect(t.Context(), b.app+"_data")
	require.NoError(t, err)

	next := submodules.RunRequest{
		Request: submodules.Request{App: b.app, Components: []submodules.Component{v2}, Dir: b.release("2", compose(b.app, volume))}, Service: "web",
		Words: []string{"write", "/data/migrated", "$OLD ${NEW} -h"}, OldVersion: "1.0", NewVersion: "2.0-1",
	}
	probe := next
	probe.Probe = true
	require.NoError(t, b.mod.Run(t.Context(), probe))
	require.NoFileExists(t, filepath.Join(data.Mountpoint, "migrated"))
	require.Equal(t, "running", b.one("web").State, "it is only asked")

	stop := submodules.StopRequest{Request: next.Request, Remove: true}
	require.NoError(t, b.mod.Stop(t.Context(), stop))
	tags := b.tags(b.app + ":1")
	require.NoError(t, b.mod.Run(t.Context(), next))
	text, err := os.ReadFile(filepath.Join(data.Mountpoint, "migrated"))
	require.NoError(t, err)
	require.Equal(t, "$OLD ${NEW} -h from 1.0 to 2.0-1", string(text))
	require.Contains(t, b.log.String(), "web | wrote /data/migrated")
	require.Equal(t, tags, b.tags(b.app+":1"))
	left := func() []container.Summary {
		list, err := b.cli.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelRun+"="+b.app))})
		require.NoError(t, err)
		return list
	}
	require.Empty(t, left())
	require.Empty(t, b.service("web"), "nothing else was started")

	fails := next
	fails.Words = []string{"exit", "3"}
	err = b.mod.Run(t.Context(), fails)
	require.ErrorContains(t, err, "the command in web exited with 3: my last words")
	require.Empty(t, left())

	// What it wrote to standard output is the reason when it did not complain.
	fails.Words = []string{"write", "/no/such/dir", ""}
	err = b.mod.Run(t.Context(), fails)
	require.ErrorContains(t, err, "the command in web exited with 1: open /no/such/dir: no such file or directory")

	unknown := probe
	unknown.Service = "wbe"
	err = b.mod.Run(t.Context(), unknown)
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "no service wbe to run a command in: they have web")

	// The time is over: nothing is left, although the command would go on.
	hangs := next
	hangs.Words = []string{"sleep"}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	require.ErrorIs(t, b.mod.Run(ctx, hangs), submodules.ErrDeadline)
	require.Empty(t, left())

	// Killed with no time for anything, the command goes on; STOP ends it.
	ctx, kill := context.WithCancel(t.Context())
	b.mod.Config.KillAfter = time.Nanosecond
	done := make(chan error, 1)
	go func() { done <- b.mod.Run(ctx, hangs) }()
	require.Eventually(t, func() bool { return len(left()) == 1 && left()[0].State == "running" }, time.Minute, 50*time.Millisecond)
	info, err := b.cli.ContainerInspect(t.Context(), left()[0].ID)
	require.NoError(t, err)
	require.Contains(t, []container.RestartPolicyMode{"", "no"}, info.HostConfig.RestartPolicy.Name, "the engine does not start it at boot")
	kill()
	require.Error(t, <-done)
	b.mod.Config.KillAfter = 0
	require.NoError(t, b.mod.Stop(t.Context(), stop))
	require.Empty(t, left())
}
