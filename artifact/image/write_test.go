package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

func write(t testing.TB, spec ArchiveSpec) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, WriteArchive(&buf, spec))
	size, err := ArchiveSize(spec)
	require.NoError(t, err)
	require.EqualValues(t, buf.Len(), size)
	return buf.Bytes()
}

func memberNames(t testing.TB, b []byte) (names []string) {
	t.Helper()
	tr := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		require.Zero(t, h.ModTime.Unix())
		require.Zero(t, h.Uid)
		names = append(names, h.Name)
	}
}

func TestWriteArchive(t *testing.T) {
	s := makeSample(t, armV7, "base", "app", "base")
	spec := ArchiveSpec{Image: s.image(t), RepoTags: []string{"web:1", "registry.example/web:1"}}
	b := write(t, spec)
	require.Equal(t, b, write(t, spec))
	names := memberNames(t, b)
	require.Equal(t, []string{"oci-layout", "index.json", "manifest.json", blobDir + digest.Of(s.config).Hex()}, names[:4])
	require.Len(t, names, 5+2) // the layer that occurs twice is written once

	a, err := OpenArchive(put(t, b))
	require.NoError(t, err)
	defer a.Close()
	require.Len(t, a.Images(), 1)
	img, err := a.SelectTag("registry.example/web:1", armV7)
	require.NoError(t, err)
	require.Equal(t, []string{"web:1", "registry.example/web:1"}, img.Tags)
	require.NoError(t, Verify(img))
	require.Equal(t, s.layers[1], readLayer(t, &img.Layers[1]))

	imgs, err := ReadStream(bytes.NewReader(b), Limits{}, Handler{})
	require.NoError(t, err)
	require.Equal(t, img.DiffIDs, imgs[0].DiffIDs)
}

func TestWriteArchiveOmits(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	img := s.image(t)
	base := img.DiffIDs[0]
	img.Layers[0].Open, img.Layers[0].Size = nil, -1
	_, err := ArchiveSize(ArchiveSpec{Image: img, Omit: map[Digest]Descriptor{base: {}}})
	require.ErrorContains(t, err, "its size is not known")

	blob := Descriptor{MediaType: MediaTypeLayerGzip, Digest: digest.Of([]byte("blob")), Size: 123}
	b := write(t, ArchiveSpec{Image: img, RepoTags: []string{"web:2"}, Omit: map[Digest]Descriptor{base: blob}})
	imgs, err := ReadStream(bytes.NewReader(b), Limits{}, Handler{})
	require.NoError(t, err)
	require.Equal(t, []string{"", blobDir + img.DiffIDs[1].Hex()}, imgs[0].Members)

	// The OCI manifest names the store's blob, manifest.json the layer.
	var index ociIndex
	var manifest ociManifest
	files := tarFiles(t, b)
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	require.Equal(t, "docker.io/library/web:2", index.Manifests[0].Annotations[annotationName])
	require.Equal(t, "2", index.Manifests[0].Annotations[annotationRef])
	require.NoError(t, json.Unmarshal(files[blobDir+index.Manifests[0].Digest.Hex()], &manifest))
	require.Equal(t, blob, manifest.Layers[0])
	require.Equal(t, Descriptor{MediaType: MediaTypeLayer, Digest: img.DiffIDs[1], Size: int64(len(s.layers[1]))}, manifest.Layers[1])
	require.Contains(t, string(files["manifest.json"]), base.Hex())

	img.Layers[0].Size = int64(len(s.layers[0]))
	b = write(t, ArchiveSpec{Image: img, Omit: map[Digest]Descriptor{base: {}}})
	require.Len(t, memberNames(t, b), 6)
}

func TestWriteArchiveErrors(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	img := s.image(t)
	img.Layers[1] = Layer{DiffID: img.DiffIDs[1], Size: int64(len(s.layers[0])), Open: img.Layers[0].Open}
	require.ErrorIs(t, WriteArchive(io.Discard, ArchiveSpec{Image: img}), ErrMismatch)
	img.Layers[1].Size--
	require.ErrorIs(t, WriteArchive(io.Discard, ArchiveSpec{Image: img}), ErrMismatch)
	img.Layers[1].Open = nil
	require.ErrorIs(t, WriteArchive(io.Discard, ArchiveSpec{Image: img}), ErrMissing)
	img = s.image(t)
	require.ErrorContains(t, WriteArchive(io.Discard, ArchiveSpec{Image: img, RepoTags: []string{"web@sha256:00"}}), "digest cannot name")
	broken := errors.New("disk on fire")
	img.Layers[0].Open = func() (io.ReadCloser, error) { return nil, broken }
	require.ErrorIs(t, WriteArchive(io.Discard, ArchiveSpec{Image: img}), broken)
	img.Config = append(img.Config, ' ')
	require.ErrorIs(t, WriteArchive(io.Discard, ArchiveSpec{Image: img}), ErrMismatch)
}

// TestArchiveSizeHuge computes the size of an archive with a layer that needs
// a larger tar header, without writing it.
func TestArchiveSizeHuge(t *testing.T) {
	s := makeSample(t, amd64, "base")
	img := s.image(t)
	img.Layers[0].Size = 1 << 20
	small, err := ArchiveSize(ArchiveSpec{Image: img})
	require.NoError(t, err)
	img.Layers[0].Size = 9 << 30
	huge, err := ArchiveSize(ArchiveSpec{Image: img})
	require.NoError(t, err)
	// A pax header and its record, and some digits more in the OCI manifest.
	require.InDelta(t, float64(9<<30-1<<20+1024), float64(huge-small), 512)
}

func tarFiles(t testing.TB, b []byte) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	tr := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		files[h.Name], err = io.ReadAll(tr)
		require.NoError(t, err)
	}
}

// TestSkopeo has skopeo read our hybrid as both things it is, and reads what
// skopeo makes of it.
func TestSkopeo(t *testing.T) {
	rig.Need(t, "skopeo")
	s := makeSample(t, amd64, "base", "app")
	hybrid := put(t, write(t, ArchiveSpec{Image: s.image(t), RepoTags: []string{"web:1"}}))
	for _, from := range []string{"docker-archive:" + hybrid, "oci-archive:" + hybrid} {
		for _, to := range []string{"docker-archive:%s:web:1", "oci-archive:%s:web:1", "oci:%s:web:1"} {
			out := filepath.Join(t.TempDir(), "out")
			rig.Run(t, "skopeo", "--insecure-policy", "--override-os", "linux", "--override-arch", "amd64", "copy", "-q", from, fmt.Sprintf(to, out))
			a, err := OpenArchive(out)
			require.NoError(t, err)
			img, err := a.Select(amd64)
			require.NoError(t, err)
			require.NoError(t, Verify(img))
			require.Equal(t, s.image(t).DiffIDs, img.DiffIDs)
			// skopeo converts the config between its two formats, but keeps it
			// where the format stays the same.
			if strings.HasPrefix(from, to[:4]) {
				require.Equal(t, digest.Of(s.config), img.ConfigDigest)
			}
			require.NoError(t, a.Close())
		}
	}
}

// TestDocker loads our archive into the Docker engine of this machine, one
// with all layers and one that omits the layer it has by then.
func TestDocker(t *testing.T) {
	rig.Need(t, "docker")
	if out, err := exec.Command("docker", "version", "-f", "{{.Server.Version}}").CombinedOutput(); err != nil {
		rig.Skip(t, "no Docker engine answers: "+strings.TrimSpace(string(out)))
	}
	v1, v2 := makeSample(t, amd64, "base", "app"), makeSample(t, amd64, "base", "app 2")
	const name = "mender-app-image-test"
	rm := func() { exec.Command("docker", "image", "rm", "-f", name+":1", name+":2").Run() }
	rm()
	t.Cleanup(rm)
	load := func(tag string, s sample, omit map[Digest]Descriptor) {
		cmd := exec.Command("docker", "image", "load")
		cmd.Stdin = bytes.NewReader(write(t, ArchiveSpec{Image: s.image(t), RepoTags: []string{name + ":" + tag}, Omit: omit}))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		saved := filepath.Join(t.TempDir(), "saved.tar")
		rig.Run(t, "docker", "image", "save", "-o", saved, name+":"+tag)
		a, err := OpenArchive(saved)
		require.NoError(t, err)
		defer a.Close()
		img, err := a.SelectTag(name+":"+tag, amd64)
		require.NoError(t, err)
		require.Equal(t, digest.Of(s.config), img.ConfigDigest)
		require.NoError(t, Verify(img))
		f, err := os.Open(saved)
		require.NoError(t, err)
		defer f.Close()
		imgs, err := ReadStream(f, Limits{}, Handler{})
		require.NoError(t, err)
		require.Equal(t, digest.Of(s.config), imgs[0].ConfigDigest)
		require.NotContains(t, imgs[0].Members, "")
	}
	load("1", v1, nil)
	load("2", v2, map[Digest]Descriptor{v2.image(t).DiffIDs[0]: {}})
}
