package source

import (
	"fmt"
	"io"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/mender-app/mender-app/artifact/digest"
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
	maxIndexes      = 4        // indexes inside of each other
)

// attestations reads the SPDX statements about any of the manifests that lie
// beside them in an index, or in an index inside of it.
func attestations(idx v1.ImageIndex, manifests []image.Digest, depth int) (list [][]byte, err error) {
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.MediaType.IsIndex() && depth < maxIndexes {
			inner, err := idx.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			more, err := attestations(inner, manifests, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		about := image.Digest(d.Annotations[annotationReferenceDigest])
		if d.Annotations[annotationReferenceType] != attestationManifest || !slices.Contains(manifests, about) {
			continue
		}
		img, err := idx.Image(d.Digest)
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
				return nil, fmt.Errorf("%w: attestations of %s", image.ErrTooLarge, about)
			}
			b, err := readBlob(img, l)
			if err != nil {
				return nil, err
			}
			list = append(list, b)
		}
	}
	return list, nil
}

// readBlob reads a blob of a manifest and verifies its digest.
func readBlob(img v1.Image, d v1.Descriptor) ([]byte, error) {
	l, err := img.LayerByDigest(d.Digest)
	if err != nil {
		return nil, err
	}
	r, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, d.Size+1))
	if err != nil {
		return nil, err
	}
	if digest.Of(b).String() != d.Digest.String() {
		return nil, fmt.Errorf("attestation %s: %w", d.Digest, image.ErrMismatch)
	}
	return b, nil
}

// layoutAttestations is attestations for an image of an OCI layout. It returns
// none for a layout that is not a directory.
func layoutAttestations(dir string, img *image.Image) ([][]byte, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || len(img.Manifests) == 0 {
		return nil, err
	}
	idx, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	return attestations(idx, img.Manifests, 0)
}
