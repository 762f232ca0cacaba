package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// allocated returns the bytes f allocates in all, which is more than what it
// ever holds.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestReadStreamMemory reads a layer far larger than the memory that may be
// taken, as it is and compressed.
func TestReadStreamMemory(t *testing.T) {
	size := int64(128 << 20)
	if testing.Short() {
		size = 40 << 20
	}
	pattern := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(pattern)
	s := makeSample(t, amd64, "base")
	for _, c := range []struct {
		name string
		most uint64
		pack func(io.Writer) io.WriteCloser
	}{
		{"plain", 1 << 20, nil},
		{"gzip", 1 << 20, func(w io.Writer) io.WriteCloser {
			zw, err := gzip.NewWriterLevel(w, gzip.HuffmanOnly)
			require.NoError(t, err)
			return zw
		}},
		{"zstd", 24 << 20, func(w io.Writer) io.WriteCloser {
			zw, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
			require.NoError(t, err)
			return zw
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The layer is not the one of the config; by then it has been read.
			var layer bytes.Buffer
			if c.pack != nil {
				zw := c.pack(&layer)
				for range size / int64(len(pattern)) {
					_, err := zw.Write(pattern)
					require.NoError(t, err)
				}
				require.NoError(t, zw.Close())
			}
			pr, pw := io.Pipe()
			go func() {
				tw := tar.NewWriter(pw)
				write := func(name string, size int64, r io.Reader) {
					if tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}) == nil {
						io.Copy(tw, r)
					}
				}
				write("c", int64(len(s.config)), bytes.NewReader(s.config))
				if c.pack == nil {
					write("l", size, io.LimitReader(repeat{pattern}, size))
				} else {
					write("l", int64(layer.Len()), bytes.NewReader(layer.Bytes()))
				}
				manifest := encode([]dockerImage{{Config: "c", Layers: []string{"l"}}})
				write("manifest.json", int64(len(manifest)), bytes.NewReader(manifest))
				tw.Close()
				pw.Close()
			}()
			var seen int64
			var err error
			took := allocated(func() {
				_, err = ReadStream(pr, Limits{}, Handler{Layer: func(m Member, r io.Reader) error {
					seen = m.Size
					return nil
				}})
			})
			require.ErrorIs(t, err, ErrMismatch)
			require.NotZero(t, seen)
			require.Less(t, took, c.most)
		})
	}
}

// repeat is a pattern without end; it forgets where in it it was.
type repeat struct{ pattern []byte }

func (r repeat) Read(p []byte) (int, error) { return copy(p, r.pattern), nil }
