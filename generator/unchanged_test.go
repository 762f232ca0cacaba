package generator

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/source"
)

// A release of which only a manifest changed reads no layer and decodes nothing, and has
// the same bytes as one that does. If one image changed, the others are not decoded.
func TestUnchangedImages(t *testing.T) {
	s := newShop(t)
	o := s.options(t, "web:1", "side:1", "extra:1")
	o.Images.Coding = Coded
	o.Artifact.Name = "shop-1"
	cache := t.TempDir()
	var mu sync.Mutex
	var work []string
	o.Build.Progress = func(e source.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Stage == "read" || e.Stage == "apply" || e.Stage == "encode" {
			work = append(work, e.Stage+" "+e.What)
		}
	}
	o.Build.CacheDir, o.Build.CacheLimit = cache, 1<<24
	one := o.Build.Output
	_, err := Generate(t.Context(), o, false)
	require.NoError(t, err)

	releases, name, last, third := []string{one}, "shop-2", "", ""
	made := func(o Options, cache string) string {
		t.Helper()
		work = nil
		o.Artifact.Name, o.Images.Releases.Paths = name, releases
		o.Build.Output, o.Build.CacheDir = filepath.Join(t.TempDir(), "b.mender"), cache
		_, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		b, err := os.ReadFile(o.Build.Output)
		require.NoError(t, err)
		last = o.Build.Output
		return string(b)
	}
	compose := filepath.Join(o.Application.ManifestsDir, "compose.yaml")
	b, err := os.ReadFile(compose)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(compose, append([]byte("# more\n"), b...), 0o644))
	quick := made(o, cache)
	require.Empty(t, work)
	o.Build.SBOM = filepath.Join(t.TempDir(), "sbom.json") // looks into the layers
	require.Equal(t, made(o, cache), quick)
	require.NotEmpty(t, work)

	two := s.options(t, "web:2", "side:1", "extra:1")
	two.Images.Coding, two.Build.Progress, two.Build.CacheLimit = Coded, o.Build.Progress, o.Build.CacheLimit
	made(two, cache)
	require.NotContains(t, work, "apply shop/side:1")

	require.NotContains(t, work, "apply shop/extra:1")
	require.Contains(t, work, "apply shop/web:1")

	// Over both releases, of which one has another web, nothing is read either, once that
	// delta is made.
	releases, name = []string{last, one}, "shop-3"
	compose = filepath.Join(two.Application.ManifestsDir, "compose.yaml")
	for _, comment := range []string{"# more\n", "# and more\n"} {
		b, err = os.ReadFile(compose)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(compose, append([]byte(comment), b...), 0o644))
		third = made(two, cache)
	}
	require.Empty(t, work)
	require.Equal(t, made(two, ""), third)
	require.NotEmpty(t, work)
	releases, name = []string{one}, "shop-2"

	// The payload of the older release is not even read, unless its content is needed.
	info, err := os.Stat(one)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(one, info.Size()*9/10))
	o.Build.SBOM = ""
	require.Equal(t, quick, made(o, cache))
	two.Artifact.Name, two.Images.Releases.Paths, two.Build.Output = "shop-2", []string{one}, filepath.Join(t.TempDir(), "b.mender")
	_, err = Generate(t.Context(), two, false)
	require.ErrorContains(t, err, one)
}
