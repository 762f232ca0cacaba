package compose

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// lose empties a file of a layer where the engine has unpacked it, and changes a
// byte of the blob, in a store that has the layer as that, too. It returns what
// is then said of it.
func (b *bench) lose(diffID digest.Digest, name string, content []byte) (says string) {
	b.Helper()
	info, err := b.cli.Info(b.Context())
	require.NoError(b, err)
	var root unix.Stat_t
	if err := unix.Stat(info.DockerRootDir, &root); err != nil {
		b.Skip("the engine's disk is out of reach")
	}
	files := 0
	says = fmt.Sprintf("layer %s: %s has 0 bytes", diffID, name)
	require.NoError(b, filepath.WalkDir(info.DockerRootDir, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		switch {
		case err != nil: // what is gone meanwhile is another's
			return nil
		case e.IsDir() && (unix.Stat(path, &st) != nil || st.Dev != root.Dev):
			return fs.SkipDir // what containers see
		case !e.Type().IsRegular():
			return nil
		}
		blob := strings.Contains(path, "/blobs/sha256/")
		if !blob && e.Name() != name {
			return nil
		}
		data, err := os.ReadFile(path)
		switch {
		case err != nil:
			return nil
		case !blob && bytes.Equal(data, content):
			files++
			return os.Truncate(path, 0)
		case !blob:
			return nil
		}
		plain := io.Reader(bytes.NewReader(data))
		if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			plain = z
		}
		h := sha256.New()
		if _, err := io.Copy(h, plain); err != nil || digest.OfHash(h) != diffID {
			return nil
		}
		says = fmt.Sprintf("layer %s: its blob sha256:%s", diffID, e.Name())
		data[len(data)/2] ^= 1
		return os.WriteFile(path, data, 0o644)
	}))
	require.Equal(b, 1, files, "files with that content")
	return says
}

// base is a layer that only this test has.
func (b *bench) base() v1.Layer { return layer(b.T, entry{"base", b.baseFile()}) }

func (b *bench) baseFile() []byte { return []byte(strings.Repeat(b.app, 1000)) }

// TestRepair: a layer that two images of one application and one of another
// share is damaged. All three are repaired with an archive of one of them; the
// containers come up again with their data.
func TestRepair(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	one, c1 := b.over("1", b.base())
	two, c2 := b.over("2", b.base())
	other := *b
	other.app = b.app + "-b"
	t.Cleanup(func() { b.clean(other.app) })
	load := func(b *bench, img v1.Image, c submodules.Component) {
		t.Helper()
		require.NoError(t, b.mod.Load(ctx, submodules.LoadRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{c}}, URL: c.URL, Path: b.archive(img, "x:9"), Stage: true}))
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

	says := b.lose(c2.DiffIDs[0], "base", b.baseFile())
	all := submodules.Request{App: b.app, Components: []submodules.Component{c1, c2}}
	bad, err := b.mod.Verify(ctx, all)
	require.NoError(t, err)
	require.Len(t, bad, 2)
	require.Contains(t, bad[0], says)

	own := t.TempDir()
	rep := submodules.RepairRequest{Request: all, Work: own}
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
	rep.Source = t.TempDir()
	tag, err := gname.NewTag("x:1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(filepath.Join(rep.Source, "one"), tag, one))

	// A person's container of the same image.
	made, err := b.cli.ContainerCreate(ctx, &container.Config{Image: imagestore.OwnRef(b.app, image.Digest(c2.Digest))}, &container.HostConfig{NetworkMode: "none"}, nil, nil, b.app+"-mine")
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
		require.NoError(t, b.mod.Save(ctx, submodules.SaveRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{c}}, URL: c.URL, Path: path}))
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
	img, c := b.over("1", b.base())
	require.NoError(t, b.mod.Load(ctx, submodules.LoadRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{c}}, URL: c.URL, Path: b.archive(img, "x:9")}))
	req := submodules.Request{App: b.app, Components: []submodules.Component{c}}
	req.Dir = b.release("1", compose(b.app, "    volumes: [/data]\n"))
	require.NoError(t, b.mod.Rollout(ctx, req))
	web := b.one("web")
	b.lose(c.DiffIDs[2], "version", []byte(b.app+"1"))
	rep := submodules.RepairRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{c}}, Work: t.TempDir(), Source: t.TempDir()}
	tag, err := gname.NewTag("x:1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(filepath.Join(rep.Source, "one"), tag, img))
	_, err = b.mod.Repair(ctx, rep)
	require.ErrorContains(t, err, fmt.Sprintf("container %s keeps data in a volume without a name (/data)", name(web)))
	require.Equal(t, web.ID, b.one("web").ID)
}
