package image

import "io"

// Descriptor names a blob in an OCI manifest.
type Descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    Digest `json:"digest"`
	Size      int64  `json:"size"`
}

// ArchiveSpec says what WriteArchive writes.
type ArchiveSpec struct {
	Image *Image
	// RepoTags are the names the image gets, with a tag and without a digest
	// ("web:1", "registry.example/web:1"). None is allowed.
	RepoTags []string
	// Omit lists the layers, by diffID, that are not written because the
	// engine has them already. The manifests still name them. The value is
	// what the OCI manifest says of the layer, and must be the descriptor of
	// the blob that the engine's store holds, where it holds one (a gzip blob
	// it pulled): naming another leaves the store with an image that runs but
	// cannot be saved (measured on 28.5.2 with the containerd store). The zero
	// Descriptor names the uncompressed layer, whose Size must then be known.
	Omit map[Digest]Descriptor
}

// WriteArchive writes one image as a hybrid archive, that the classic Docker
// store (20.10 and later) and the containerd store both load: in this order
// oci-layout, index.json, manifest.json, the config, the OCI manifest, and
// the layers, uncompressed, as blobs/sha256/<diffID>, the base first and each
// once. The Size of every layer that is written must be known. The same spec
// gives the same bytes. Each layer is verified while it is written: if it is
// not what its diffID says, the error is ErrMismatch and the archive is
// incomplete.
func WriteArchive(w io.Writer, spec ArchiveSpec) error { return errTODO }

// ArchiveSize returns the exact number of bytes WriteArchive writes for spec.
// No layer is opened.
func ArchiveSize(spec ArchiveSpec) (int64, error) { return 0, errTODO }
