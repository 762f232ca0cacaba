package compose

import (
	"context"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// VOLUMES names what the application alone stores on this machine, and STOP with the
// option remove leaves nothing that the engine could start.
func TestVolumes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	const declared = "volumes:\n  data: {}\n  memory:\n    driver_opts: {type: tmpfs, device: tmpfs}\n"
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1},
		Dir: b.release("1", compose(b.app, "    restart: always\n    volumes: [\"data:/data\", \"memory:/memory\"]\n"+declared))}
	t.Cleanup(func() {
		_ = b.mod.Purge(context.Background(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}, Data: true})
	})
	volumes := func() []submodules.Volume {
		t.Helper()
		list, err := b.mod.Volumes(t.Context(), submodules.VolumesRequest{Request: req})
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []submodules.Volume{{Name: "data"}}, volumes(), "it is not made yet")
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	made, err := b.cli.VolumeInspect(t.Context(), b.app+"_data")
	require.NoError(t, err)
	require.Equal(t, []submodules.Volume{{Name: "data", Dir: made.Mountpoint}}, volumes())
	require.Contains(t, b.log.String(), "volume memory is left out: its content is not in a directory of the engine")

	other, err := b.cli.ContainerCreate(t.Context(), &container.Config{Image: b.app + ":1"},
		&container.HostConfig{Binds: []string{b.app + "_data:/other"}}, nil, nil, b.app+"-other")
	require.NoError(t, err)
	require.Empty(t, volumes())
	require.Contains(t, b.log.String(), "the container "+b.app+"-other uses it too")
	require.NoError(t, b.cli.ContainerRemove(t.Context(), other.ID, container.RemoveOptions{}))

	stop := submodules.StopRequest{Request: req, Remove: true}
	for range 2 {
		require.NoError(t, b.mod.Stop(t.Context(), stop))
		require.Empty(t, b.service("web"))
	}
	require.Len(t, volumes(), 1, "data stays")

	req.Dir = b.release("2", compose(b.app, "    volumes: [\"/data\"]\n"))
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	_, err = b.mod.Volumes(t.Context(), submodules.VolumesRequest{Request: req})
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "the service web stores /data in a volume without a name")
}

// VOLUMES with the option make makes what ROLLOUT would make, so that there can be data
// before, and Compose takes it for its own.
func TestMakeVolumes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	const declared = "volumes:\n  data: {labels: {shelf: top}}\n  memory:\n    driver_opts: {type: tmpfs, device: tmpfs}\n  others: {external: true, name: no-such-volume}\n"
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1},
		Dir: b.release("1", compose(b.app, "    volumes: [\"data:/data\", \"memory:/memory\"]\n"+declared))}
	t.Cleanup(func() {
		_ = b.mod.Purge(context.Background(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}, Data: true})
	})
	for range 2 {
		list, err := b.mod.Volumes(t.Context(), submodules.VolumesRequest{Request: req, Make: true})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "data", list[0].Name)
		require.NotEmpty(t, list[0].Dir)
	}
	made, err := b.cli.VolumeInspect(t.Context(), b.app+"_data")
	require.NoError(t, err)
	require.Equal(t, "top", made.Labels["shelf"])
	for _, name := range []string{b.app + "_memory", "no-such-volume"} {
		_, err := b.cli.VolumeInspect(t.Context(), name)
		require.Error(t, err)
	}
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	again, err := b.cli.VolumeInspect(t.Context(), b.app+"_data")
	require.NoError(t, err)
	require.Equal(t, made.CreatedAt, again.CreatedAt, "it is the same volume")
	require.NotContains(t, b.log.String(), "was not created by Docker Compose")
}
