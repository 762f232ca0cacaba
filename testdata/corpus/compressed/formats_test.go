package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"slices"
	"testing"

	klauspost "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// streams are one of each format.
func streams(t *testing.T) map[string][]byte {
	text := bytes.Repeat([]byte("some text that repeats. "), 200)
	var x bytes.Buffer
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
	return map[string][]byte{"xz": x.Bytes(), "zstd": zw.EncodeAll(text, nil), "bzip2": b, "lz4": l}
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
			require.Equal(t, map[string]int64{name + " | a/file": want}, a.in)
		}
		for n := range len(z) {
			a := account{bytes: map[string]int64{}, in: map[string]int64{}}
			a.addFile("a/file", z[:n])
			require.Empty(t, a.bytes, "%s, %d of %d bytes", name, n, len(z))
		}
	}
}

// Of streams of deflate, those count as made again that the standard library wrote; another
// library has its own way.
func TestAddDeflate(t *testing.T) {
	text := bytes.Repeat([]byte("some text that repeats. "), 200)
	for name, open := range map[string]func(w io.Writer) io.WriteCloser{
		"known":   func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"unknown": func(w io.Writer) io.WriteCloser { return klauspost.NewWriter(w) },
	} {
		var z bytes.Buffer
		z.WriteString("before")
		w := open(&z)
		_, err := w.Write(text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		a := account{bytes: map[string]int64{}, in: map[string]int64{}}
		a.addFile("a/file", z.Bytes())
		size := int64(z.Len() - len("before"))
		require.Equal(t, size, a.deflate, name)
		if name == "known" {
			require.Equal(t, size, a.again)
			require.Empty(t, a.in)
		} else {
			require.Zero(t, a.again)
			require.Equal(t, map[string]int64{"deflate | a/file": size}, a.in)
		}
	}
}

const (
	bzip2Stream = "QlpoOTFBWSZTWTG168gABweRgEABIkLcQCAAkCBoGgFKqep6aHqjBFoRbEWhFgi4Ivoi7EXoiwRcCLBF2IuCL0RbEXwRYIvwi0EWhFsRfxdyRThQkDG168g="
	lz4Stream   = "BCJNGGRApzUAAAD/CXNvbWUgdGV4dCB0aGF0IHJlcGVhdHMuIBgA////////////////////////olBhdHMuIAAAAAA8xw60"
)
