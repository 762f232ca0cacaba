package generator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/tarstore"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/source"
)

// shop is three images that share layers, as archives, and a manifests
// directory that uses the new ones.
type shop struct {
	dir                     string
	web1, web2, side, extra v1.Image
}

func newShop(t testing.TB) *shop {
	t.Helper()
	base := gentest.Files{"etc/base": gentest.Text("base", 200_000)}
	app := func(v string) gentest.Files {
		return gentest.Files{"app": gentest.Text("app", 80_000) + v, "version": v}
	}
	s := &shop{dir: t.TempDir()}
	s.web1 = gentest.Image(t, "linux/amd64", base, app("1"))
	s.web2 = gentest.Image(t, "linux/amd64", base, app("2"), gentest.Files{"new": "n"})
	s.side = gentest.Image(t, "linux/amd64", base, gentest.Files{"side": "s"})
	s.extra = gentest.Image(t, "linux/amd64", base, app("2"), gentest.Files{"extra": "e"})
	for n, img := range map[string]v1.Image{"web:1": s.web1, "web:2": s.web2, "side:1": s.side, "extra:1": s.extra} {
		gentest.DockerArchive(t, s.archive(n), map[string]v1.Image{"shop/" + n: img})
	}
	return s
}

func (s *shop) archive(name string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, ":", "-")+".tar")
}

// manifests writes a compose file that uses the images.
func (s *shop) manifests(t testing.TB, images ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp(s.dir, "manifests-*")
	require.NoError(t, err)
	text := "services:\n"
	for i, img := range images {
		text += fmt.Sprintf("  s%d: {image: \"shop/%s\"}\n", i, img)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(text), 0o644))
	return dir
}

func (s *shop) options(t testing.TB, pairs ...string) Options {
	t.Helper()
	o := Options{
		Application: Application{Name: "shop", Orchestrator: Compose, Platform: image.Platform{OS: "linux", Arch: "amd64"}},
		Artifact:    Artifact{Name: "shop-2", DeviceTypes: []string{"box"}},
		Build:       Build{Output: filepath.Join(t.TempDir(), "a.mender")},
	}
	var names []string
	for _, p := range pairs {
		parts := strings.Split(p, ",")
		for i := range parts {
			parts[i] = "docker-archive:" + s.archive(parts[i])
		}
		pair, err := ParsePair(strings.Join(parts, ","))
		require.NoError(t, err)
		o.Images.Pairs = append(o.Images.Pairs, pair)
		names = append(names, p[strings.LastIndexByte(p, ',')+1:])
	}
	o.Application.ManifestsDir = s.manifests(t, names...)
	return o
}

// opened is an artifact as a device reads it.
type opened struct {
	header   *mender.Header
	meta     *artifact.Metadata
	payloads map[image.Digest][]byte // image.img or image.delta
	infos    []artifact.ImageInfo
}

func read(t testing.TB, path string) *opened {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := mender.NewReader(f, mender.ReadOptions{})
	require.NoError(t, err)
	a := &opened{header: r.Header(), payloads: map[image.Digest][]byte{}}
	meta, warnings, err := artifact.ParseMetadata(a.header.MetaData)
	require.NoError(t, err)
	require.Empty(t, warnings)
	a.meta = meta
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		require.NoError(t, err)
		if file.Name != artifact.ImagesPayload {
			continue
		}
		// no SpoolDir: what we write can be streamed
		err = artifact.ReadImages(r, artifact.ReadOptions{MaxBytes: meta.Sizes.ImagesPayload}, func(info artifact.ImageInfo, content io.Reader) error {
			b, err := io.ReadAll(content)
			a.payloads[info.Digest] = b
			a.infos = append(a.infos, info)
			return err
		})
		require.NoError(t, err)
	}
}

// store holds the content that a device has, and grows as images are loaded.
type store struct {
	*tarstore.Store
	have map[delta.Digest]bool
}

func newStore(t testing.TB, images ...v1.Image) *store {
	t.Helper()
	s := &store{tarstore.New(), map[delta.Digest]bool{}}
	for _, img := range images {
		config, err := img.RawConfigFile()
		require.NoError(t, err)
		s.add(t, delta.Blob, string(config))
		layers, err := img.Layers()
		require.NoError(t, err)
		for _, l := range layers {
			r, err := l.Uncompressed()
			require.NoError(t, err)
			b, err := io.ReadAll(r)
			require.NoError(t, err)
			s.add(t, delta.Tar, string(b))
		}
	}
	return s
}

func (s *store) add(t testing.TB, kind delta.Kind, content string) {
	t.Helper()
	d := digest.Of([]byte(content))
	require.NoError(t, s.Add(d, kind, strings.NewReader(content), int64(len(content))))
	s.have[d] = true
}

type memory struct {
	strings.Builder
	done func(string)
}

func (m *memory) Commit() error { m.done(m.String()); return nil }
func (m *memory) Abort(error)   {}

// load applies an artifact's deltas in order, as LOAD does, and checks that the
// images are whole then.
func (s *store) load(t testing.TB, a *opened) {
	t.Helper()
	for _, info := range a.infos {
		r, err := decoder.New(strings.NewReader(string(a.payloads[info.Digest])))
		require.NoError(t, err)
		err = r.Apply(t.Context(), s, t.TempDir(), func(o delta.ObjectInfo) (delta.Sink, error) {
			return &memory{done: func(content string) { s.add(t, o.Kind, content) }}, nil
		})
		require.NoError(t, err, info.URLNew)
		for _, o := range r.Header().Objects {
			require.True(t, s.have[o.Digest], "%s: %s %s", info.URLNew, o.Kind, o.Digest)
		}
		require.Equal(t, info.Digest.String(), string(r.Header().Objects[0].Digest))
	}
}

func TestFullArtifact(t *testing.T) {
	s := newShop(t)
	o := s.options(t, "web:2", "side:1")
	_, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	a := read(t, o.Build.Output)
	require.Equal(t, artifact.VersionReference, a.meta.Version)
	require.Empty(t, a.meta.Requires)
	require.Equal(t, map[string]string{"data-partition.shop.version": "shop-2"}, a.header.Provides)
	require.Equal(t, []string{"data-partition.shop.*", "rootfs-image.shop.*"}, a.header.ClearsProvides)
	require.Len(t, a.meta.Images, 2)
	require.Len(t, a.infos, 2)

	var engine int64
	seen := map[image.Digest]bool{}
	for i, info := range a.infos {
		require.Equal(t, artifact.KindFull, info.Kind)
		require.Equal(t, info.URLNew, info.URLCurrent, "the reference takes it for a full image")
		require.Equal(t, info.SumNew, info.SumCurrent)
		c := a.meta.Components[i]
		require.Equal(t, c.PayloadBytes, int64(len(a.payloads[info.Digest])), "announced exactly")

		// what docker load gets: a whole archive of the right image and name
		path := filepath.Join(t.TempDir(), "image.img")
		require.NoError(t, os.WriteFile(path, a.payloads[info.Digest], 0o600))
		archive, err := image.OpenArchive(path)
		require.NoError(t, err)
		img, err := archive.SelectTag(info.URLNew, o.Application.Platform)
		require.NoError(t, err)
		require.Equal(t, info.Digest, img.ConfigDigest)
		require.NoError(t, image.Verify(img))
		require.Len(t, c.Layers, len(img.Layers))
		engine += c.ConfigSize
		for n, l := range img.Layers {
			require.Equal(t, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVerbatim, Bytes: l.Size}, c.Layers[n])
			if !seen[l.DiffID] {
				engine += l.Size
			}
			seen[l.DiffID] = true
		}
		require.NoError(t, archive.Close())
	}
	require.Equal(t, engine, a.meta.Sizes.Engine)
	require.Zero(t, a.meta.Sizes.Temp)
}

func TestDeltaArtifact(t *testing.T) {
	s := newShop(t)
	// extra has no base of its own: its layers are in web:2, which comes first
	o := s.options(t, "web:1,web:2", "extra:1", "side:1,side:1")
	o.Images.Coding = Coded
	result, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	a := read(t, o.Build.Output)
	require.Equal(t, artifact.VersionCurrent, a.meta.Version)
	require.Equal(t, []string{artifact.FeatureDelta}, a.meta.Requires)
	newStore(t, s.web1, s.side).load(t, a)

	web, extra, side := a.meta.Components[0], a.meta.Components[1], a.meta.Components[2]
	encodings := func(c artifact.Component) (list []artifact.Encoding) {
		for _, l := range c.Layers {
			list = append(list, l.Encoding)
		}
		return list
	}
	require.Equal(t, []artifact.Encoding{"omitted", "delta", "verbatim"}, encodings(web))
	require.Equal(t, []artifact.Encoding{"omitted", "omitted", "verbatim"}, encodings(extra), "each layer crosses once")
	require.Equal(t, []artifact.Encoding{"omitted", "omitted"}, encodings(side))
	require.Equal(t, artifact.Base{URL: "shop/web:1", Digest: image.Digest(gentest.Digest(t, s.web1))}, web.Bases[0], "its own first")
	for _, c := range a.meta.Components {
		for _, b := range c.Bases {
			require.Contains(t, []string{"shop/web:1", "shop/side:1"}, b.URL, "only what is there before")
		}
	}
	require.Less(t, side.PayloadBytes, int64(1000), "an unchanged image ships no content")
	require.True(t, result.Plan.Components[2].Unchanged)
	require.Less(t, web.PayloadBytes, int64(3000))

	engine := web.ConfigSize + extra.ConfigSize
	for _, c := range []artifact.Component{web, extra, side} {
		for _, l := range c.Layers {
			if l.Encoding != artifact.EncodingOmitted {
				engine += l.Size
			} else {
				require.Zero(t, l.Bytes)
			}
		}
		require.Equal(t, c.PayloadBytes, int64(len(a.payloads[c.Digest])))
	}
	require.Equal(t, engine, a.meta.Sizes.Engine)
	require.Equal(t, "shop/web:1", a.infos[0].URLCurrent)
}

// The old content may be damaged: then the delta says so, and nothing is made.
func TestDeltaNeedsItsBase(t *testing.T) {
	s := newShop(t)
	o := s.options(t, "web:1,web:2")
	_, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	a := read(t, o.Build.Output)
	r, err := decoder.New(strings.NewReader(string(a.payloads[a.infos[0].Digest])))
	require.NoError(t, err)
	err = r.Apply(t.Context(), newStore(t, s.side), t.TempDir(), func(delta.ObjectInfo) (delta.Sink, error) {
		return &memory{done: func(string) { t.Error("committed without its base") }}, nil
	})
	var old *delta.OldError
	require.ErrorAs(t, err, &old)
}

func TestSameBytes(t *testing.T) {
	s := newShop(t)
	for _, pairs := range [][]string{{"web:2", "side:1"}, {"web:1,web:2", "extra:1"}} {
		var sums []string
		for range 2 {
			o := s.options(t, pairs...)
			_, err := Generate(t.Context(), o, false)
			require.NoError(t, err)
			b, err := os.ReadFile(o.Build.Output)
			require.NoError(t, err)
			sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(b)))
		}
		require.Equal(t, sums[0], sums[1], "%v", pairs)
	}
}

// An interrupted run leaves what was there, and nothing else.
func TestCancelled(t *testing.T) {
	s := newShop(t)
	for _, stage := range []string{"read", "encode", "write"} {
		for _, pair := range []string{"web:2", "web:1,web:2"} {
			t.Run(stage+" "+pair, func(t *testing.T) {
				o := s.options(t, pair)
				require.NoError(t, os.WriteFile(o.Build.Output, []byte("old"), 0o600))
				ctx, cancel := context.WithCancel(t.Context())
				reached := false
				o.Build.Progress = func(e source.Event) {
					if e.Stage == stage {
						reached = true
						cancel()
					}
				}
				_, err := Generate(ctx, o, false)
				if !reached {
					t.Fatalf("there is no stage %s", stage)
				}
				require.ErrorIs(t, err, context.Canceled)
				list, err := os.ReadDir(filepath.Dir(o.Build.Output))
				require.NoError(t, err)
				require.Len(t, list, 1)
				b, err := os.ReadFile(o.Build.Output)
				require.NoError(t, err)
				require.Equal(t, "old", string(b))
			})
		}
	}
}
