package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

func file(name string, body []byte) rig.Entry { return rig.Entry{Name: name, Body: string(body)} }

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// sample is an image to make archives of.
type sample struct {
	config []byte
	layers [][]byte
}

func makeSample(t testing.TB, p Platform, contents ...string) sample {
	t.Helper()
	s := sample{}
	c := map[string]any{"os": p.OS, "architecture": p.Arch, "variant": p.Variant, "future": 1}
	diffs := []Digest{}
	for _, text := range contents {
		l := rig.Tar(t, file("etc/"+text, []byte(text)))
		s.layers = append(s.layers, l)
		diffs = append(diffs, digest.Of(l))
	}
	c["rootfs"] = map[string]any{"type": "layers", "diff_ids": diffs}
	var err error
	s.config, err = json.Marshal(c)
	require.NoError(t, err)
	return s
}

func (s sample) image(t testing.TB, tags ...string) *Image {
	t.Helper()
	layers := make([]Layer, len(s.layers))
	for i, l := range s.layers {
		layers[i] = Layer{Size: int64(len(l)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil }}
	}
	img, err := New(s.config, layers, tags...)
	require.NoError(t, err)
	return img
}

// classic is the archive docker save made before version 25: directories
// named by legacy IDs, layers before the manifest.
func (s sample) classic(t testing.TB, tag string) []rig.Entry {
	t.Helper()
	var es []rig.Entry
	d := dockerImage{Config: digest.Of(s.config).Hex() + ".json", RepoTags: []string{tag}}
	ids := make(map[Digest]string)
	for i, l := range s.layers {
		id := digest.Of(fmt.Appendf(nil, "%s %d", digest.Of(s.config), i)).Hex()
		es = append(es, rig.Entry{Name: id + "/", Type: tar.TypeDir}, file(id+"/VERSION", []byte("1.0")), file(id+"/json", []byte(`{"id":"x"}`)))
		if other, ok := ids[digest.Of(l)]; ok {
			es = append(es, rig.Entry{Name: id + "/layer.tar", Type: tar.TypeSymlink, Link: "../" + other + "/layer.tar"})
		} else {
			es = append(es, file(id+"/layer.tar", l))
		}
		ids[digest.Of(l)] = id
		d.Layers = append(d.Layers, id+"/layer.tar")
	}
	return append(es, file(d.Config, s.config), file("manifest.json", encode([]dockerImage{d})), file("repositories", []byte(`{}`)))
}

// oci is the layout of several images, their layers packed by pack; with
// docker it has a manifest.json too.
func oci(t testing.TB, docker bool, pack func(testing.TB, []byte) []byte, samples ...sample) []rig.Entry {
	t.Helper()
	blobs := make(map[string]bool)
	es := []rig.Entry{{Name: "blobs/", Type: tar.TypeDir}, {Name: "blobs/sha256/", Type: tar.TypeDir}}
	add := func(media string, b []byte) Descriptor {
		name := blobDir + digest.Of(b).Hex()
		if !blobs[name] {
			es = append(es, file(name, b))
		}
		blobs[name] = true
		return Descriptor{MediaType: media, Digest: digest.Of(b), Size: int64(len(b))}
	}
	var list []dockerImage
	inner := ociIndex{SchemaVersion: 2, MediaType: mediaTypeIndex}
	for _, s := range samples {
		m := ociManifest{SchemaVersion: 2, MediaType: mediaTypeManifest, Config: add(mediaTypeConfig, s.config)}
		d := dockerImage{Config: blobDir + digest.Of(s.config).Hex(), RepoTags: []string{"web:1"}}
		for _, l := range s.layers {
			desc := add(MediaTypeLayer, pack(t, l))
			m.Layers = append(m.Layers, desc)
			d.Layers = append(d.Layers, blobDir+desc.Digest.Hex())
		}
		inner.Manifests = append(inner.Manifests, add(mediaTypeManifest, encode(m)))
		list = append(list, d)
	}
	outer := ociIndex{SchemaVersion: 2, MediaType: mediaTypeIndex, Manifests: []Descriptor{add(mediaTypeIndex, encode(inner))}}
	outer.Manifests[0].Annotations = map[string]string{annotationName: "docker.io/library/web:1", annotationRef: "1"}
	es = append(es, file("index.json", encode(outer)), file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)))
	if docker {
		es = append(es, file("manifest.json", encode(list)))
	}
	return es
}

func plain(_ testing.TB, b []byte) []byte { return b }

// put writes b to a file.
func put(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(name, b, 0o644))
	return name
}

// putDir unpacks the entries into a directory.
func putDir(t testing.TB, es []rig.Entry) string {
	t.Helper()
	dir := t.TempDir()
	for _, e := range es {
		name := filepath.Join(dir, e.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		switch e.Type {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(name, 0o755))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(e.Link, name))
		default:
			require.NoError(t, os.WriteFile(name, []byte(e.Body), 0o644))
		}
	}
	return dir
}
