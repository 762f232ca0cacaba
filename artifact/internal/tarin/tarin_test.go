package tarin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

var (
	errFormat = errors.New("format")
	errLarge  = errors.New("too large")
)

func makeTar(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, h := range headers {
		require.NoError(t, tw.WriteHeader(&h))
		_, err := io.CopyN(tw, zeros{}, h.Size)
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	return buf.Bytes()
}

// zeros is content that looks like the end of a tar.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func file(name string, size int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}
}

func readAll(r io.Reader, o Options) (names []string, err error) {
	o.Format, o.TooLarge = errFormat, errLarge
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 20
	}
	if o.MaxMembers == 0 {
		o.MaxMembers = 10
	}
	tr, err := NewReader(r, o)
	if err != nil {
		return nil, err
	}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			_, again := tr.Next()
			if again != io.EOF {
				return nil, again
			}
			return names, nil
		}
		if err != nil {
			return names, err
		}
		names = append(names, h.Name)
	}
}

func TestReader(t *testing.T) {
	b := makeTar(t, tar.Header{Typeflag: tar.TypeDir, Name: "./"}, file("./a", 3000), tar.Header{Typeflag: tar.TypeDir, Name: "d//e/"}, file("d/f", 0),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "a"})
	want := []string{"a", "d/e", "d/f", "l"}
	names, err := readAll(iotest.OneByteReader(bytes.NewReader(b)), Options{MaxBytes: int64(len(b)), MaxMembers: 5})
	require.NoError(t, err)
	require.Equal(t, want, names)
	// Filled up to a record, as GNU tar does.
	names, err = readAll(bytes.NewReader(append(b[:len(b):len(b)], make([]byte, 10240)...)), Options{})
	require.NoError(t, err)
	require.Equal(t, want, names)

	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	_, err = zw.Write(b)
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	names, err = readAll(bytes.NewReader(zipped.Bytes()), Options{})
	require.NoError(t, err)
	require.Equal(t, want, names)
	_, err = readAll(bytes.NewReader(zipped.Bytes()), Options{Plain: true})
	require.ErrorIs(t, err, errFormat)
	_, err = readAll(bytes.NewReader(zipped.Bytes()[:zipped.Len()-4]), Options{})
	require.ErrorIs(t, err, errFormat)

	_, err = readAll(bytes.NewReader(b), Options{MaxBytes: int64(len(b)) - 1})
	require.ErrorIs(t, err, errLarge)
	_, err = readAll(bytes.NewReader(b), Options{MaxBytes: 2000})
	require.ErrorIs(t, err, errLarge)
	require.ErrorContains(t, err, `"a" of 3000 bytes`)
	_, err = readAll(bytes.NewReader(b), Options{MaxMembers: 4})
	require.ErrorIs(t, err, errLarge)
}

// TestReaderTruncated cuts a tar whose content cannot be told from its end.
func TestReaderTruncated(t *testing.T) {
	b := makeTar(t, file("a", 2000), file("b", 4096))
	for cut := range b {
		_, err := readAll(bytes.NewReader(b[:cut]), Options{})
		require.ErrorIs(t, err, errFormat, cut)
	}
	_, err := readAll(bytes.NewReader(append(b[:len(b):len(b)], 'x')), Options{})
	require.ErrorIs(t, err, errFormat)
	_, err = readAll(bytes.NewReader(append(b[:len(b):len(b)], make([]byte, maxTail+1)...)), Options{MaxBytes: 1 << 30})
	require.ErrorIs(t, err, errFormat)
	broken := errors.New("cable unplugged")
	_, err = readAll(io.MultiReader(bytes.NewReader(b[:1500]), iotest.ErrReader(broken)), Options{})
	require.ErrorIs(t, err, broken)
}

func TestSparse(t *testing.T) {
	require.True(t, Sparse(&tar.Header{Typeflag: tar.TypeGNUSparse}))
	require.True(t, Sparse(&tar.Header{Typeflag: tar.TypeReg, PAXRecords: map[string]string{"GNU.sparse.major": "1"}}))
	require.False(t, Sparse(&tar.Header{Typeflag: tar.TypeReg, PAXRecords: map[string]string{"path": "x"}}))
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "./a//b/": "a/b", "./": ".", ".": ".", "..a/b..": "..a/b.."} {
		got, err := Name(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, in := range []string{"", "/", "/a", "..", "a/..", "../a", "a/../b", "a\x00b", strings.Repeat("a", MaxName+1)} {
		_, err := Name(in)
		require.Error(t, err, in)
	}
}
