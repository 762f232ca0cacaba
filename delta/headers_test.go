package delta

import (
	"bytes"
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
