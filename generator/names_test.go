package generator

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/inspect"
)

// named adds an image under a name of its own to the options, as its base,NEW
// if a base is given.
func (s *shop) named(t testing.TB, o *Options, base, from, name string) {
	t.Helper()
	arg := "docker-archive:" + s.archive(from) + "=shop/" + name
	if base != "" {
		arg = "docker-archive:" + s.archive(base) + "," + arg
	}
	p, err := ParsePair(arg)
	require.NoError(t, err)
	o.Images.Pairs = append(o.Images.Pairs, p)
}

// One image under two names is sent once, and has both.
func TestSeveralNames(t *testing.T) {
	s := newShop(t)
	for _, base := range []string{"", "web:1"} {
		t.Run("over "+base, func(t *testing.T) {
			one := s.options(t)
			coding := map[bool]Coding{true: Coded}[base != ""]
			one.Images.Coding = coding
			s.named(t, &one, base, "web:2", "web:2")
			s.named(t, &one, "", "side:1", "side:1")
			one.Application.ManifestsDir = s.manifests(t, "web:2", "side:1")
			r1, err := Generate(t.Context(), one, false)
			require.NoError(t, err)

			two := s.options(t)
			two.Images.Coding = coding
			s.named(t, &two, base, "web:2", "web:2")
			s.named(t, &two, "", "side:1", "side:1")
			s.named(t, &two, "", "web:2", "worker:2")
			two.Application.ManifestsDir = s.manifests(t, "web:2", "side:1", "worker:2")
			r2, err := Generate(t.Context(), two, false)
			require.NoError(t, err)

			a, b := read(t, one.Build.Output), read(t, two.Build.Output)
			require.Len(t, b.infos, 2, "the content is there once")
			require.Len(t, b.meta.Components, 3)
			require.Equal(t, a.meta.Version, b.meta.Version, "whoever reads the one reads the other")
			require.Equal(t, a.meta.Images, b.meta.Images)
			require.Equal(t, a.meta.Sizes.Engine, b.meta.Sizes.Engine)
			worker := b.meta.Components[2]
			require.Equal(t, "shop/worker:2", worker.URL)
			worker.URL = "shop/web:2"
			require.Equal(t, b.meta.Components[0], worker)

			require.Equal(t, "shop/web:2", r2.Plan.Components[2].SameAs)
			require.Zero(t, r2.Sent[2].Bytes)
			require.InDelta(t, r1.Sent[1].Bytes, r2.Sent[1].Bytes, 300)

			if base != "" {
				newStore(t, s.web1).load(t, b)
				return
			}
			path := filepath.Join(t.TempDir(), "image.img")
			require.NoError(t, os.WriteFile(path, b.payloads[worker.Digest], 0o600))
			archive, err := image.OpenArchive(path)
			require.NoError(t, err)
			defer archive.Close()
			for _, tag := range []string{"shop/web:2", "shop/worker:2"} {
				img, err := archive.SelectTag(tag, two.Application.Platform)
				require.NoError(t, err, "the reference goes by the tags")
				require.Equal(t, worker.Digest, img.ConfigDigest)
			}
			d, err := inspect.Artifact(t.Context(), two.Build.Output, nil, t.TempDir())
			require.NoError(t, err)
			require.Len(t, d.Images, 2)
			require.Equal(t, []string{"shop/worker:2"}, d.Images[0].Also)
			require.Empty(t, d.Images[1].Also)
		})
	}
}

// Names may part and meet: what the device has under a further name serves as
// a base, and the order of the names does not matter.
func TestSeveralNamesOverBases(t *testing.T) {
	s := newShop(t)
	o := s.options(t)
	o.Images.Coding = Coded
	s.named(t, &o, "", "web:2", "cron:2")
	s.named(t, &o, "web:1", "web:2", "web:2")
	s.named(t, &o, "side:1", "side:1", "side:1")
	o.Application.ManifestsDir = s.manifests(t, "web:2", "cron:2", "side:1")
	_, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	a := read(t, o.Build.Output)
	require.Len(t, a.infos, 2)
	require.Equal(t, artifact.VersionCurrent, a.meta.Version)
	require.Equal(t, "shop/web:1", a.meta.Components[0].Bases[0].URL)
	require.Less(t, a.meta.Components[0].PayloadBytes, int64(3000))
	newStore(t, s.web1, s.side).load(t, a)
}
