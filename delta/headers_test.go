package delta

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// The headers of a tar are the same read as a stream.
func TestNewHeaders(t *testing.T) {
	long := append([]byte("dir/"), bytes.Repeat([]byte("x"), 150)...)
	whole := makeTar(tarFile{name: "dir/", typ: '5'}, tarFile{name: "././@LongLink", typ: 'L', data: append(long, 0)},
		tarFile{name: string(long[:100]), typ: '0', data: noise(1, 70000)}, tarFile{name: "empty", typ: '0'}, tarFile{name: "link", typ: '1'},
		tarFile{name: "last", typ: '0', data: noise(2, 511)})
	for name, tar := range map[string][]byte{"whole": whole, "cut": whole[:4000], "empty": nil, "noise": noise(3, 5000), "no end": whole[:len(whole)-1024]} {
		t.Run(name, func(t *testing.T) {
			s := NewStore()
			require.NoError(t, s.Add("x", Tar, bytes.NewReader(tar), int64(len(tar))))
			want, err := s.Headers(t.Context(), "x")
			require.NoError(t, err)
			closed := false
			got := NewHeaders(&closeReader{bytes.NewReader(tar), &closed})
			for n := 0; ; n++ {
				a, aerr := want.Next()
				b, berr := got.Next()
				if aerr != nil {
					if name == "whole" {
						require.Equal(t, io.EOF, berr)
						require.Equal(t, 5, n)
					}
					// A member that is cut short shows only at the next one.
					for berr == nil {
						_, berr = got.Next()
					}
					break
				}
				require.NoError(t, berr)
				require.Equal(t, a, b)
			}
			require.NoError(t, got.Close())
			require.True(t, closed)
		})
	}
}

type closeReader struct {
	io.Reader
	closed *bool
}

func (c *closeReader) Close() error { *c.closed = true; return nil }

// unpacked is an Old that has what layers were unpacked to, and no tar.
type unpacked struct{ *Store }

func (unpacked) Headers(context.Context, Digest) (HeaderReader, error) { return nil, ErrNoObject }

// A delta of files alone is rebuilt where the headers of old tars are gone; the
// header of any other says which it needs.
func TestFilesOnly(t *testing.T) {
	for name, pair := range map[string]func() (old, new Image){"every operation": fuzzPair, "many files": manyFiles} {
		t.Run(name, func(t *testing.T) {
			old, new := pair()
			store := unpacked{storeOf(t, old)}
			var d bytes.Buffer
			rep, err := Encode(t.Context(), &d, []Image{old}, new, Options{})
			require.NoError(t, err)
			layer := len(rep.Header.Bases) - 1
			require.True(t, rep.Header.Bases[layer].Headers)
			_, err = apply(d.Bytes(), store)
			var oe *OldError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, NoBase, oe.Problem)
			require.Equal(t, rep.Header.Bases[layer], oe.Base)

			d.Reset()
			rep, err = Encode(t.Context(), &d, []Image{old}, new, Options{FilesOnly: true})
			require.NoError(t, err)
			for _, b := range rep.Header.Bases {
				require.False(t, b.Headers)
			}
			require.Equal(t, Delta, rep.Objects[len(rep.Objects)-1].Encoding)
			sinks, err := apply(d.Bytes(), store)
			require.NoError(t, err)
			for _, s := range sinks {
				require.True(t, s.committed)
			}
		})
	}
}
