package tarstore

import (
	"archive/tar"
	"bytes"
	"io"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
)

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// longTar has five members, one of them under a long name.
func longTar(t *testing.T) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []struct {
		tar.Header
		data []byte
	}{
		{tar.Header{Typeflag: tar.TypeDir, Name: "dir/"}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Format: tar.FormatGNU, Name: "dir/" + string(bytes.Repeat([]byte("x"), 150))}, noise(1, 70000)},
		{tar.Header{Typeflag: tar.TypeReg, Name: "empty"}, nil},
		{tar.Header{Typeflag: tar.TypeLink, Name: "link", Linkname: "empty"}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Name: "last"}, noise(2, 511)},
	} {
		h.Size = int64(len(h.data))
		require.NoError(t, w.WriteHeader(&h.Header))
		_, err := w.Write(h.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// The headers of a tar are the same read as a stream.
func TestNewHeaders(t *testing.T) {
	whole := longTar(t)
	for name, tar := range map[string][]byte{"whole": whole, "cut": whole[:4000], "empty": nil, "noise": noise(3, 5000), "no end": whole[:len(whole)-1024]} {
		t.Run(name, func(t *testing.T) {
			s := New()
			require.NoError(t, s.Add("x", delta.Tar, bytes.NewReader(tar), int64(len(tar))))
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
