package imagestore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
)

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

type member struct {
	name string
	data []byte
}

func pack(t testing.TB, members ...member) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: 0o644, Size: int64(len(m.data))}))
		_, err := w.Write(m.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func compress(t testing.TB, how string, b []byte) []byte {
	var out bytes.Buffer
	switch how {
	case "gzip":
		w := gzip.NewWriter(&out)
		_, err := w.Write(b)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case "zstd":
		w, err := zstd.NewWriter(&out)
		require.NoError(t, err)
		_, err = w.Write(b)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	default:
		return b
	}
	return out.Bytes()
}

// unpack puts a layer's files where a snapshotter would, but for those of skip.
func unpack(t testing.TB, skip string, members ...member) string {
	dir := t.TempDir()
	for _, m := range members {
		if m.name == skip {
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(m.name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, m.name), m.data, 0o644))
	}
	return dir
}

type sink struct {
	bytes.Buffer
	done bool
}

func (s *sink) Commit() error { s.done = true; return nil }
func (s *sink) Abort(error)   {}

// A delta is rebuilt from a layer however it is stored, and what is kept
// meanwhile is at most the layer whose files are not where they should be.
func TestUnpackedStore(t *testing.T) {
	files := []member{{"bin/same", noise(1, 3000)}, {"bin/changed", noise(2, 90000)}, {"via/link", noise(3, 400)}}
	oldTar := pack(t, files...)
	changed := bytes.Clone(files[1].data)
	copy(changed[5000:], "a change")
	newTar := pack(t, files[0], member{"bin/changed", changed}, files[2], member{"bin/new", []byte("new")})
	object := func(b []byte) delta.Object {
		return delta.Object{Digest: digest.Of(b), Size: int64(len(b)), Kind: delta.Tar, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b)), nil
		}}
	}
	var d bytes.Buffer
	_, err := encoder.Encode(t.Context(), &d, []delta.Image{{Name: "old", Objects: []delta.Object{object(oldTar)}}},
		delta.Image{Name: "new", Objects: []delta.Object{object(newTar)}}, encoder.Options{Workers: 1})
	require.NoError(t, err)

	for _, how := range []string{"plain", "gzip", "zstd"} {
		for _, dir := range []string{"whole", "lacks one", "none", "fails"} {
			t.Run(how+", directory "+dir, func(t *testing.T) {
				temp := t.TempDir()
				blob := filepath.Join(t.TempDir(), "blob")
				require.NoError(t, os.WriteFile(blob, compress(t, how, oldTar), 0o644))
				parts := LayerParts{Blob: func(context.Context) (delta.File, error) {
					f, err := os.Open(blob)
					require.NoError(t, err)
					return NewFile(f)
				}}
				switch dir {
				case "whole", "lacks one":
					skip := ""
					if dir == "lacks one" {
						skip = "via/link"
					}
					at := unpack(t, skip, files...)
					parts.Dir = func(context.Context) (*os.Root, error) { return os.OpenRoot(at) }
				case "fails":
					parts.Dir = func(context.Context) (*os.Root, error) { return nil, os.ErrPermission }
				}
				var said []string
				old := UnpackedStore{
					Layer: func(_ context.Context, d image.Digest) (LayerParts, error) {
						if d != digest.Of(oldTar) {
							return LayerParts{}, delta.ErrNoObject
						}
						return parts, nil
					},
					TempDir: temp, Log: func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) },
				}.Old()
				r, err := decoder.New(bytes.NewReader(d.Bytes()))
				require.NoError(t, err)
				s := &sink{}
				require.NoError(t, r.Apply(t.Context(), old, t.TempDir(), func(delta.ObjectInfo) (delta.Sink, error) { return s, nil }))
				require.True(t, s.done)
				require.True(t, bytes.Equal(newTar, s.Bytes()))
				spooled := 0
				for _, l := range said {
					if bytes.Contains([]byte(l), []byte("temporary file")) {
						spooled++
					}
				}
				if how == "plain" || dir == "whole" {
					require.Zero(t, spooled, "%v", said)
				} else {
					require.Equal(t, 1, spooled, "%v", said)
				}

				tar, size, err := old.Layer(t.Context(), digest.Of(oldTar))
				require.NoError(t, err)
				require.EqualValues(t, len(oldTar), size)
				_, at := tar.(delta.File)
				require.Equal(t, how == "plain", at)
				got, err := io.ReadAll(tar)
				require.NoError(t, err)
				require.True(t, bytes.Equal(oldTar, got))
				require.NoError(t, tar.Close())
				_, _, err = old.Layer(t.Context(), digest.Of(newTar))
				require.ErrorIs(t, err, delta.ErrNoObject)
				require.NoError(t, old.Close())
				left, err := os.ReadDir(temp)
				require.NoError(t, err)
				require.Empty(t, left)
			})
		}
	}
}

// A layer whose blob was discarded has its files, and no headers.
func TestUnpackedStoreDiscarded(t *testing.T) {
	files := []member{{"a", []byte("content")}}
	dir := unpack(t, "", files...)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	d := digest.Of(pack(t, files...))
	parts := LayerParts{Dir: func(context.Context) (*os.Root, error) { return os.OpenRoot(dir) }}
	old := UnpackedStore{Layer: func(context.Context, image.Digest) (LayerParts, error) { return parts, nil }, Log: t.Logf}.Old()
	defer old.Close()
	f, err := old.OpenFile(t.Context(), d, "a")
	require.NoError(t, err)
	require.EqualValues(t, 7, f.Size())
	require.NoError(t, f.Close())
	for _, name := range []string{"out", "b", "../b"} {
		_, err = old.OpenFile(t.Context(), d, name)
		require.Error(t, err, name)
	}
	_, err = old.Headers(t.Context(), d)
	require.ErrorIs(t, err, delta.ErrNoObject)
	require.ErrorContains(t, err, "discarded")
	_, _, err = old.Layer(t.Context(), d)
	require.ErrorIs(t, err, delta.ErrNoObject)
	parts.Dir = nil
	other := UnpackedStore{Layer: func(context.Context, image.Digest) (LayerParts, error) { return parts, nil }, Log: t.Logf}.Old()
	_, err = other.OpenFile(t.Context(), d, "a")
	require.ErrorIs(t, err, delta.ErrNoObject)
}

func TestUpper(t *testing.T) {
	require.Equal(t, "/s/3/fs", Upper("overlay", "overlay", []string{"index=off", "lowerdir=/s/3/fs:/s/2/fs:/s/1/fs"}))
	require.Equal(t, "/s/1/fs", Upper("bind", "/s/1/fs", []string{"ro", "rbind"}))
	require.Empty(t, Upper("btrfs", "/dev/vda", []string{"subvolid=7"}))
	require.Empty(t, Upper("overlay", "overlay", nil))
	require.Empty(t, Upper("overlay", "overlay", []string{"lowerdir=relative:/s"}))
}
