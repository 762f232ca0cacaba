package engines

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

// picture is a container image, whole, outside any engine.
type picture struct {
	submodules.Component
	bed.Image
	config []byte
	layers [][]byte // the tars
}

const baseSize = 1 << 20 // bytes of the lowest layer's only file

// newPicture makes an image of an application's service. Its two lowest layers are
// the same as those of every other picture with the same base.
func newPicture(t *testing.T, base, ref, version string) picture {
	t.Helper()
	shop, err := bed.Shop{Ref: ref, Version: version, Winter: version != "1"}.Image()
	require.NoError(t, err)
	shop.Layers = append([][]bed.File{
		{{Name: "etc/base", Data: words(base, baseSize)}},
		{{Name: "etc/" + base, Data: words(base+"'s second", 100<<10)}, {Name: "etc/script", Data: []byte("#!/bin/sh\n"), Mode: 0o755}},
	}, shop.Layers...)
	shop.Layers = append(shop.Layers, []bed.File{{Name: "etc/last", Data: []byte(mark(ref, version))}})
	built, err := shop.Build()
	require.NoError(t, err)
	return pictureOf(t, shop, built)
}

// mark is content that no other image contains.
func mark(ref, version string) string { return "the last word of " + ref + " " + version + "\n" }

func pictureOf(t *testing.T, from bed.Image, built v1.Image) picture {
	t.Helper()
	p := picture{Image: from, Component: submodules.Component{Type: "image", URL: from.Ref}}
	var err error
	p.config, err = built.RawConfigFile()
	require.NoError(t, err)
	p.Digest = digest.Of(p.config)
	layers, err := built.Layers()
	require.NoError(t, err)
	for _, l := range layers {
		r, err := l.Uncompressed()
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		p.layers = append(p.layers, b)
		p.DiffIDs = append(p.DiffIDs, digest.Of(b))
	}
	return p
}

// words is text that is the same for the same seed, and different for any other.
func words(seed string, size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x\n", sha256.Sum256(fmt.Appendf(nil, "%s %d", seed, i)))
	}
	return b.Bytes()[:size]
}

// archive writes the image as a file for LOAD, without its lowest layers.
func (p picture) archive(t *testing.T, d *bed.Device, omit int) string {
	t.Helper()
	layers := make([]image.Layer, len(p.layers))
	for i, b := range p.layers {
		layers[i] = image.Layer{Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
	}
	img, err := image.New(p.config, layers)
	require.NoError(t, err)
	spec := image.ArchiveSpec{Image: img, RepoTags: []string{p.URL}, Omit: map[image.Digest]image.Descriptor{}}
	for _, id := range img.DiffIDs[:omit] {
		spec.Omit[id] = image.Descriptor{}
	}
	f, err := os.CreateTemp(d.Share(""), "image-")
	require.NoError(t, err)
	require.NoError(t, image.WriteArchive(f, spec))
	require.NoError(t, f.Close())
	return f.Name()
}

// delta writes the deep delta of the image against old as a file for LOAD.
func (p picture) delta(t *testing.T, d *bed.Device, old picture) string {
	t.Helper()
	f, err := os.CreateTemp(d.Share(""), "delta-")
	require.NoError(t, err)
	_, err = encoder.Encode(t.Context(), f, []delta.Image{{Name: old.URL, Objects: old.objects()}}, delta.Image{Name: p.URL, Objects: p.objects()}, encoder.Options{})
	require.NoError(t, err)
	size, err := f.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	require.Less(t, size, int64(200<<10), "a delta has nothing of the base")
	require.NoError(t, f.Close())
	return f.Name()
}

func (p picture) objects() []delta.Object {
	object := func(b []byte, kind delta.Kind) delta.Object {
		return delta.Object{Digest: digest.Of(b), Size: int64(len(b)), Kind: kind,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
	}
	list := []delta.Object{object(p.config, delta.Blob)}
	for _, b := range p.layers {
		list = append(list, object(b, delta.Tar))
	}
	return list
}

// whole asserts that docker save gives the image ref with every layer, and that it
// is the picture.
func (p picture) whole(t *testing.T, d *bed.Device, ref string) {
	t.Helper()
	path := d.Share("saved.tar")
	d.MustRun(t, "docker", "save", "-o", path, ref)
	defer os.Remove(path)
	p.saved(t, path)
}

// saved asserts that the archive is the image, without using the product's code: it
// takes the layers from manifest.json and hashes them uncompressed.
func (p picture) saved(t *testing.T, path string) {
	t.Helper()
	var manifest []struct {
		Config string
		Layers []string
	}
	members := map[string]digest.Digest{} // name → of its uncompressed content
	links := map[string]string{}          // 20.10 saves a layer that comes twice as a link
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch {
		case h.Typeflag == tar.TypeSymlink:
			links[h.Name] = filepath.Join(filepath.Dir(h.Name), h.Linkname)
		case h.Name == "manifest.json":
			require.NoError(t, json.NewDecoder(tr).Decode(&manifest))
		case h.Typeflag == tar.TypeReg:
			members[h.Name] = digestOf(t, tr)
		}
	}
	require.Len(t, manifest, 1, "images in docker save")
	require.Equal(t, p.Digest, members[manifest[0].Config], "the config")
	var layers []digest.Digest
	for _, name := range manifest[0].Layers {
		if to, ok := links[name]; ok {
			name = to
		}
		layers = append(layers, members[name])
	}
	require.Equal(t, p.DiffIDs, layers, "the layers")
}

// digestOf is the digest of what r reads, decompressed where it is gzip.
func digestOf(t *testing.T, r io.Reader) digest.Digest {
	t.Helper()
	br := bufio.NewReader(r)
	r = br
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(br)
		require.NoError(t, err)
		r = z
	}
	h := sha256.New()
	_, err := io.Copy(h, r)
	require.NoError(t, err)
	return digest.OfHash(h)
}
