package compose

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// layerFiles is where the classic store has the files of an image's layer.
func (b *bench) layerFiles(c submodules.Component, n int) string {
	b.Helper()
	info, err := b.cli.Info(b.Context())
	require.NoError(b, err)
	if _, err := os.Stat(filepath.Join(info.DockerRootDir, "image", "overlay2", "layerdb")); err != nil || info.Driver != "overlay2" {
		b.Skip("this test needs an engine with the classic store on this machine")
	}
	var ids []image.Digest
	for _, d := range c.DiffIDs {
		ids = append(ids, image.Digest(d))
	}
	chain := image.ChainIDs(ids)[n]
	id, err := os.ReadFile(filepath.Join(info.DockerRootDir, "image", "overlay2", "layerdb", "sha256", chain.Hex(), "cache-id"))
	require.NoError(b, err)
	return filepath.Join(info.DockerRootDir, "overlay2", string(id), "diff")
}

// based is an image over a base that only this test has.
func (b *bench) based(version string) (v1.Image, submodules.Component) {
	b.Helper()
	prog, err := compile()
	require.NoError(b, err)
	img, err := mutate.AppendLayers(empty.Image, layer(b.T, entry{"base", []byte(strings.Repeat(b.app, 1000))}),
		layer(b.T, entry{"prog", prog}), layer(b.T, entry{"version", []byte(b.app + version)}))
	require.NoError(b, err)
	cf, err := img.ConfigFile()
	require.NoError(b, err)
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", goarch()
	cf.Config.Entrypoint, cf.Config.Cmd = []string{"/prog"}, []string{"sleep"}
	img, err = mutate.ConfigFile(img, cf)
	require.NoError(b, err)
	digest, err := img.ConfigName()
	require.NoError(b, err)
	comp := submodules.Component{Type: "image", URL: b.app + ":1", Digest: digest.String()}
	for _, d := range cf.RootFS.DiffIDs {
		comp.DiffIDs = append(comp.DiffIDs, d.String())
	}
	return img, comp
}

// TestRepair: a layer that two images of one application and one of another
// share is damaged. All three are repaired with an archive of one of them; the
// containers come up again with their data.
func TestRepair(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	one, c1 := b.based("1")
	two, c2 := b.based("2")
	other := *b
	other.app = b.app + "-b"
	t.Cleanup(func() { b.clean(other.app) })
	load := func(b *bench, img v1.Image, c submodules.Component) {
		t.Helper()
		require.NoError(t, b.mod.Load(ctx, submodules.Request{
			App: b.app, URL: c.URL, Path: b.archive(img, "x:9"), Options: []string{"stage"}, Components: []submodules.Component{c},
		}))
	}
	load(b, one, c1)
	load(b, two, c2)
	load(&other, one, c1)
	req := submodules.Request{App: b.app, Components: []submodules.Component{c2}}
	req.Dir = b.release("2", compose(b.app, "    volumes: [\"data:/data\"]\nvolumes: {data: {}}\n"))
	require.NoError(t, b.mod.Rollout(ctx, req))
	oreq := submodules.Request{App: other.app, Components: []submodules.Component{c1}}
	oreq.Dir = other.release("1", map[string]string{"docker-compose.yml": "services:\n  web:\n    image: " + b.app + ":1\n    " + host2 + "\n    stop_grace_period: 1s\n"})
	// Both call their images the same: the tag is the one's that came last.
	require.NoError(t, other.mod.Rollout(ctx, oreq))
	vols, err := b.cli.VolumeList(ctx, volume.ListOptions{})
	require.NoError(t, err)
	data := ""
	for _, v := range vols.Volumes {
		if v.Name == b.app+"_data" {
			data = v.Mountpoint
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(data, "kept"), []byte("x"), 0o644))
	t.Cleanup(func() { _ = b.cli.VolumeRemove(context.Background(), b.app+"_data", true) })
	web, oweb := b.one("web"), other.one("web")

	require.NoError(t, os.Truncate(filepath.Join(b.layerFiles(c2, 0), "base"), 0))
	all := submodules.Request{App: b.app, Components: []submodules.Component{c1, c2}}
	bad, err := b.mod.Verify(ctx, all)
	require.NoError(t, err)
	require.Len(t, bad, 2)
	require.Contains(t, bad[0], "layer "+c1.DiffIDs[0]+": base has 0 bytes")

	own := t.TempDir()
	rep := all
	rep.Dir = own
	unchanged := func(says string) {
		t.Helper()
		_, err := b.mod.Repair(ctx, rep)
		require.ErrorIs(t, err, submodules.ErrContent)
		require.ErrorContains(t, err, says)
		entries, err := os.ReadDir(own)
		require.NoError(t, err)
		require.Empty(t, entries)
		require.Equal(t, web.ID, b.one("web").ID)
		require.Equal(t, oweb.ID, other.one("web").ID)
	}
	unchanged("--from FILE.mender")
	rep.Path = t.TempDir()
	tag, err := gname.NewTag("x:1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(filepath.Join(rep.Path, "one"), tag, one))

	// A person's container of the same image.
	made, err := b.cli.ContainerCreate(ctx, &container.Config{Image: c2.Digest}, &container.HostConfig{NetworkMode: "none"}, nil, nil, b.app+"-mine")
	require.NoError(t, err)
	unchanged("docker rm -f " + b.app + "-mine")
	require.NoError(t, b.cli.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}))

	apps, err := b.mod.Repair(ctx, rep)
	require.NoError(t, err)
	require.Equal(t, []string{b.app, other.app}, apps)
	require.Empty(t, b.service("web"))
	bad, err = b.mod.Verify(ctx, all)
	require.NoError(t, err)
	require.Empty(t, bad)
	require.NoError(t, b.mod.Rollout(ctx, req))
	require.NoError(t, other.mod.Rollout(ctx, oreq))
	require.NotEqual(t, web.ID, b.one("web").ID)
	require.FileExists(t, filepath.Join(data, "kept"))
	for _, c := range []submodules.Component{c1, c2} {
		path := filepath.Join(t.TempDir(), "saved")
		require.NoError(t, b.mod.Save(ctx, submodules.Request{App: b.app, URL: c.URL, Path: path, Components: []submodules.Component{c}}))
	}
	list, err := other.mod.List(ctx, submodules.Request{App: other.app})
	require.NoError(t, err)
	require.Len(t, list, 1, "the other application's own reference is back")
}

// TestRepairKeepsAnonymousData: a container whose data a new one would not find
// is not removed.
func TestRepairKeepsAnonymousData(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	img, c := b.based("1")
	require.NoError(t, b.mod.Load(ctx, submodules.Request{App: b.app, URL: c.URL, Path: b.archive(img, "x:9"), Components: []submodules.Component{c}}))
	req := submodules.Request{App: b.app, Components: []submodules.Component{c}}
	req.Dir = b.release("1", compose(b.app, "    volumes: [/data]\n"))
	require.NoError(t, b.mod.Rollout(ctx, req))
	web := b.one("web")
	require.NoError(t, os.Truncate(filepath.Join(b.layerFiles(c, 2), "version"), 0))
	rep := submodules.Request{App: b.app, Dir: t.TempDir(), Path: t.TempDir(), Components: []submodules.Component{c}}
	tag, err := gname.NewTag("x:1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(filepath.Join(rep.Path, "one"), tag, img))
	_, err = b.mod.Repair(ctx, rep)
	require.ErrorContains(t, err, fmt.Sprintf("container %s keeps data in a volume without a name (/data)", name(web)))
	require.Equal(t, web.ID, b.one("web").ID)
}
