package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// missing skips a test whose component is not installed; in CI it fails it.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// engine opens the engine to test with, and names an application whose images
// are gone afterwards.
func engine(t *testing.T) (*Engine, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("tests on a real engine are not short")
	}
	host := os.Getenv("MENDER_APP_TEST_DOCKER_HOST")
	if host == "" {
		host = os.Getenv("DOCKER_HOST")
	}
	if host == "" {
		host = client.DefaultDockerHost
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	e, err := Open(ctx, host, func(l string) { t.Log(l) })
	if err != nil {
		missing(t, "this test needs a Docker engine: %v", err)
	}
	app := fmt.Sprintf("t%08x", rand.Uint32())
	t.Cleanup(func() {
		ctx := context.Background()
		all, _ := e.all(ctx)
		for _, img := range all {
			for _, tag := range img.Tags {
				if strings.Contains(tag, app) {
					_, _ = e.Untag(ctx, tag)
				}
			}
		}
		e.Close()
	})
	return e, app
}

type entry struct {
	name string
	data string
}

func layerTar(t *testing.T, files ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755, ModTime: time.Unix(1.7e9, 0)}))
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: time.Unix(1.7e9, 0),
			PAXRecords: map[string]string{"MENDERAPP.x": strings.Repeat("y", len(f.name))}}))
		_, err := io.WriteString(w, f.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "d/link", Linkname: "/etc/passwd", ModTime: time.Unix(1.7e9, 0)}))
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// sample is an image of some layers, ours and go-containerregistry's.
type sample struct {
	img  *image.Image
	reg  v1.Image
	tars [][]byte
}

func (s sample) identity() imagestore.Identity {
	return imagestore.Identity{Config: s.img.ConfigDigest, DiffIDs: s.img.DiffIDs}
}

func makeImage(t *testing.T, arch string, tars ...[]byte) sample {
	t.Helper()
	reg := v1.Image(empty.Image)
	var layers []image.Layer
	for _, b := range tars {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		require.NoError(t, err)
		reg, err = mutate.AppendLayers(reg, l)
		require.NoError(t, err)
		layers = append(layers, image.Layer{Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }})
	}
	cf, err := reg.ConfigFile()
	require.NoError(t, err)
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	reg, err = mutate.ConfigFile(reg, cf)
	require.NoError(t, err)
	raw, err := reg.RawConfigFile()
	require.NoError(t, err)
	img, err := image.New(raw, layers)
	require.NoError(t, err)
	return sample{img, reg, tars}
}

func ours(t *testing.T, s sample, tag string, omit ...image.Digest) []byte {
	t.Helper()
	var buf bytes.Buffer
	spec := image.ArchiveSpec{Image: s.img, RepoTags: []string{tag}, Omit: map[image.Digest]image.Descriptor{}}
	for _, d := range omit {
		spec.Omit[d] = image.Descriptor{}
	}
	require.NoError(t, image.WriteArchive(&buf, spec))
	return buf.Bytes()
}

// dockerArchive is the image as `docker save` writes it: layers before the
// manifest, here gzip'd too.
func dockerArchive(t *testing.T, s sample, tag string) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, tarball.Write(mustTag(t, tag), s.reg, &buf))
	return buf.Bytes()
}

type member struct {
	h *tar.Header
	b []byte
}

// members reads the members of an archive.
func members(t *testing.T, archive []byte) (all []member) {
	t.Helper()
	tr := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		b, err := io.ReadAll(tr)
		require.NoError(t, err)
		all = append(all, member{h, b})
	}
}

// shuffled puts the members of an archive into the reverse order.
func shuffled(t *testing.T, archive []byte) []byte {
	t.Helper()
	all := members(t, archive)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := len(all) - 1; i >= 0; i-- {
		require.NoError(t, w.WriteHeader(all[i].h))
		_, err := w.Write(all[i].b)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func (e *Engine) loadBytes(t *testing.T, app string, b []byte, spec imagestore.LoadRequest) error {
	t.Helper()
	spec.App, spec.TempDir = app, t.TempDir()
	if spec.URL == "" {
		spec.URL = app + ":1"
	}
	spec.Log = t.Logf
	err := imagestore.Load(t.Context(), e.Store(spec.TempDir), spec, bytes.NewReader(b))
	left, derr := os.ReadDir(spec.TempDir)
	require.NoError(t, derr)
	require.Empty(t, left, "nothing is left in the temporary directory")
	return err
}

func TestLoadForms(t *testing.T) {
	e, app := engine(t)
	for title, form := range map[string]func(sample) []byte{
		"ours":           func(s sample) []byte { return ours(t, s, "elsewhere/"+app+":7") },
		"docker-archive": func(s sample) []byte { return dockerArchive(t, s, "elsewhere/"+app+":7") },
		"reverse":        func(s sample) []byte { return shuffled(t, ours(t, s, "elsewhere/"+app+":7")) },
		"docker-reverse": func(s sample) []byte { return shuffled(t, dockerArchive(t, s, "elsewhere/"+app+":7")) },
	} {
		t.Run(title, func(t *testing.T) {
			s := makeImage(t, "amd64", layerTar(t, entry{"a", app + title}), layerTar(t, entry{"b", strings.Repeat("b", 5000)}))
			b := form(s)
			require.NoError(t, e.loadBytes(t, app, b, imagestore.LoadRequest{Want: s.identity(), Stage: true}))
			own := imagestore.OwnRef(app, s.img.ConfigDigest)
			img, err := e.Inspect(t.Context(), own)
			require.NoError(t, err)
			require.True(t, img.is(s.identity()))
			require.Equal(t, []string{own}, img.Tags, "staged: no other name, not even the archive's")
			require.NoError(t, e.Verify(t.Context(), app, s.identity(), ""))

			// By hand, by the digest alone, and again: the tag, and no content.
			require.NoError(t, e.loadBytes(t, app, b, imagestore.LoadRequest{}))
			img, err = e.Inspect(t.Context(), app+":1")
			require.NoError(t, err)
			require.True(t, img.is(s.identity()))
			require.NoError(t, imagestore.Load(t.Context(), e.Store(t.TempDir()), imagestore.LoadRequest{App: app, URL: app + ":1", Want: s.identity(), Log: t.Logf}, failing{t}))

			// What was loaded can be saved: the same image, the same bytes.
			var one, two bytes.Buffer
			require.NoError(t, e.Save(t.Context(), img, app+":1", t.TempDir(), &one))
			require.NoError(t, e.Save(t.Context(), img, app+":1", t.TempDir(), &two))
			require.Equal(t, one.Bytes(), two.Bytes())
			require.Equal(t, ours(t, s, app+":1"), one.Bytes())

			require.NoError(t, e.Delete(t.Context(), app, img, app+":1"))
			_, err = e.Find(t.Context(), app, s.identity(), app+":1")
			require.ErrorIs(t, err, submodules.ErrNotFound)
			require.ErrorIs(t, e.Verify(t.Context(), app, s.identity(), ""), submodules.ErrNotFound)
		})
	}
	require.NoError(t, e.Sync(t.Context()))
}

// failing is content that nobody should read.
type failing struct{ t *testing.T }

func (f failing) Read([]byte) (int, error) {
	f.t.Error("the content is read although the image is present")
	return 0, io.ErrUnexpectedEOF
}

// Layers that are there already do not cross again, nor need they be in the
// content.
func TestLoadOmitted(t *testing.T) {
	e, app := engine(t)
	base := layerTar(t, entry{"base", app + strings.Repeat("x", 100000)})
	top1, top2 := layerTar(t, entry{"top", app + "1"}), layerTar(t, entry{"top", app + "2"})
	one, two := makeImage(t, "amd64", base, top1), makeImage(t, "amd64", base, top2)
	baseID := one.img.DiffIDs[0]

	err := e.loadBytes(t, app, ours(t, two, app+":1", baseID), imagestore.LoadRequest{})
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "neither in the content nor in the engine")
	require.NoError(t, e.loadBytes(t, app, ours(t, one, app+":1"), imagestore.LoadRequest{}))
	require.NoError(t, e.loadBytes(t, app, ours(t, two, app+":1", baseID), imagestore.LoadRequest{Want: two.identity()}))
	require.NoError(t, e.Verify(t.Context(), app, two.identity(), ""))
	// The tag has moved; the first image is kept by its own reference.
	img, err := e.Find(t.Context(), app, one.identity(), "")
	require.NoError(t, err)
	require.Equal(t, []string{imagestore.OwnRef(app, one.img.ConfigDigest)}, img.Tags)
	// Its deletion leaves the second whole.
	require.NoError(t, e.Delete(t.Context(), app, img, app+":1"))
	require.NoError(t, e.Verify(t.Context(), app, two.identity(), app+":1"))
	// A layer that is there, but in another place of the chain.
	three := makeImage(t, "amd64", layerTar(t, entry{"below", app}), base)
	require.NoError(t, e.loadBytes(t, app, ours(t, three, app+":1", baseID), imagestore.LoadRequest{Want: three.identity()}))
	require.NoError(t, e.Verify(t.Context(), app, three.identity(), app+":1"))
}

// tapped is an engine whose archives are looked at on their way.
type tapped struct {
	target
	lie     map[image.Digest]image.Descriptor // what Present says; nil: the truth
	members map[string]int64                  // what crossed, by name
}

func (t *tapped) Present(ctx context.Context, d []image.Digest) (map[image.Digest]image.Descriptor, error) {
	if t.lie != nil {
		return t.lie, nil
	}
	return t.target.Present(ctx, d)
}

func (t *tapped) Load(ctx context.Context, r io.Reader) error {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		tr := tar.NewReader(pr)
		var err error
		for h := (*tar.Header)(nil); err == nil; {
			if h, err = tr.Next(); err == nil {
				t.members[h.Name] += h.Size
			}
		}
		_, _ = io.Copy(io.Discard, pr)
		done <- err
	}()
	err := t.target.Load(ctx, io.TeeReader(r, pw))
	_ = pw.Close()
	<-done
	return err
}

// Of images that share layers each layer crosses once, although every one of
// them comes whole, and no temporary file is made.
func TestLoadCrossesOnce(t *testing.T) {
	e, app := engine(t)
	base := layerTar(t, entry{"base", app + strings.Repeat("x", 200000)})
	shared := layerTar(t, entry{"shared", app + "shared"})
	tap := &tapped{target: target{e, t.TempDir()}, members: map[string]int64{}}
	for i := range 3 {
		s := makeImage(t, "amd64", base, shared, layerTar(t, entry{"top", fmt.Sprint(app, i)}))
		url := fmt.Sprintf("%s:%d", app, i)
		require.NoError(t, imagestore.Load(t.Context(), tap, imagestore.LoadRequest{App: app, URL: url, Log: t.Logf}, bytes.NewReader(ours(t, s, url))))
		require.NoError(t, e.Verify(t.Context(), app, s.identity(), url))
	}
	for _, b := range [][]byte{base, shared} {
		require.EqualValues(t, len(b), tap.members["blobs/sha256/"+digest.Of(b).Hex()])
	}
	var blobs int64
	for _, size := range tap.members {
		blobs += size
	}
	require.Less(t, blobs, int64(len(base)+len(shared)+20000))
}

// What the engine registers and cannot run, because a layer it was said to have
// is gone, is taken back; other names stay.
func TestLoadTakesBack(t *testing.T) {
	e, app := engine(t)
	base := layerTar(t, entry{"base", app + strings.Repeat("x", 1000)})
	s := makeImage(t, "amd64", base, layerTar(t, entry{"top", app}))
	other := makeImage(t, "amd64", layerTar(t, entry{"top", app}))
	require.NoError(t, e.loadBytes(t, app, ours(t, other, app+":1"), imagestore.LoadRequest{}))
	tap := &tapped{target: target{e, t.TempDir()}, members: map[string]int64{},
		lie: map[image.Digest]image.Descriptor{s.img.DiffIDs[0]: {}}}
	err := imagestore.Load(t.Context(), tap, imagestore.LoadRequest{App: app, URL: app + ":1", Log: t.Logf}, bytes.NewReader(ours(t, s, app+":1")))
	require.ErrorContains(t, err, "docker load: ")
	_, err = e.Inspect(t.Context(), imagestore.OwnRef(app, s.img.ConfigDigest))
	require.ErrorIs(t, err, submodules.ErrNotFound)
	require.NoError(t, e.Verify(t.Context(), app, other.identity(), app+":1"))
	// And the whole one is not taken for present.
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{Want: s.identity()}))
	require.NoError(t, e.Verify(t.Context(), app, s.identity(), app+":1"))
}

func TestLoadRefuses(t *testing.T) {
	e, app := engine(t)
	s := makeImage(t, "arm64", layerTar(t, entry{"a", app}), layerTar(t, entry{"b", app + strings.Repeat("z", 70000)}))
	other := makeImage(t, "arm64", layerTar(t, entry{"a", app + "other"}))
	good := ours(t, s, app+":1")
	flipped := bytes.Clone(good)
	flipped[bytes.Index(flipped, []byte("zzzz"))+5000] ^= 1
	docker := dockerArchive(t, s, app+":1")
	amd := image.Platform{OS: "linux", Arch: "amd64"}
	for title, c := range map[string]struct {
		content []byte
		spec    imagestore.LoadRequest
		want    string
	}{
		"empty":               {nil, imagestore.LoadRequest{}, "the content is empty"},
		"garbage":             {bytes.Repeat([]byte("nonsense"), 1000), imagestore.LoadRequest{}, ""},
		"another image":       {good, imagestore.LoadRequest{Want: other.identity()}, string(other.img.ConfigDigest) + " is announced"},
		"another one, docker": {docker, imagestore.LoadRequest{Want: other.identity()}, string(other.img.ConfigDigest) + " is announced"},
		"other layers":        {good, imagestore.LoadRequest{Want: imagestore.Identity{Config: s.img.ConfigDigest, DiffIDs: other.img.DiffIDs}}, "its layers are not those announced"},
		"platform":            {good, imagestore.LoadRequest{Platform: amd}, "is for linux/arm64, the release for linux/amd64"},
		"truncated":           {good[:len(good)/2], imagestore.LoadRequest{}, ""},
		"cut at the end":      {good[:len(good)-2000], imagestore.LoadRequest{}, ""},
		"flipped bit":         {flipped, imagestore.LoadRequest{Want: s.identity()}, "does not match its digest"},
		"docker truncated":    {docker[:len(docker)/2], imagestore.LoadRequest{}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			err := e.loadBytes(t, app, c.content, c.spec)
			require.ErrorIs(t, err, submodules.ErrContent)
			require.ErrorContains(t, err, c.want)
			_, err = e.Find(t.Context(), app, s.identity(), app+":1")
			require.ErrorIs(t, err, submodules.ErrNotFound, "nothing is left in the engine")
			own, err := e.Own(t.Context(), app)
			require.NoError(t, err)
			require.Empty(t, own)
		})
	}
}

// DELETE leaves what others refer to.
func TestDeleteShared(t *testing.T) {
	e, app := engine(t)
	other := app + "-second"
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app}))
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{}))
	require.NoError(t, e.loadBytes(t, other, ours(t, s, app+":1"), imagestore.LoadRequest{URL: app + ":1"}))
	img, err := e.Inspect(t.Context(), app+":1")
	require.NoError(t, err)
	require.Len(t, img.Tags, 3)
	require.NoError(t, e.Delete(t.Context(), app, img, app+":1"))
	img, err = e.Inspect(t.Context(), app+":1")
	require.NoError(t, err, "the second application needs the tag as well")
	require.Len(t, img.Tags, 2)
	require.NoError(t, e.Delete(t.Context(), app, img, ""))
	require.NoError(t, e.cli.ImageTag(t.Context(), img.ID, app+":mine"))
	img, err = e.Inspect(t.Context(), app+":mine")
	require.NoError(t, err)
	require.NoError(t, e.Delete(t.Context(), other, img, app+":1"))
	img, err = e.Inspect(t.Context(), app+":mine")
	require.NoError(t, err)
	require.Equal(t, []string{app + ":mine"}, img.Tags, "a person's tag keeps the image")
}

// An image under two names: one goes, the other and the image stay.
func TestDeleteName(t *testing.T) {
	e, app := engine(t)
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app}))
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":web"), imagestore.LoadRequest{URL: app + ":web", Want: s.identity()}))
	for _, stage := range []bool{true, false} {
		require.NoError(t, e.loadBytes(t, app, nil, imagestore.LoadRequest{URL: app + ":worker", Want: s.identity(), Stage: stage}), "nothing is read")
	}
	img, err := e.Inspect(t.Context(), app+":worker")
	require.NoError(t, err)
	own := imagestore.OwnRef(app, img.Config)
	require.ElementsMatch(t, []string{own, app + ":web", app + ":worker"}, img.Tags)
	for range 2 {
		require.NoError(t, e.DeleteName(t.Context(), app, img, app+":worker"))
		img, err = e.Inspect(t.Context(), app+":web")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{own, app + ":web"}, img.Tags)
	}
	require.NoError(t, e.Tag(t.Context(), img, app+":worker"))
	img, err = e.Inspect(t.Context(), own)
	require.NoError(t, err)
	require.NoError(t, e.Delete(t.Context(), app, img, app+":web", app+":worker"))
	_, err = e.Find(t.Context(), app, s.identity(), app+":web")
	require.ErrorIs(t, err, submodules.ErrNotFound, "with the last name the image goes")
}

// Damage on the disk is found, and what is damaged is not saved.
func TestVerifyFindsDamage(t *testing.T) {
	e, app := engine(t)
	s := makeImage(t, "amd64", layerTar(t, entry{"file", app + "content"}))
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{}))
	require.NoError(t, e.Verify(t.Context(), app, s.identity(), ""))
	file := filepath.Join(e.unpacked(t, s, 0), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644)) // as a power cut leaves it
	require.ErrorIs(t, e.Verify(t.Context(), app, s.identity(), ""), submodules.ErrContent)
	img, err := e.Find(t.Context(), app, s.identity(), "")
	require.NoError(t, err)
	if e.twice(t) { // what is saved comes out of the blob
		var saved bytes.Buffer
		require.NoError(t, e.Save(t.Context(), img, "x:1", t.TempDir(), &saved))
		require.Equal(t, ours(t, s, "x:1"), saved.Bytes())
		require.NoError(t, os.WriteFile(file, []byte(app+"content"), 0o644))
		require.NoError(t, e.Verify(t.Context(), app, s.identity(), ""))
		e.spoilBlob(t, app, s, 0)
		require.ErrorIs(t, e.Verify(t.Context(), app, s.identity(), ""), submodules.ErrContent)
	}
	require.ErrorIs(t, e.Save(t.Context(), img, "x:1", t.TempDir(), io.Discard), submodules.ErrContent)
}

func mustTag(t *testing.T, s string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(s)
	require.NoError(t, err)
	return tag
}
