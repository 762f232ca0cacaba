package source

import (
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/mender-app/mender-app/artifact/image"
)

// The annotations that BuildKit writes, see its docs/attestations/
// attestation-storage.md.
const (
	annotationReferenceType   = "vnd.docker.reference.type"
	annotationReferenceDigest = "vnd.docker.reference.digest"
	annotationPredicate       = "in-toto.io/predicate-type"
	attestationManifest       = "attestation-manifest"
	predicateSPDX             = "https://spdx.dev/Document"
)

// Bounds of attestations. A bill of materials of thousands of packages has a few
// MiB.
const (
	maxAttestation  = 64 << 20 // bytes of one
	maxAttestations = 16       // of one image
)

// attestations fetches the SPDX statements about the manifest that lie beside it
// in an index.
func attestations(index *remote.Descriptor, manifest v1.Hash, repo name.Repository, opts []remote.Option) (list [][]byte, err error) {
	idx, err := index.ImageIndex()
	if err != nil {
		return nil, err
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.Annotations[annotationReferenceType] != attestationManifest || d.Annotations[annotationReferenceDigest] != manifest.String() {
			continue
		}
		img, err := remote.Image(repo.Digest(d.Digest.String()), opts...)
		if err != nil {
			return nil, err
		}
		am, err := img.Manifest()
		if err != nil {
			return nil, err
		}
		for _, l := range am.Layers {
			if l.Annotations[annotationPredicate] != predicateSPDX {
				continue
			}
			if l.Size < 0 || l.Size > maxAttestation || len(list) == maxAttestations {
				return nil, fmt.Errorf("%w: attestations of %s", image.ErrTooLarge, manifest)
			}
			b, err := readBlob(img, l.Digest)
			if err != nil {
				return nil, err
			}
			list = append(list, b)
		}
	}
	return list, nil
}

// readBlob reads a blob of a manifest; its size and digest are verified.
func readBlob(img v1.Image, digest v1.Hash) ([]byte, error) {
	l, err := img.LayerByDigest(digest)
	if err != nil {
		return nil, err
	}
	r, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
