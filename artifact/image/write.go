package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
)

// Descriptor names a blob in an OCI manifest.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ArchiveSpec says what WriteArchive writes.
type ArchiveSpec struct {
	Image *Image
	// RepoTags are the names the image gets, without a digest ("web:1",
	// "registry.example/web:1"; without a tag it is ":latest"). None is
	// allowed.
	RepoTags []string
	// Omit lists the layers, by diffID, that are not written because the
	// engine has them already. The manifests still name them. The value is the layer's
	// descriptor in the OCI manifest. If the engine's store holds a blob of the layer,
	// such as a gzip blob it pulled, it must be that blob's descriptor: any other leaves
	// the store with an image that runs but cannot be saved (measured on 28.5.2 with the
	// containerd store). The zero Descriptor names the uncompressed layer, whose Size
	// must then be known.
	Omit map[Digest]Descriptor
}

// The names of the files an archive starts with.
const (
	nameLayout   = "oci-layout"
	nameIndex    = "index.json"
	nameManifest = "manifest.json"
	blobDir      = "blobs/sha256/"
)

// The annotations by which an index names its images: containerd's takes a
// whole name, OCI's only the tag, as docker save writes them.
const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// WriteArchive writes one image as a hybrid archive, which the classic Docker store
// (20.10 and later) and the containerd store both load. Its members are, in order:
// oci-layout, index.json, manifest.json, the config, the OCI manifest, and the
// uncompressed layers as blobs/sha256/<diffID>, the base first and each once. The
// Size of every layer that is written must be known. The same spec gives the same
// bytes. Each layer is verified while it is written: if it does not match its diffID,
// the error is ErrMismatch and the archive is incomplete.
func WriteArchive(w io.Writer, spec ArchiveSpec) error {
	members, err := spec.plan()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, m := range members {
		if err := tw.WriteHeader(m.header()); err != nil {
			return fmt.Errorf("write image archive: %w", err)
		}
		if m.layer == nil {
			_, err = tw.Write(m.data)
		} else {
			err = m.layer.copyTo(tw)
		}
		if err != nil {
			return fmt.Errorf("write image archive: %s: %w", m.name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

// ArchiveSize returns the exact number of bytes WriteArchive writes for spec.
// No layer is opened.
func ArchiveSize(spec ArchiveSpec) (int64, error) {
	members, err := spec.plan()
	if err != nil {
		return 0, err
	}
	size := int64(1024) // the two zero blocks at the end
	for _, m := range members {
		// A header is one block, and more for a size that needs a pax record.
		var head bytes.Buffer
		if err := tar.NewWriter(&head).WriteHeader(m.header()); err != nil {
			return 0, fmt.Errorf("size of image archive: %w", err)
		}
		size += int64(head.Len()) + m.size + -m.size&511
	}
	return size, nil
}

// member is one file of an archive to write.
type member struct {
	name  string
	size  int64
	data  []byte
	layer *Layer // its content, instead of data
}

func (m *member) header() *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     m.name,
		Size:     m.size,
		Mode:     0o644,
		ModTime:  time.Unix(0, 0),
	}
}

func (l *Layer) copyTo(w io.Writer) error {
	r, err := l.Verified()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return err
}

// dockerImage is an entry of manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

type ociManifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
}

type ociIndex struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []Descriptor `json:"manifests"`
}

// plan lists the members of the archive in their order.
func (spec ArchiveSpec) plan() ([]member, error) {
	img := spec.Image
	if len(img.Layers) != len(img.DiffIDs) {
		return nil, fmt.Errorf("%w: %d layers for a config that has %d", ErrFormat, len(img.Layers), len(img.DiffIDs))
	}
	if digest.Of(img.Config) != img.ConfigDigest {
		return nil, fmt.Errorf("config %s: %w", img.ConfigDigest, ErrMismatch)
	}
	config := member{name: blobDir + img.ConfigDigest.Hex(), size: int64(len(img.Config)), data: img.Config}
	docker := dockerImage{Config: config.name, Layers: []string{}}
	manifest := ociManifest{
		SchemaVersion: 2,
		MediaType:     mediaTypeManifest,
		Config:        Descriptor{MediaType: mediaTypeConfig, Digest: img.ConfigDigest, Size: config.size},
		Layers:        []Descriptor{},
	}
	var layers []member
	written := make(map[Digest]bool)
	for i := range img.Layers {
		l := &img.Layers[i]
		if l.DiffID != img.DiffIDs[i] || !l.DiffID.Valid() {
			return nil, fmt.Errorf("layer %d: %w", i, ErrMismatch)
		}
		name := blobDir + l.DiffID.Hex()
		d, omit := spec.Omit[l.DiffID]
		if d.Digest == "" {
			if l.Size < 0 {
				return nil, fmt.Errorf("layer %s: its size is not known", l.DiffID)
			}
			d = Descriptor{MediaType: MediaTypeLayer, Digest: l.DiffID, Size: l.Size}
		}
		docker.Layers = append(docker.Layers, name)
		manifest.Layers = append(manifest.Layers, d)
		if !omit && !written[l.DiffID] {
			written[l.DiffID] = true
			layers = append(layers, member{name: name, size: l.Size, layer: l})
		}
	}
	blob := encode(manifest)
	index := ociIndex{SchemaVersion: 2, MediaType: mediaTypeIndex}
	desc := Descriptor{MediaType: mediaTypeManifest, Digest: digest.Of(blob), Size: int64(len(blob))}
	for _, tag := range spec.RepoTags {
		ref, err := parseRef(tag)
		if err != nil {
			return nil, err
		}
		docker.RepoTags = append(docker.RepoTags, ref.familiar())
		named := desc
		named.Annotations = map[string]string{annotationName: ref.String(), annotationRef: ref.tag}
		index.Manifests = append(index.Manifests, named)
	}
	if len(index.Manifests) == 0 {
		index.Manifests = []Descriptor{desc}
	}
	file := func(name string, data []byte) member {
		return member{name: name, size: int64(len(data)), data: data}
	}
	return append([]member{
		file(nameLayout, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		file(nameIndex, encode(index)),
		file(nameManifest, encode([]dockerImage{docker})),
		config,
		file(blobDir+desc.Digest.Hex(), blob),
	}, layers...), nil
}

// encode is json.Marshal for a value that cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
