package generator

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/source"
)

// A layer that only some devices can load is named, with the image.
func TestWarnsOfLayersForTheClassicStore(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "there", Size: 1, Mode: 0o644}))
		_, err := w.Write([]byte("x"))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	require.NoError(t, err)
	img, err := mutate.AppendLayers(empty.Image, l)
	require.NoError(t, err)
	cf, err := img.ConfigFile()
	require.NoError(t, err)
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", "amd64"
	img, err = mutate.ConfigFile(img, cf)
	require.NoError(t, err)
	tag, err := gname.NewTag("shop/odd:1")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "odd.tar")
	require.NoError(t, tarball.WriteToFile(file, tag, img))

	for orchestrator, warnings := range map[string]int{Compose: 1, "files": 0} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte("services:\n  odd: {image: \"shop/odd:1\"}\n"), 0o644))
		pair, err := ParsePair("docker-archive:" + file)
		require.NoError(t, err)
		o := Options{
			Application: Application{Name: "shop", Orchestrator: orchestrator, Platform: image.Platform{OS: "linux", Arch: "amd64"}, ManifestsDir: dir},
			Artifact:    Artifact{Name: "shop-1", DeviceTypes: []string{"box"}},
			Build:       Build{Output: filepath.Join(t.TempDir(), "a.mender")},
		}
		o.Images.Pairs = append(o.Images.Pairs, pair)
		r, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		var said []string
		for _, w := range r.Warnings {
			if strings.Contains(w, "classic image store") {
				said = append(said, w)
			}
		}
		require.Len(t, said, warnings, "%s: %q", orchestrator, r.Warnings)
		if warnings > 0 {
			require.Contains(t, said[0], "shop/odd:1: Docker's classic image store (overlay2) does not take layer sha256:")
			require.Contains(t, said[0], "it has there twice")
		}
	}
}

// So is an image with more layers than that store takes.
func TestWarnsOfManyLayersForTheClassicStore(t *testing.T) {
	for n, want := range map[int][]string{
		source.MaxClassicLayers:     nil,
		source.MaxClassicLayers + 1: {"shop/web:1: Docker's classic image store (overlay2) takes 125 layers, and it has 126. Build it with fewer"},
	} {
		r := &run{}
		r.Application.Orchestrator = Compose
		r.warnOfClassicStore([]foundImage{{Found: &source.Found{URL: "shop/web:1", Image: &image.Image{Layers: make([]image.Layer, n)}}}}, nil)
		require.Equal(t, want, r.warnings)
	}
}
