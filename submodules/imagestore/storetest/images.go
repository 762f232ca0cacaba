package storetest

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// made is an image that the suite made.
type made struct {
	img  *image.Image
	tars [][]byte
	top  string // content of the file top of the uppermost layer
}

func (m made) id() imagestore.Identity {
	return imagestore.Identity{Config: m.img.ConfigDigest, DiffIDs: m.img.DiffIDs}
}

// image makes an image of two layers: a base, which all images of the suite share,
// and a layer with the file top.
func (s *suite) image(name, top string) made {
	s.Helper()
	base := tarOf(s.T, "base", text(s.app+" base", 20_000))
	return build(s.T, s.Platform, s.app+" "+name, top, base, tarOf(s.T, "top", top))
}

func build(t *testing.T, p image.Platform, name, top string, tars ...[]byte) made {
	t.Helper()
	m := made{tars: tars, top: top}
	var layers []image.Layer
	var diffIDs []image.Digest
	for _, b := range tars {
		d := digest.Of(b)
		layers = append(layers, image.Layer{DiffID: d, Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }})
		diffIDs = append(diffIDs, d)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": p.Arch, "os": p.OS, "variant": p.Variant, "config": map[string]any{"Env": []string{"NAME=" + name}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	require.NoError(t, err)
	m.img, err = image.New(config, layers)
	require.NoError(t, err)
	return m
}

func tarOf(t *testing.T, name, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(1.7e9, 0)}))
	_, err := io.WriteString(w, data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// text returns n bytes that compress badly. The same seed gives the same bytes.
func text(seed string, n int) string {
	var b strings.Builder
	for d := digest.Of([]byte(seed)); b.Len() < n; d = digest.Of([]byte(d)) {
		b.WriteString(string(d))
	}
	return b.String()[:n]
}

// archive returns an image in the format that app-gen writes, without the layers in
// omit.
func archive(t *testing.T, m made, omit ...image.Digest) []byte {
	t.Helper()
	spec := image.ArchiveSpec{Image: m.img, RepoTags: []string{"storetest:1"}, Omit: map[image.Digest]image.Descriptor{}}
	for _, d := range omit {
		spec.Omit[d] = image.Descriptor{}
	}
	var b bytes.Buffer
	require.NoError(t, image.WriteArchive(&b, spec))
	return b.Bytes()
}

// forms are the archive formats of a whole image.
var forms = map[string]func(*testing.T, made) []byte{
	"hybrid":         func(t *testing.T, m made) []byte { return archive(t, m) },
	"layers first":   func(t *testing.T, m made) []byte { return layersFirst(t, m, m.tars, false) },
	"layers gzipped": func(t *testing.T, m made) []byte { return layersFirst(t, m, m.tars, true) },
}

// layersFirst returns a docker-archive whose layers come before its manifest. The
// layers may be forged.
func layersFirst(t *testing.T, m made, tars [][]byte, compress bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, data []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}))
		_, err := w.Write(data)
		require.NoError(t, err)
	}
	var names []string
	for i, data := range tars {
		names = append(names, m.img.DiffIDs[i].Hex()+"/layer.tar")
		if compress {
			var z bytes.Buffer
			zw := gzip.NewWriter(&z)
			_, err := zw.Write(data)
			require.NoError(t, err)
			require.NoError(t, zw.Close())
			data = z.Bytes()
		}
		add(names[i], data)
	}
	config := m.img.ConfigDigest.Hex() + ".json"
	add(config, m.img.Config)
	manifest, err := json.Marshal([]any{map[string]any{"Config": config, "RepoTags": []string{"storetest:1"}, "Layers": names}})
	require.NoError(t, err)
	add("manifest.json", manifest)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// manifestOf returns the digest of the OCI manifest in an archive.
func manifestOf(t *testing.T, archive []byte) image.Digest {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		require.NoError(t, err)
		if h.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct {
				Digest image.Digest `json:"digest"`
			} `json:"manifests"`
		}
		require.NoError(t, json.NewDecoder(r).Decode(&index))
		require.Len(t, index.Manifests, 1)
		return index.Manifests[0].Digest
	}
}

// Delta returns the delta between two images.
func Delta(t *testing.T, old, next *image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := encoder.Encode(t.Context(), &b, []delta.Image{content(old, "old")}, content(next, "new"), encoder.Options{TempDir: t.TempDir()})
	require.NoError(t, err)
	return b.Bytes()
}

// content returns what a delta has of an image: the config and the layers.
func content(img *image.Image, name string) delta.Image {
	d := delta.Image{Name: name, Objects: []delta.Object{{
		Digest: img.ConfigDigest, Size: int64(len(img.Config)), Kind: delta.Blob,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(img.Config)), nil },
	}}}
	for _, l := range img.Layers {
		d.Objects = append(d.Objects, delta.Object{Digest: l.DiffID, Size: l.Size, Kind: delta.Tar, Open: l.Open})
	}
	return d
}

// sharedContent returns 4 MiB of shared content, followed by the delta d.
func sharedContent(t *testing.T, d []byte) []byte {
	t.Helper()
	content := tarOf(t, "zeros", strings.Repeat("0", 4<<20))
	object := delta.Object{Digest: digest.Of(content), Size: int64(len(content)), Kind: delta.Tar, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
	var b bytes.Buffer
	_, err := encoder.Encode(t.Context(), &b, nil, delta.Image{Name: delta.SharedContent, Objects: []delta.Object{object}}, encoder.Options{})
	require.NoError(t, err)
	return append(b.Bytes(), d...)
}

// announced returns what the metadata announces for an image: a full image if d is
// nil, else the delta d.
func announced(t *testing.T, m made, d []byte) *submodules.Announced {
	t.Helper()
	a := &submodules.Announced{Format: "full", ConfigSize: int64(len(m.img.Config))}
	for _, b := range m.tars {
		a.Layers = append(a.Layers, submodules.AnnouncedLayer{Size: int64(len(b)), Encoding: "verbatim"})
	}
	if d == nil {
		return a
	}
	a.Format = "delta"
	r, err := decoder.New(bytes.NewReader(d))
	require.NoError(t, err)
	for i, o := range r.Header().Objects[1:] {
		a.Layers[i].Encoding = string(o.Encoding)
	}
	return a
}

// deltaMagic is the length of a delta's first field, magic and version
// (delta/FORMAT.md). It is followed by the length of the header, the header, and the
// header's CRC-32C.
const deltaMagic = len("\xd5appdlt\n") + 1

// edited returns a delta whose header gives an object another size and encoding (0
// omitted, 1 delta, 2 verbatim; see delta/FORMAT.md). The data after the header is
// unchanged: nothing should read it.
func edited(t *testing.T, d []byte, object image.Digest, edit func(kind byte, size uint64) (byte, uint64)) []byte {
	t.Helper()
	n, l := binary.Uvarint(d[deltaMagic:])
	require.Positive(t, l)
	start := deltaMagic + l
	header, rest := d[start:start+int(n)], d[start+int(n)+4:]
	raw, err := hex.DecodeString(object.Hex())
	require.NoError(t, err)
	i := bytes.LastIndex(header, raw) // bases come before objects
	require.Positive(t, i)
	size, l := binary.Uvarint(header[i+len(raw):])
	require.Positive(t, l)
	kind, size := edit(header[i-1], size)
	head := append(bytes.Clone(header[:i-1]), kind)
	head = binary.AppendUvarint(append(head, raw...), size)
	head = append(head, header[i+len(raw)+l:]...)
	out := binary.AppendUvarint(bytes.Clone(d[:deltaMagic]), uint64(len(head)))
	out = append(out, head...)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)))
	return append(out, rest...)
}

// withTemp returns a delta whose header says that decoding takes temporary bytes.
func withTemp(t *testing.T, d []byte, temp int64) []byte {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(d))
	h, err := delta.ReadHeader(r, decoder.Knows)
	require.NoError(t, err)
	h.Temp = temp
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	out, err := delta.AppendHeader(nil, h)
	require.NoError(t, err)
	return append(out, rest...)
}

// lowest watches a disk until the returned function is called, which returns the
// lowest free space seen, in bytes.
func lowest(t *testing.T, free func(*testing.T) int64) func() int64 {
	done, ended := make(chan struct{}), make(chan struct{})
	low := free(t)
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				low = min(low, free(t))
			}
		}
	}()
	var once sync.Once
	return func() int64 {
		once.Do(func() { close(done) })
		<-ended
		return low
	}
}
