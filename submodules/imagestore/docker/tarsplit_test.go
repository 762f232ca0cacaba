package docker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vbatts/tar-split/tar/asm"
	"github.com/vbatts/tar-split/tar/storage"
)

// splitTar splits a tar as the engine does.
func splitTar(t testing.TB, layer []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	r, done, err := asm.NewInputTarStreamWithDone(bytes.NewReader(layer), storage.NewJSONPacker(&out), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.NoError(t, <-done)
	return out.Bytes()
}

// What is read from a tar-split is the tar, and its headers are the members'.
func TestWriteSplit(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "x"}},
		{Typeflag: tar.TypeReg, Name: "a", Size: 700},
		{Typeflag: tar.TypeLink, Name: "b", Linkname: "a"},
		{Typeflag: tar.TypeReg, Name: "c", Size: 3, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"}},
	} {
		require.NoError(t, w.WriteHeader(h))
		data := bytes.Repeat([]byte(h.Name[:1]), int(h.Size))
		_, err := w.Write(data)
		require.NoError(t, err)
		if h.Size > 0 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, h.Name), data, 0o644))
		}
	}
	require.NoError(t, w.Close())
	split := splitTar(t, b.Bytes())
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	var out bytes.Buffer
	require.NoError(t, writeSplit(&out, root, storage.NewJSONUnpacker(bytes.NewReader(split))))
	require.Equal(t, b.Bytes(), out.Bytes())

	h := &splitHeaders{up: storage.NewJSONUnpacker(bytes.NewReader(split)), Closer: io.NopCloser(nil)}
	var sizes []int
	for {
		head, err := h.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		sizes = append(sizes, len(head))
	}
	require.Equal(t, []int{512 + 13, 512, 512, 3 * 512}, sizes, "the padding of a global header is not its own")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), bytes.Repeat([]byte("x"), 700), 0o644))
	require.ErrorContains(t, writeSplit(io.Discard, root, storage.NewJSONUnpacker(bytes.NewReader(split))), "a is damaged")
}

// FuzzSplit: a damaged tar-split is an error or a report, and never more.
func FuzzSplit(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(f, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 3, PAXRecords: map[string]string{"x": "y"}}))
	_, err := io.WriteString(w, "abc")
	require.NoError(f, err)
	require.NoError(f, w.Close())
	f.Add(splitTar(f, b.Bytes()))
	f.Add([]byte(`{"type":1,"name":"../a","size":-5,"position":0}`))
	f.Add([]byte(`{"type":2,"payload":"YQ==","position":0}` + "\n" + `{"type":1,"name":"a","size":3,"payload":"YQ==","position":1}`))
	var z bytes.Buffer
	require.NoError(f, gzip.NewWriter(&z).Close())
	f.Add(z.Bytes())
	dir := f.TempDir()
	require.NoError(f, os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o644))
	root, err := os.OpenRoot(dir)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, split []byte) {
		_, _, _ = compareSplit(t.Context(), root, storage.NewJSONUnpacker(bytes.NewReader(split)))
		_ = writeSplit(io.Discard, root, storage.NewJSONUnpacker(bytes.NewReader(split)))
		h := &splitHeaders{up: storage.NewJSONUnpacker(bytes.NewReader(split))}
		for range 1000 {
			if _, err := h.Next(); err != nil {
				break
			}
		}
	})
}
