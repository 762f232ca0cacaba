package containerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	ocidigest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/storetest"
)

// nodeEnv names the directory of a running Kubernetes node, see make test-k8s.
// Without one the tests run on a containerd of their own.
const nodeEnv = "MENDER_APP_K8SNODE"

const config = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "%[1]s/run/containerd.sock"
`

// start runs a containerd in dir until the test ends.
func start(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("containerd"); err != nil || os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs containerd, and root")
		}
		t.Skip("this test needs containerd, and root")
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "run"), 0o755))
	conf := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, config, dir), 0o644))
	cmd := exec.Command("containerd", "--config", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd:\n%s", log.String())
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", filepath.Join(dir, "run/containerd.sock"))
		if err == nil {
			c.Close()
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)
}

func openStore(t *testing.T) *Store {
	t.Helper()
	dir := os.Getenv(nodeEnv)
	if dir == "" {
		if testing.Short() {
			t.Skip("tests on a real containerd are not short")
		}
		var err error
		dir, err = os.MkdirTemp("", "ctr") // a socket's path is short
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		start(t, dir)
	}
	s, err := Open(context.Background(), Config{Address: filepath.Join(dir, "run/containerd.sock"), TempDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type file struct {
	name string
	data []byte
}

// text is content that compresses badly and is the same for the same seed.
func text(seed int64, size int) []byte {
	b := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

func pack(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), Typeflag: tar.TypeReg, ModTime: time.Unix(7, 0)}))
		_, err := w.Write(f.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// build makes an image of layer tars.
func build(t *testing.T, env string, tars ...[]byte) *image.Image {
	t.Helper()
	var layers []image.Layer
	diffIDs := []string{}
	for _, b := range tars {
		layers = append(layers, image.Layer{DiffID: digest.Of(b), Size: int64(len(b)), Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b)), nil
		}})
		diffIDs = append(diffIDs, digest.Of(b).String())
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"V=" + env}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	require.NoError(t, err)
	img, err := image.New(config, layers)
	require.NoError(t, err)
	return img
}

func archived(t *testing.T, img *image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, image.WriteArchive(&b, image.ArchiveSpec{Image: img, RepoTags: []string{"any:1"}}))
	return b.Bytes()
}

func id(img *image.Image) imagestore.Identity {
	return imagestore.Identity{Config: img.ConfigDigest, DiffIDs: img.DiffIDs}
}

// receive brings content in as LOAD does.
func receive(t *testing.T, s *Store, app, url string, content []byte, want imagestore.Identity) (bool, error) {
	t.Helper()
	ctx := context.Background()
	got, loaded, err := imagestore.Receive(ctx, s, bytes.NewReader(content), imagestore.LoadRequest{Want: want, TempDir: t.TempDir(), Log: t.Logf},
		func(c image.Digest) []string { return []string{imagestore.OwnRef(app, c)} })
	if err != nil {
		return loaded, err
	}
	require.NoError(t, s.Tag(ctx, imagestore.OwnRef(app, got.Config), url, got))
	require.NoError(t, s.Tag(ctx, url, url, got))
	t.Cleanup(func() { _ = s.Delete(ctx, app, url, imagestore.Identity{Config: got.Config}) })
	return loaded, nil
}

func TestStoreLife(t *testing.T) {
	s := openStore(t)
	ctx := context.Background()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	app, other := fmt.Sprintf("a%d", seed), fmt.Sprintf("b%d", seed)
	url := fmt.Sprintf("store-test:%d", seed)
	base, top := pack(t, file{"base", text(seed, 300_000)}), pack(t, file{"dir/top", text(seed+1, 1000)})
	img := build(t, "1", base, top)

	loaded, err := receive(t, s, app, url, archived(t, img), id(img))
	require.NoError(t, err)
	require.True(t, loaded)
	loaded, err = receive(t, s, app, url, archived(t, img), id(img))
	require.NoError(t, err)
	require.False(t, loaded, "it is there")
	config, err := s.Config(ctx, "docker.io/library/"+url)
	require.NoError(t, err)
	require.Equal(t, img.ConfigDigest, config)
	pinned, err := s.client.ImageService().Get(ctx, Canonical(url))
	require.NoError(t, err)
	require.Equal(t, "pinned", pinned.Labels[labelPinned])

	t.Log("it comes out as it went in")
	var out bytes.Buffer
	require.NoError(t, s.Archive(ctx, url, imagestore.Identity{}, &out))
	var want bytes.Buffer
	require.NoError(t, image.WriteArchive(&want, image.ArchiveSpec{Image: img, RepoTags: []string{url}}))
	require.True(t, bytes.Equal(want.Bytes(), out.Bytes()))

	list, err := s.List(ctx, app)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, url, list[0].URL)
	require.Equal(t, id(img), list[0].Identity)
	require.False(t, list[0].InUse)
	require.NoError(t, s.Sync(ctx))
	exported, size, err := s.Save(ctx, url)
	require.NoError(t, err)
	require.Greater(t, size, int64(300_000))
	require.NoError(t, exported.Close())

	t.Log("what was unpacked is compared with what was loaded")
	problem, err := s.Verify(ctx, url, id(img))
	require.NoError(t, err)
	require.Empty(t, problem)
	dir, release, err := s.layerDir(ctx, image.ChainIDs(img.DiffIDs)[1])
	require.NoError(t, err)
	require.NotNil(t, dir)
	f, err := dir.OpenFile("dir/top", os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	problem, err = s.Verify(ctx, url, id(img))
	require.NoError(t, err)
	require.Len(t, problem, 1)
	require.Contains(t, problem[0], "dir/top has 0 bytes, not 1000")
	places, err := s.Storage(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, places)
	for _, dir := range places {
		require.DirExists(t, dir)
	}
	release()

	t.Log("one image, two names")
	second := url + "-second"
	own := imagestore.OwnRef(app, img.ConfigDigest)
	urls := func() (urls []string) {
		list, err := s.List(ctx, app)
		require.NoError(t, err)
		for _, l := range list {
			urls = append(urls, l.URL)
		}
		return urls
	}
	require.NoError(t, s.Tag(ctx, own, second, id(img)))
	require.NoError(t, s.Tag(ctx, second, second, id(img)))
	require.ElementsMatch(t, []string{url, second}, urls())
	for range 2 {
		require.NoError(t, s.Delete(ctx, app, second, id(img)))
		require.Equal(t, []string{url}, urls())
		_, err = s.client.ImageService().Get(ctx, Canonical(second))
		require.True(t, errdefs.IsNotFound(err), "its name goes")
		_, err = s.client.ImageService().Get(ctx, Canonical(url))
		require.NoError(t, err, "the image stays")
	}

	t.Log("two applications, one image")
	require.NoError(t, s.Tag(ctx, imagestore.OwnRef(other, img.ConfigDigest), url, id(img)))
	require.NoError(t, s.Delete(ctx, app, url, id(img)))
	config, err = s.Config(ctx, url)
	require.NoError(t, err)
	require.Equal(t, img.ConfigDigest, config)
	require.NoError(t, s.Delete(ctx, other, url, id(img)))
	require.NoError(t, s.Delete(ctx, other, url, id(img)), "again is no error")
	for _, name := range []string{Canonical(url), imagestore.OwnRef(app, img.ConfigDigest), img.ConfigDigest.String()} {
		_, err = s.client.ImageService().Get(ctx, name)
		require.Error(t, err, name)
	}
	ok, err := s.committed(ctx, image.ChainIDs(img.DiffIDs)[1])
	require.NoError(t, err)
	require.False(t, ok, "the snapshots go with it")
	require.ErrorIs(t, s.Tag(ctx, url, url, id(img)), submodules.ErrNotFound)
}

func TestWrongContent(t *testing.T) {
	s := openStore(t)
	ctx := context.Background()
	seed := time.Now().UnixNano()
	url := fmt.Sprintf("wrong:%d", seed)
	img := build(t, "1", pack(t, file{"a", text(seed, 5000)}))
	data := archived(t, img)
	names := func() []string {
		list, err := s.client.ImageService().List(ctx)
		require.NoError(t, err)
		var out []string
		for _, i := range list {
			out = append(out, i.Name)
		}
		slices.Sort(out)
		return out
	}
	before := names()
	_, err := receive(t, s, "x", url, data, imagestore.Identity{Config: digest.Of([]byte("another"))})
	require.ErrorIs(t, err, submodules.ErrContent)
	i := bytes.Index(data, text(seed, 64))
	require.Positive(t, i)
	damaged := bytes.Clone(data)
	damaged[i] ^= 1
	_, err = receive(t, s, "x", url, damaged, id(img))
	require.ErrorIs(t, err, submodules.ErrContent)
	_, err = receive(t, s, "x", url, data[:len(data)/2], id(img))
	require.ErrorIs(t, err, submodules.ErrContent)
	require.Equal(t, before, names(), "nothing of it became an image")
}

// pull puts an image into the store as a pull does: gzip blobs.
func pull(t *testing.T, s *Store, name string, img *image.Image) {
	t.Helper()
	ctx, release, err := s.client.WithLease(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, release(context.Background())) }()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	put := func(mediaType string, data []byte, labels map[string]string) ocispec.Descriptor {
		d := ocidigest.FromBytes(data)
		_, _, err := s.ingest(ctx, bytes.NewReader(data), d, labels)
		require.NoError(t, err)
		return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
	}
	m.Config = put(ocispec.MediaTypeImageConfig, img.Config, nil)
	labels := map[string]string{"containerd.io/gc.ref.content.config": m.Config.Digest.String()}
	st := &stored{config: img.ConfigDigest, diffIDs: img.DiffIDs, desc: m.Config}
	for i, l := range img.Layers {
		r, err := l.Open()
		require.NoError(t, err)
		var z bytes.Buffer
		zw := gzip.NewWriter(&z)
		_, err = io.Copy(zw, r)
		require.NoError(t, err)
		require.NoError(t, zw.Close())
		m.Layers = append(m.Layers, put(ocispec.MediaTypeImageLayerGzip, z.Bytes(), nil))
		labels[fmt.Sprint("containerd.io/gc.ref.content.l.", i)] = m.Layers[i].Digest.String()
	}
	st.layers = m.Layers
	data, err := json.Marshal(m)
	require.NoError(t, err)
	st.target = put(ocispec.MediaTypeImageManifest, data, labels)
	require.NoError(t, s.unpack(ctx, st))
	require.NoError(t, s.name(ctx, images.Image{Name: Canonical(name), Target: st.target}))
	t.Cleanup(func() {
		_ = s.client.ImageService().Delete(context.Background(), Canonical(name), images.SynchronousDelete())
		_ = s.client.ImageService().Delete(context.Background(), img.ConfigDigest.String(), images.SynchronousDelete())
	})
}

// TestDelta rebuilds an image from a delta over one that was loaded (its layers
// are stored as they are) and over one that was pulled (stored compressed).
func TestDelta(t *testing.T) {
	s := openStore(t)
	ctx := context.Background()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	big := text(seed, 2_000_000)
	changed := bytes.Clone(big)
	copy(changed[1_000_000:], text(seed+1, 100))
	base := pack(t, file{"lib/base", text(seed+2, 400_000)})
	v1 := build(t, "1", base, pack(t, file{"bin/app", big}, file{"etc/x", []byte("one")}))
	v2 := build(t, "2", base, pack(t, file{"bin/app", changed}, file{"etc/x", []byte("two")}))
	encoded := storetest.Delta(t, v1, v2)
	t.Logf("the delta has %d bytes", len(encoded))

	for name, bring := range map[string]func(url string){
		"over a loaded image": func(url string) {
			_, err := receive(t, s, "delta", url, archived(t, v1), id(v1))
			require.NoError(t, err)
		},
		"over a pulled image": func(url string) { pull(t, s, url, v1) },
	} {
		t.Run(name, func(t *testing.T) {
			url := fmt.Sprintf("delta-%d", time.Now().UnixNano())
			bring(url + ":1")
			loaded, err := receive(t, s, "delta", url+":2", encoded, id(v2))
			require.NoError(t, err)
			require.True(t, loaded)
			problem, err := s.Verify(ctx, url+":2", id(v2))
			require.NoError(t, err)
			require.Empty(t, problem)

			t.Log("it stays whole when the old one goes")
			require.NoError(t, s.Delete(ctx, "delta", url+":1", id(v1)))
			_ = s.client.ImageService().Delete(ctx, Canonical(url+":1"), images.SynchronousDelete())
			_ = s.client.ImageService().Delete(ctx, v1.ConfigDigest.String(), images.SynchronousDelete())
			var out bytes.Buffer
			require.NoError(t, s.Archive(ctx, url+":2", id(v2), &out))
			var want bytes.Buffer
			require.NoError(t, image.WriteArchive(&want, image.ArchiveSpec{Image: v2, RepoTags: []string{url + ":2"}}))
			require.True(t, bytes.Equal(want.Bytes(), out.Bytes()))

			t.Log("without the old one it is refused")
			require.NoError(t, s.Delete(ctx, "delta", url+":2", id(v2)))
			require.Eventually(t, func() bool {
				has, err := s.Has(ctx, id(v2))
				return err == nil && !has
			}, time.Minute, 100*time.Millisecond)
			_, err = receive(t, s, "delta", url+":2", encoded, id(v2))
			require.ErrorIs(t, err, submodules.ErrBase)
		})
	}
}

// A layer whose blob was discarded after it was unpacked, as a node may be set
// to, has only its files to give: a delta that needs more is refused and says
// so.
func TestDeltaDiscarded(t *testing.T) {
	s := openStore(t)
	ctx := context.Background()
	seed := time.Now().UnixNano()
	big := text(seed, 300_000)
	changed := bytes.Clone(big)
	copy(changed[100_000:], "a change")
	v1 := build(t, "1", pack(t, file{"bin/app", big}))
	v2 := build(t, "2", pack(t, file{"bin/app", changed}))
	url := fmt.Sprintf("discarded-%d", seed)
	pull(t, s, url+":1", v1)
	st, err := s.named(ctx, url+":1", id(v1))
	require.NoError(t, err)
	require.NoError(t, s.content().Delete(ctx, st.layers[0].Digest))

	old, err := s.Old(ctx, nil)
	require.NoError(t, err)
	f, err := old.OpenFile(ctx, v1.DiffIDs[0], "bin/app")
	require.NoError(t, err)
	got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
	require.NoError(t, err)
	require.True(t, bytes.Equal(big, got))
	require.NoError(t, f.Close())
	require.NoError(t, old.Close())

	_, err = receive(t, s, "delta", url+":2", storetest.Delta(t, v1, v2), id(v2))
	require.ErrorIs(t, err, submodules.ErrBase)
	require.ErrorContains(t, err, "discarded")
}

func TestNewRegistry(t *testing.T) {
	for target, want := range map[string]string{
		"registry://r.example":                      "https r.example/",
		"registry://r.example:5000/edge/images/":    "https r.example:5000/edge/images/",
		"registry+http://r.example:5000":            "http r.example:5000/",
		"registry://127.0.0.1:5000":                 "http 127.0.0.1:5000/",
		"registry://localhost:5000/a":               "http localhost:5000/a/",
		"registry://[::1]:5000":                     "http [::1]:5000/",
		"registry://user:p%40ss@r.example:5000/a-b": "https r.example:5000/a-b/",
	} {
		g, err := NewRegistry(target, "")
		require.NoError(t, err, target)
		require.Equal(t, want, g.scheme+" "+g.String(), target)
	}
	for _, target := range []string{"", "registry://", "r.example", "https://r.example", "registry://r.example/Up", "registry://r.example/../x", "registry://r.example/a?b", "registry://user:secret@r.example:port"} {
		_, err := NewRegistry(target, "")
		require.Error(t, err, target)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestCanonical(t *testing.T) {
	for ref, want := range map[string]string{
		"web":                           "docker.io/library/web:latest",
		"web:v1":                        "docker.io/library/web:v1",
		"shop/web:1":                    "docker.io/shop/web:1",
		"docker.io/library/web:1":       "docker.io/library/web:1",
		"r.example:5000/web":            "r.example:5000/web:latest",
		"localhost/web:1":               "localhost/web:1",
		"mender-app.local/shop:abc":     "mender-app.local/shop:abc",
		"web@sha256:" + "00":            "docker.io/library/web@sha256:00",
		"registry.k8s.io/a/b/pause:3.1": "registry.k8s.io/a/b/pause:3.1",
	} {
		require.Equal(t, want, Canonical(ref), ref)
	}
}

// What Present finds is there for Load, although containerd may collect it at any moment:
// the image that it belonged to was deleted.
func TestPresentStays(t *testing.T) {
	s := openStore(t)
	ctx := context.Background()
	layer := text(rand.Int63(), 1000)
	d := ocidigest.FromBytes(layer)
	ls := s.client.LeasesService()
	other, err := ls.Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Hour))
	require.NoError(t, err)
	_, _, err = s.ingest(leases.WithLease(ctx, other.ID), bytes.NewReader(layer), "", nil)
	require.NoError(t, err)
	present, err := s.Present(ctx, []image.Digest{image.Digest(d)})
	require.NoError(t, err)
	require.Len(t, present, 1)
	has := func() bool {
		t.Helper()
		ok, err := s.holds(ctx, ocispec.Descriptor{Digest: d})
		require.NoError(t, err)
		return ok
	}
	require.NoError(t, ls.Delete(ctx, other, leases.SynchronousDelete))
	require.True(t, has())
	require.Error(t, s.Load(ctx, bytes.NewReader(nil)), "it ends the lease all the same")
	require.NoError(t, s.collect(ctx))
	require.False(t, has())
}
