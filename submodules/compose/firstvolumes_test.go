package compose

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// A first release that fails leaves no container, network, volume or reference, however far
// it came and whoever uses its image. A volume that was there before stays.
func TestFailedFirstReleaseLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ more, want string }{
		"no container was made":        {"    runtime: none-such\n", "untime"},
		"its service fails":            {"    command: [exit, \"3\"]\n", "exited with code 3"},
		"somebody has its name":        {"    container_name: person-of-APP\n", "docker rm --force person-of-"},
		"somebody has its network":     {"", "docker network disconnect"},
		"its manifests are not usable": {"    nonsense: true\n", "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			v1 := b.load("1")
			text := "services:\n  web:\n    image: APP:1\n    stop_grace_period: 1s\n    volumes: [\"made:/made\", \"old:/old\", \"/unnamed\"]\n" + c.more + "volumes: {made: {}, old: {}}\n"
			req := submodules.Request{App: b.app, Components: []submodules.Component{v1},
				Dir: b.release("1", map[string]string{"compose.yaml": b.named(text)})}
			_, err := b.cli.VolumeCreate(t.Context(), volume.CreateOptions{Name: b.app + "_old"})
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.cli.VolumeRemove(context.Background(), b.app+"_old", true) })
			// Somebody else's container, of the same image.
			b.docker("tag", imagestore.OwnRef(b.app, v1.Digest), "person:"+b.app)
			b.docker("create", "--name", "person-of-"+b.app, "person:"+b.app)
			if name == "somebody has its network" {
				b.docker("network", "create", b.app+"_default")
				b.docker("network", "connect", b.app+"_default", "person-of-"+b.app)
				b.docker("start", "person-of-"+b.app)
			}
			nets, volumes := len(b.networks()), b.volumes()

			require.ErrorContains(t, b.mod.Rollout(t.Context(), req), c.want)
			_ = b.mod.Stop(t.Context(), submodules.StopRequest{Request: req})
			purge := submodules.Request{App: b.app, Dir: req.Dir, Components: req.Components}
			require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: purge, First: true}))

			require.Empty(t, b.service("web"))
			require.Len(t, b.networks(), nets)
			require.Equal(t, volumes, b.volumes())
			require.Equal(t, []string{"person:" + b.app}, b.tags("person:"+b.app))
			require.NoFileExists(t, filepath.Join(b.store, b.app, madeName))
			b.docker("inspect", "person-of-"+b.app)
		})
	}
}

// What a first release made that did not fail stays without PURGE's option.
func TestVolumesOfAGoodFirstReleaseStay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	t.Cleanup(func() { _ = b.cli.VolumeRemove(context.Background(), b.app+"_made", true) })
	files := compose(b.app, "    volumes: [\"made:/made\"]\nvolumes: {made: {}}\n")
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", files)}
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.FileExists(t, filepath.Join(b.store, b.app, madeName))
	b.release("2", files)
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.NoFileExists(t, filepath.Join(b.store, b.app, madeName), "another release: the volume holds data now")
	require.NoError(t, os.WriteFile(filepath.Join(b.store, b.app, madeName), []byte("{\"release\":\"/elsewhere\",\"volumes\":[\""+b.app+"_made\"]}"), 0o600))
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req, First: true}))
	require.Contains(t, b.volumes(), b.app+"_made")
}

// PURGE finds networks without containers and without manifests, which an older version left.
func TestPurgeOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	b.docker("network", "create", "--label", labelProject+"="+b.app, "--label", labelNetwork+"=default", b.app+"_default")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.Empty(t, b.networks())
	require.Empty(t, b.tags(imagestore.OwnRef(b.app, v1.Digest)))
}
