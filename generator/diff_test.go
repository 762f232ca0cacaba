package generator

import (
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/source"
)

// releases makes three releases of web, of which the second and third are deltas
// over the one before, and a side that does not change.
func releases(t testing.TB) (s *shop, paths [3]string) {
	s = newShop(t)
	app := gentest.Files{"app": gentest.Text("app", 60_000), "kept": "k"}
	web := []v1.Image{
		gentest.Image(t, "linux/amd64", debian("libc6", "2.36-9", "gone", "1"), app),
		gentest.Image(t, "linux/amd64", debian("libc6", "2.36-9", "gone", "1"), app, debian("libc6", "2.36-10", "came", "2"),
			gentest.Files{"etc/new.conf": "x", "app": gentest.Text("app", 60_000) + "2"}),
		gentest.Image(t, "linux/amd64", debian("libc6", "2.36-10", "came", "3"), app),
	}
	for i, img := range web {
		name := []string{"web:1", "web:2", "web:3"}[i]
		gentest.DockerArchive(t, s.archive(name), map[string]v1.Image{"shop/" + name: img})
	}
	for i, pairs := range [][]string{{"web:1", "side:1"}, {"web:1,web:2", "side:1,side:1"}, {"web:2,web:3", "side:1,side:1"}} {
		o := s.options(t, pairs...)
		o.Artifact.Name = []string{"shop-1", "shop-2", "shop-3"}[i]
		_, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		paths[i] = o.Build.Output
	}
	return s, paths
}

func TestDiff(t *testing.T) {
	s, paths := releases(t)
	o := bases.Access{TempDir: t.TempDir()}
	d, err := inspect.Diff(t.Context(), paths[0], paths[1], nil, o)
	require.NoError(t, err)
	require.Empty(t, d.Warnings)
	require.Equal(t, "shop-1", d.Old)
	require.Equal(t, "shop-2", d.New)
	require.Len(t, d.Images, 2)
	web, side := d.Images[0], d.Images[1]
	require.Equal(t, inspect.Same, side.Change)
	require.Equal(t, "shop/web:1", web.Old)
	require.Equal(t, "shop/web:2", web.New)
	require.Equal(t, []inspect.PackageChange{
		{Change: inspect.Added, Type: "deb", Name: "came", New: "2"},
		{Change: inspect.Removed, Type: "deb", Name: "gone", Old: "1"},
		{Change: inspect.Changed, Type: "deb", Name: "libc6", Old: "2.36-9", New: "2.36-10"},
	}, web.Packages)
	status := web.Files[2]
	require.Equal(t, "var/lib/dpkg/status", status.Path)
	require.Equal(t, []inspect.FileChange{
		{Change: inspect.Changed, Path: "app", Old: 60_000, New: 60_001},
		{Change: inspect.Added, Path: "etc/new.conf", New: 1},
		{Change: inspect.Changed, Path: status.Path, Old: status.Old, New: status.New},
	}, web.Files)
	require.Len(t, d.Manifests, 1)
	require.Equal(t, "compose.yaml", d.Manifests[0].Path)

	// nothing changed: no content is needed
	d, err = inspect.Diff(t.Context(), paths[2], paths[2], nil, o)
	require.NoError(t, err)
	require.Equal(t, inspect.Same, d.Images[0].Change)
	require.Empty(t, d.Manifests)

	// both are deltas: the error says over what, and --base gives it
	_, err = inspect.Diff(t.Context(), paths[1], paths[2], nil, o)
	var needs *source.Error
	require.ErrorAs(t, err, &needs)
	require.Regexp(t, `a\.mender: the content of shop/web:2 is not in it: it is a delta over shop/web:1 \(sha256:[0-9a-f]{64}\)`, needs.Text)
	require.Contains(t, needs.Hint, "--base")
	for _, bases := range [][]string{
		{paths[0]}, {"mender:" + paths[0]}, {"docker-archive:" + s.archive("web:1"), s.archive("side:1")}, {s.archive("web:2"), s.archive("side:1")},
	} {
		d, err = inspect.Diff(t.Context(), paths[1], paths[2], bases, o)
		require.NoError(t, err, "%v", bases)
		require.Equal(t, []inspect.PackageChange{{Change: inspect.Changed, Type: "deb", Name: "came", Old: "2", New: "3"}}, d.Images[0].Packages)
		require.Equal(t, inspect.Removed, d.Images[0].Files[1].Change)
	}
}

// Images that several bases share content with are put together over one of
// these bases; without any, the error says what is needed.
func TestDiffOfVariants(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes many artifacts; left out of -short")
	}
	s, paths := releases(t)
	next := gentest.Image(t, "linux/amd64", gentest.Files{"app": gentest.Text("app", 60_000), "three": gentest.Text("three", 90_000)})
	gentest.DockerArchive(t, s.archive("web:4"), map[string]v1.Image{"shop/web:4": next})
	for _, fallback := range []bool{false, true} {
		o := s.options(t, "web:1,web:4", "web:2,web:4", "side:1")
		o.Application.ManifestsDir = s.manifests(t, "web:4", "side:1")
		o.Images.Fallback, o.Artifact.NoAutoDepends = fallback, true
		r, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		require.NotZero(t, r.Sent[0].Shared)
		d, err := inspect.Diff(t.Context(), paths[0], o.Build.Output, nil, bases.Access{TempDir: t.TempDir()})
		require.NoError(t, err)
		if !fallback {
			_, err := inspect.Diff(t.Context(), paths[2], o.Build.Output, []string{s.archive("web:3")}, bases.Access{TempDir: t.TempDir()})
			var needs *source.Error
			require.ErrorAs(t, err, &needs)
			require.Contains(t, needs.Text, "it is a delta over shop/web:1")
			require.Contains(t, needs.Hint, "give what it builds on")
		}
		require.Equal(t, inspect.Changed, d.Images[0].Change)
		require.Equal(t, "three", d.Images[0].Files[2].Path)
	}
}

// Images come and go, and are found by their repository.
func TestDiffPairs(t *testing.T) {
	s := newShop(t)
	a, b := s.options(t, "web:1", "side:1"), s.options(t, "extra:1", "web:2")
	for _, o := range []Options{a, b} {
		_, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
	}
	d, err := inspect.Diff(t.Context(), a.Build.Output, b.Build.Output, nil, bases.Access{TempDir: t.TempDir()})
	require.NoError(t, err)
	var have []string
	for _, img := range d.Images {
		have = append(have, string(img.Change)+" "+img.Old+" "+img.New)
	}
	require.Equal(t, []string{"added  shop/extra:1", "changed shop/web:1 shop/web:2", "removed shop/side:1 "}, have)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(b.Build.Output), ".app-gen-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
