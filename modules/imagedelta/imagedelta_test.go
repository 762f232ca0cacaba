package imagedelta_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/modules/imagedelta"
	"github.com/mender-app/mender-app/submodules"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == imagedelta.Verb {
		os.Exit(imagedelta.Main(os.Stdin, os.Stderr))
	}
	os.Exit(m.Run())
}

// saved is an image with the archive that SAVE would write of it.
type saved struct {
	*image.Image
	path string
}

// save makes an image, and its archive: with its layers compressed, or plain as docker
// save writes them.
func save(t *testing.T, tag string, compressed bool, layers ...gentest.Files) saved {
	t.Helper()
	path := gentest.DockerArchive(t, filepath.Join(t.TempDir(), "image.tar"), map[string]v1.Image{tag: gentest.Image(t, "linux/arm/v7", layers...)})
	a, err := image.OpenArchive(path)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	s := saved{a.Images()[0], path}
	require.NoError(t, image.Verify(s.Image))
	if compressed {
		return s
	}
	s.path = filepath.Join(t.TempDir(), "plain.tar")
	f, err := os.Create(s.path)
	require.NoError(t, err)
	require.NoError(t, image.WriteArchive(f, image.ArchiveSpec{Image: s.Image, RepoTags: []string{tag}}))
	require.NoError(t, f.Close())
	return s
}

// request is that for the delta that makes next of olds.
func request(t *testing.T, next saved, olds ...saved) imagedelta.Request {
	t.Helper()
	var list []delta.Image
	var archives []string
	for _, o := range olds {
		list = append(list, bases.DeltaImage("web:1", o.Image))
		archives = append(archives, o.path)
	}
	var out bytes.Buffer
	report, err := encoder.Encode(t.Context(), &out, list, bases.DeltaImage("web:2", next.Image), encoder.Options{TempDir: t.TempDir()})
	require.NoError(t, err)
	dir := t.TempDir()
	q := imagedelta.Request{
		Component: submodules.Component{Type: "image", URL: "web:2", Digest: next.ConfigDigest, DiffIDs: next.DiffIDs,
			Announced: &submodules.Announced{Format: "delta", ConfigSize: int64(len(next.Config))}},
		Platform: "linux/arm/v7", Tags: []string{"web:2", "web:stable"}, Archives: archives,
		Delta: filepath.Join(dir, "delta"), New: filepath.Join(dir, "new"), Temp: dir, MaxFile: 1 << 30,
	}
	for _, o := range report.Objects[1:] {
		q.Component.Announced.Layers = append(q.Component.Announced.Layers, submodules.AnnouncedLayer{Size: o.Size, Encoding: string(o.Encoding)})
	}
	require.NoError(t, os.WriteFile(q.Delta, out.Bytes(), 0o600))
	return q
}

var (
	base = gentest.Files{"lib/a": gentest.Text("a", 60_000), "lib/b": gentest.Text("b", 20_000)}
	app1 = gentest.Files{"app": gentest.Text("app", 80_000)}
	app2 = gentest.Files{"app": gentest.Text("app", 40_000) + "two" + gentest.Text("app", 80_000)[40_000:]}
)

// is asserts that the archive at path has the image, whole and under its names.
func is(t *testing.T, path string, want saved, tags ...string) {
	t.Helper()
	a, err := image.OpenArchive(path)
	require.NoError(t, err)
	defer a.Close()
	require.Len(t, a.Images(), 1)
	got := a.Images()[0]
	require.Equal(t, want.ConfigDigest, got.ConfigDigest)
	require.NoError(t, image.Verify(got))
	require.ElementsMatch(t, tags, manifestTags(t, path))
}

// manifestTags are the names that docker load gives the image.
func manifestTags(t *testing.T, path string) []string {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		require.NoError(t, err)
		if h.Name != "manifest.json" {
			continue
		}
		var list []struct{ RepoTags []string }
		require.NoError(t, json.NewDecoder(r).Decode(&list))
		require.Len(t, list, 1)
		return list[0].RepoTags
	}
}

// The delta makes the new image of the archive of the old one, in a process of its
// own, and leaves nothing else behind.
func TestRun(t *testing.T) {
	for name, compressed := range map[string]bool{"plain layers": false, "compressed layers": true} {
		t.Run(name, func(t *testing.T) {
			old := save(t, "web:1", compressed, base, app1)
			next := save(t, "web:2", true, base, app2)
			q := request(t, next, old)
			fi, err := os.Stat(q.Delta)
			require.NoError(t, err)
			require.Less(t, fi.Size(), int64(3000), "it has only what changed")
			require.NoError(t, imagedelta.Run(t.Context(), q))
			is(t, q.New, next, q.Tags...)
			left, err := os.ReadDir(q.Temp)
			require.NoError(t, err)
			require.Len(t, left, 2, "the delta and the archive")
		})
	}
}

// An image may take layers and files from several others.
func TestTakesFromSeveral(t *testing.T) {
	one, two := save(t, "web:1", false, base), save(t, "side:1", true, app1)
	next := save(t, "web:2", true, base, app2)
	q := request(t, next, one, two)
	require.NoError(t, imagedelta.Run(t.Context(), q))
	is(t, q.New, next, q.Tags...)
}

// What is not as it should be is refused by name, and marked as a LOAD's errors are.
func TestRefuses(t *testing.T) {
	old := save(t, "web:1", false, base, app1)
	next := save(t, "web:2", true, base, app2)
	other := save(t, "web:0", false, gentest.Files{"app": gentest.Text("other", 50_000)})
	damage := func(path string, edit func([]byte) []byte) string {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		out := filepath.Join(t.TempDir(), "damaged")
		require.NoError(t, os.WriteFile(out, edit(bytes.Clone(b)), 0o600))
		return out
	}
	for name, c := range map[string]struct {
		change func(q *imagedelta.Request)
		mark   error
		says   string
	}{
		"no archive":      {func(q *imagedelta.Request) { q.Archives = nil }, submodules.ErrBase, ""},
		"another archive": {func(q *imagedelta.Request) { q.Archives = []string{other.path} }, submodules.ErrBase, ""},
		"garbage for an archive": {func(q *imagedelta.Request) {
			q.Archives[0] = damage(old.path, func([]byte) []byte { return []byte(strings.Repeat("garbage ", 500)) })
		}, submodules.ErrBase, "not a tar"},
		"an archive that is cut off": {func(q *imagedelta.Request) {
			q.Archives[0] = damage(old.path, func(b []byte) []byte { return b[:len(b)/2] })
		}, submodules.ErrBase, ""},
		"a damaged layer of an archive": {func(q *imagedelta.Request) {
			q.Archives[0] = damage(old.path, func(b []byte) []byte {
				i := bytes.Index(b, []byte("app line 100 "))
				copy(b[i:], "APP")
				return b
			})
		}, submodules.ErrBase, ""},
		"another image is announced": {func(q *imagedelta.Request) { q.Component.Digest = old.ConfigDigest }, submodules.ErrContent, "is announced"},
		"other layers are announced": {func(q *imagedelta.Request) { slices.Reverse(q.Component.DiffIDs) }, submodules.ErrContent, ""},
		"a full image is announced":  {func(q *imagedelta.Request) { q.Component.Announced.Format = "full" }, submodules.ErrContent, "it is a delta"},
		"a smaller layer is announced": {func(q *imagedelta.Request) {
			q.Component.Announced.Layers[1].Size = 100
		}, submodules.ErrContent, "announce"},
		"another platform": {func(q *imagedelta.Request) { q.Platform = "linux/arm64" }, submodules.ErrContent, "linux/arm64"},
		"a delta that is cut off": {func(q *imagedelta.Request) {
			q.Delta = damage(q.Delta, func(b []byte) []byte { return b[:len(b)-20] })
		}, submodules.ErrContent, ""},
		"garbage for a delta": {func(q *imagedelta.Request) {
			q.Delta = damage(q.Delta, func([]byte) []byte { return []byte("garbage") })
		}, submodules.ErrContent, ""},
		"a file that is too large": {func(q *imagedelta.Request) { q.MaxFile = 1000 }, nil, "file too large"},
	} {
		t.Run(name, func(t *testing.T) {
			q := request(t, next, old)
			q.Component.DiffIDs = slices.Clone(q.Component.DiffIDs)
			c.change(&q)
			err := imagedelta.Run(t.Context(), q)
			require.Error(t, err)
			if c.mark != nil {
				require.ErrorIs(t, err, c.mark, "%v", err)
			}
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// The end of the context ends the process.
func TestRunEnds(t *testing.T) {
	old := save(t, "web:1", false, base, app1)
	q := request(t, save(t, "web:2", true, base, app2), old)
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	require.ErrorIs(t, imagedelta.Run(ctx, q), context.DeadlineExceeded)
}

// The process refuses what is not its input.
func TestMainRefuses(t *testing.T) {
	var said bytes.Buffer
	require.Equal(t, submodules.CodeFailed, imagedelta.Main(io.LimitReader(strings.NewReader("x"), 1), &said))
	require.Contains(t, said.String(), "the update module calls this itself")
}
