package main

import (
	"bytes"
	"encoding/base64"
	"slices"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// streams are one of each format.
func streams(t *testing.T) map[string][]byte {
	text := bytes.Repeat([]byte("some text that repeats. "), 200)
	var g, x bytes.Buffer
	gw := gzip.NewWriter(&g)
	_, err := gw.Write(text)
	require.NoError(t, err)
	require.NoError(t, gw.Close())
	xw, err := xz.NewWriter(&x)
	require.NoError(t, err)
	_, err = xw.Write(text)
	require.NoError(t, err)
	require.NoError(t, xw.Close())
	zw, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	// Made by the programs, because no library here writes these.
	b, err := base64.StdEncoding.DecodeString(bzip2Stream)
	require.NoError(t, err)
	l, err := base64.StdEncoding.DecodeString(lz4Stream)
	require.NoError(t, err)
	return map[string][]byte{"gzip": g.Bytes(), "xz": x.Bytes(), "zstd": zw.EncodeAll(text, nil), "bzip2": b, "lz4": l}
}

// A stream counts whole, wherever it lies, and not if it is cut short.
func TestAddFile(t *testing.T) {
	for name, z := range streams(t) {
		for _, around := range [][2]string{{"", ""}, {"before", ""}, {"before", "behind"}, {"", string(z)}} {
			b := slices.Concat([]byte(around[0]), z, []byte(around[1]))
			a := account{bytes: map[string]int64{}, in: map[string]int64{}}
			a.addFile("a/file", b)
			want := int64(len(z))
			if around[1] == string(z) {
				want *= 2
			}
			require.Equal(t, map[string]int64{name: want}, a.bytes, "%s %q", name, around)
			require.Equal(t, int64(len(b)), a.files)
			if name != "gzip" {
				require.Equal(t, map[string]int64{name + " | a/file": want}, a.in)
			}
		}
		for n := range len(z) {
			a := account{bytes: map[string]int64{}, in: map[string]int64{}}
			a.addFile("a/file", z[:n])
			require.Empty(t, a.bytes, "%s, %d of %d bytes", name, n, len(z))
		}
	}
}

const (
	bzip2Stream = "QlpoOTFBWSZTWTG168gABweRgEABIkLcQCAAkCBoGgFKqep6aHqjBFoRbEWhFgi4Ivoi7EXoiwRcCLBF2IuCL0RbEXwRYIvwi0EWhFsRfxdyRThQkDG168g="
	lz4Stream   = "BCJNGGRApzUAAAD/CXNvbWUgdGV4dCB0aGF0IHJlcGVhdHMuIBgA////////////////////////olBhdHMuIAAAAAA8xw60"
)
