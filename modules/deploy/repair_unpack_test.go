package deploy

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	registry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/modules/imagedelta"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == imagedelta.Verb {
		os.Exit(imagedelta.Main(os.Stdin, os.Stderr))
	}
	seedTests()
	os.Exit(m.Run())
}

// artifactFile is an artifact that images are taken from.
type artifactFile struct{ *mender.Reader }

func (a artifactFile) MetaData() []byte { return a.Header().MetaData }

func (a artifactFile) Next() (string, io.Reader, error) {
	info, err := a.Reader.Next()
	if err != nil {
		return "", nil, err
	}
	return info.Name, a.Reader, nil
}

// Whatever an artifact has of an image that needs nothing of the device, a repair gets the
// whole image.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	base := gentest.Files{"lib/base": gentest.Text("base", 60_000)}
	images := map[string]registry.Image{
		"shop/web:1":  gentest.Image(t, "linux/amd64", base, gentest.Files{"app": gentest.Text("one", 30_000)}),
		"shop/web:2":  gentest.Image(t, "linux/amd64", base, gentest.Files{"app": gentest.Text("two", 30_000)}),
		"shop/side:1": gentest.Image(t, "linux/amd64", base, gentest.Files{"side": gentest.Text("side", 20_000)}),
	}
	archive := gentest.DockerArchive(t, filepath.Join(dir, "all.tar"), images)
	for name, c := range map[string]struct {
		pairs    []string
		coding   generator.Coding
		fallback bool
		whole    []string
	}{
		"coded":                  {pairs: []string{"shop/web:2", "shop/side:1"}, coding: generator.Coded, whole: []string{"shop/web:2", "shop/side:1"}},
		"in gzip":                {pairs: []string{"shop/web:2", "shop/side:1"}, whole: []string{"shop/web:2", "shop/side:1"}},
		"coded beside a delta":   {pairs: []string{"shop/web:1,shop/web:2"}, coding: generator.Coded, fallback: true, whole: []string{"shop/web:2"}},
		"in gzip beside a delta": {pairs: []string{"shop/web:1,shop/web:2"}, fallback: true, whole: []string{"shop/web:2"}},
		"a delta alone":          {pairs: []string{"shop/web:1,shop/web:2"}, coding: generator.Coded},
	} {
		t.Run(name, func(t *testing.T) {
			manifests := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(manifests, "start"), []byte("x"), 0o644))
			o := generator.Options{
				Application: generator.Application{Name: "shop", Orchestrator: "own", Platform: image.Platform{OS: "linux", Arch: "amd64"}, ManifestsDir: manifests},
				Images:      generator.Images{Coding: c.coding, Fallback: c.fallback},
				Artifact:    generator.Artifact{Name: "shop-2", DeviceTypes: []string{"box"}},
				Build:       generator.Build{Output: filepath.Join(t.TempDir(), "a.mender")},
			}
			for _, p := range c.pairs {
				refs := strings.Split(p, ",")
				for i := range refs {
					refs[i] = "docker-archive:" + archive + ":" + refs[i]
				}
				pair, err := generator.ParsePair(strings.Join(refs, ","))
				require.NoError(t, err)
				o.Images.Pairs = append(o.Images.Pairs, pair)
			}
			_, err := generator.Generate(t.Context(), o, false)
			require.NoError(t, err)

			f, err := os.Open(o.Build.Output)
			require.NoError(t, err)
			defer f.Close()
			r, err := mender.NewReader(f, mender.ReadOptions{})
			require.NoError(t, err)
			got, err := unpackForRepair(t.Context(), artifactFile{r}, func() (string, error) { return t.TempDir(), nil })
			require.NoError(t, err)
			var want []string
			for _, ref := range c.whole {
				digest := gentest.Digest(t, images[ref])
				want = append(want, image.Digest(digest).Hex())
				a, err := image.OpenArchive(filepath.Join(got, want[len(want)-1]))
				require.NoError(t, err)
				require.Equal(t, image.Digest(digest), a.Images()[0].ConfigDigest)
				require.NoError(t, image.Verify(a.Images()[0]))
				require.NoError(t, a.Close())
			}
			entries, err := os.ReadDir(got)
			require.NoError(t, err)
			var have []string
			for _, e := range entries {
				have = append(have, e.Name())
			}
			require.ElementsMatch(t, want, have)
		})
	}
}
