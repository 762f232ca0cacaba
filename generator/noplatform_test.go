package generator

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/gentest"
)

// Images whose config names no platform make a chain of releases like others: each run gives
// the same bytes, devices read the images, and the next release is a delta over them.
func TestImagesWithoutPlatform(t *testing.T) {
	s := newShop(t)
	base := gentest.Files{"etc/base": gentest.Text("base", 200_000)}
	for n, img := range map[string]v1.Image{
		"web:1": gentest.Image(t, "", base, gentest.Files{"version": "1"}),
		"web:2": gentest.Image(t, "", base, gentest.Files{"version": "2"}),
	} {
		require.NoError(t, os.Remove(s.archive(n)))
		gentest.DockerArchive(t, s.archive(n), map[string]v1.Image{"shop/" + n: img})
	}
	one := s.options(t, "web:1")
	one.Artifact.Name = "shop-1"
	result, err := Generate(t.Context(), one, false)
	require.NoError(t, err)
	require.Len(t, result.Warnings, 1)
	require.Contains(t, result.Warnings[0], "it gets linux/amd64 from --platform")
	one.Build.Taken = []string{filepath.Dir(one.Build.Output)}
	result, err = Generate(t.Context(), one, false)
	require.NoError(t, err)
	require.True(t, result.Unchanged)

	first := read(t, one.Build.Output)
	require.Len(t, first.infos, 1)
	require.Equal(t, artifact.KindFull, first.infos[0].Kind)
	imgs, err := image.ReadStream(bytes.NewReader(first.payloads[first.infos[0].Digest]), image.Limits{}, image.Handler{})
	require.NoError(t, err)
	require.Equal(t, first.infos[0].Digest, imgs[0].ConfigDigest)
	require.Equal(t, "linux/amd64", imgs[0].Platform.String())

	two := s.options(t, "web:2")
	two.Images.Releases.Paths = []string{one.Build.Output}
	var made []string
	for range 2 {
		two.Build.Output = filepath.Join(t.TempDir(), "b.mender")
		_, err = Generate(t.Context(), two, false)
		require.NoError(t, err)
		b, err := os.ReadFile(two.Build.Output)
		require.NoError(t, err)
		made = append(made, string(b))
	}
	require.True(t, made[0] == made[1], "the same bytes")
	next := read(t, two.Build.Output)
	require.Len(t, next.infos, 1)
	require.Equal(t, artifact.KindDelta, next.infos[0].Kind)
	old := first.infos[0].Digest
	require.Equal(t, old, next.infos[0].SumCurrent)
	require.Equal(t, []artifact.MadeOver{{Name: "shop-1", Digest: digest.Of([]byte(old.Hex() + "\n"))}}, next.meta.Made.Over)

	two.Application.Several, two.Build.Output = true, filepath.Join(t.TempDir(), "c.mender")
	_, err = Generate(t.Context(), two, false)
	require.ErrorIs(t, err, image.ErrNoPlatform)
	require.NoFileExists(t, two.Build.Output)
}
