package docker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// sparseLayer is a layer of a few KiB with a file of size bytes in it, all of it
// a hole, as GNU tar writes it.
func sparseLayer(t *testing.T, size int64) []byte {
	t.Helper()
	if _, err := exec.LookPath("tar"); err != nil {
		missing(t, "this test needs GNU tar")
	}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "hole"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	require.NoError(t, f.Close())
	out, err := exec.Command("tar", "-C", dir, "--format=posix", "--sparse", "-cf", "-", "hole").Output()
	require.NoError(t, err)
	require.Less(t, len(out), 20<<10)
	return out
}

// announced is an archive whose layer says it has size bytes; they are endless
// zeros.
func announced(t *testing.T, size int64) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	member := func(name string, b []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(b)), Mode: 0o644}))
		_, err := w.Write(b)
		require.NoError(t, err)
	}
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": "amd64",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []image.Digest{digest.Of([]byte("any"))}},
	})
	require.NoError(t, err)
	manifest, err := json.Marshal([]any{map[string]any{"Config": "c.json", "Layers": []string{"l/layer.tar"}}})
	require.NoError(t, err)
	member("c.json", config)
	member("manifest.json", manifest)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "l/layer.tar", Size: size, Mode: 0o644}))
	return io.MultiReader(&buf, zeros{})
}

// counted counts what is read of content.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// edited is an archive with its members changed: edit returns what comes in the
// place of one.
func edited(t *testing.T, archive []byte, edit func(h *tar.Header, b []byte) [][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members(t, archive) {
		for _, c := range edit(m.h, m.b) {
			m.h.Size = int64(len(c))
			require.NoError(t, w.WriteHeader(m.h))
			_, err := w.Write(c)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// Content that is not what it should be is refused in little memory, before
// much of it is read; the engine then has nothing of it, and the old image is
// untouched.
func TestLoadHostile(t *testing.T) {
	e, app := engine(t)
	room, err := target{e: e}.Room(t.Context())
	require.NoError(t, err)
	if room == imagestore.NoRoomLimit {
		t.Skip("the engine's disk is out of reach")
	}
	old := makeImage(t, "amd64", layerTar(t, entry{"a", app + "old"}))
	require.NoError(t, e.loadBytes(t, app, ours(t, old, app+":1"), imagestore.LoadRequest{}))
	before, err := e.Inspect(t.Context(), app+":1")
	require.NoError(t, err)
	require.NoError(t, e.cli.ImageTag(t.Context(), before.ID, app+":mine"))
	before, err = e.Inspect(t.Context(), app+":1")
	require.NoError(t, err)

	big := layerTar(t, entry{"b", app + strings.Repeat("z", 300000)})
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app}), big)
	good := ours(t, s, app+":1")
	layer := func(h *tar.Header) bool { return h.Size == int64(len(big)) }
	huge := room + 1<<30
	// Where the disk has more room than an archive may take, that bound comes first.
	noRoom, why := submodules.ErrSpace, "free some and try again"
	if huge > 64<<30 {
		noRoom, why = submodules.ErrContent, "beyond its limits"
	}
	sparse := makeImage(t, "amd64", sparseLayer(t, huge))
	// One header, gzip'd, says what the rest would be.
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	tw := tar.NewWriter(zw)
	require.NoError(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: huge, Mode: 0o644}))
	_, err = tw.Write(make([]byte, 64<<20))
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	require.Less(t, z.Len(), 1<<20)
	bomb, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(z.Bytes())), nil })
	require.NoError(t, err)
	bombed, err := mutate.AppendLayers(empty.Image, bomb)
	require.NoError(t, err)
	for title, c := range map[string]struct {
		content io.Reader
		spec    imagestore.LoadRequest
		want    error
		says    string
	}{
		"layer other than its diffID": {
			content: bytes.NewReader(edited(t, good, func(h *tar.Header, b []byte) [][]byte {
				if layer(h) {
					b[len(b)/2] ^= 1
				}
				return [][]byte{b}
			})), want: submodules.ErrContent, says: "does not match its digest",
		},
		"the same, layers first": {
			content: bytes.NewReader(shuffled(t, edited(t, good, func(h *tar.Header, b []byte) [][]byte {
				if layer(h) {
					b[len(b)/2] ^= 1
				}
				return [][]byte{b}
			}))), want: submodules.ErrContent, says: "does not match its digest",
		},
		"layer missing": {
			content: bytes.NewReader(edited(t, good, func(h *tar.Header, b []byte) [][]byte {
				if layer(h) {
					return nil
				}
				return [][]byte{b}
			})), want: submodules.ErrContent, says: "neither in the content nor in the engine",
		},
		"config missing": {
			content: bytes.NewReader(edited(t, good, func(h *tar.Header, b []byte) [][]byte {
				if strings.Contains(h.Name, s.img.ConfigDigest.Hex()) {
					return nil
				}
				return [][]byte{b}
			})), want: submodules.ErrContent, says: s.img.ConfigDigest.Hex()[:12],
		},
		"config for another platform": {
			content: bytes.NewReader(ours(t, makeImage(t, "arm64", big), "x:1")), spec: imagestore.LoadRequest{Platform: image.Platform{OS: "linux", Arch: "amd64"}},
			want: submodules.ErrContent, says: "is for linux/arm64, the release for linux/amd64",
		},
		"layer twice": {
			content: bytes.NewReader(edited(t, good, func(h *tar.Header, b []byte) [][]byte {
				if layer(h) {
					return [][]byte{b, b}
				}
				return [][]byte{b}
			})), want: submodules.ErrContent, says: "it occurs twice",
		},
		"manifest twice": {
			content: bytes.NewReader(edited(t, good, func(h *tar.Header, b []byte) [][]byte {
				if h.Name == "manifest.json" {
					return [][]byte{b, b}
				}
				return [][]byte{b}
			})), want: submodules.ErrContent, says: "it occurs twice",
		},
		"layer larger than the disk":           {content: announced(t, huge), want: noRoom, says: why},
		"sparse file larger than the disk":     {content: bytes.NewReader(ours(t, sparse, "x:1")), want: submodules.ErrSpace, says: "free some and try again"},
		"compressed file larger than the disk": {content: bytes.NewReader(dockerArchive(t, sample{reg: bombed}, "x:1")), want: submodules.ErrSpace, says: "free some and try again"},
	} {
		t.Run(title, func(t *testing.T) {
			in := &counted{Reader: c.content}
			spec := c.spec
			spec.App, spec.URL, spec.TempDir = app, app+":1", t.TempDir()
			var from, to runtime.MemStats
			runtime.ReadMemStats(&from)
			spec.Log = t.Logf
			err := imagestore.Load(t.Context(), e.Store(spec.TempDir), spec, in)
			runtime.ReadMemStats(&to)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.says)
			require.Less(t, in.n, int64(4<<20), "bytes read of the content")
			require.Less(t, to.TotalAlloc-from.TotalAlloc, uint64(32<<20), "bytes allocated in all")
			left, err := os.ReadDir(spec.TempDir)
			require.NoError(t, err)
			require.Empty(t, left)

			own, err := e.Own(t.Context(), app)
			require.NoError(t, err)
			require.Len(t, own, 1)
			now, err := e.Inspect(t.Context(), app+":1")
			require.NoError(t, err)
			slices.Sort(now.Tags)
			slices.Sort(before.Tags)
			require.Equal(t, before, now)
			require.NoError(t, e.Verify(t.Context(), app, old.identity(), ""))
		})
	}
	// The good one of them still loads.
	require.NoError(t, e.loadBytes(t, app, good, imagestore.LoadRequest{Want: s.identity()}))
}

// zeros is endless content.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
