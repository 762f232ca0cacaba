package artifact

import (
	"fmt"

	"github.com/mender-app/mender-app/artifact/image"
)

// Kind is how an image is packed in the images payload.
type Kind int

// The kinds of images.
const (
	// KindFull: a complete image archive, as docker save writes it (image.img).
	KindFull Kind = iota + 1
	// KindDelta: a delta in the format of package delta (image.delta).
	KindDelta
	// KindReferenceDelta: the shell reference's delta, a VCDIFF against
	// `docker save` of the current image (image.img).
	KindReferenceDelta
	// KindReferenceDeepDelta: the shell reference's deep delta, a tar of an image
	// whose layers are VCDIFFs (image.img and the marker deep_delta).
	KindReferenceDeepDelta
	// KindShared: a delta with the content that several variants of an image
	// need (image.shared).
	KindShared
)

// String names the kind for messages.
func (k Kind) String() string {
	switch k {
	case KindFull:
		return "full image"
	case KindDelta:
		return "delta"
	case KindReferenceDelta:
		return "xdelta3 delta"
	case KindReferenceDeepDelta:
		return "xdelta3 deep delta"
	case KindShared:
		return "shared content"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// ImageInfo is what the images payload says about one image.
type ImageInfo struct {
	// Digest names the image and its directory in the payload. In our artifacts
	// it is the digest of the new image's config. The shell reference writes its
	// engine's image ID, which with a containerd store is the digest of a manifest.
	Digest     image.Digest
	URLNew     string // one name; the components in the metadata may have more
	URLCurrent string // the same as URLNew for a full image
	SumNew     image.Digest
	SumCurrent image.Digest // "" if the reference did not know it
	Kind       Kind
	Variant    int   // 0: the image has no variants; from 1: the number of a delta; -1: the full image beside deltas
	Size       int64 // bytes of the content; if it has several members, of the first
}

// The payload's files, in their order in the artifact.
const (
	ImagesPayload    = "images.tar.gz"
	ManifestsPayload = "manifests.tar.gz"
)

// DefaultMaxImages is the greatest size of an unpacked images payload, in bytes,
// if the metadata announces none.
const DefaultMaxImages = 64 << 30

// The names of the images payload's members, below images/<hex digest>/.
const (
	imagesDir        = "images"
	memberURLNew     = "url-new.txt"
	memberURLCurrent = "url-current.txt"
	memberSumNew     = "sums-new.txt"
	memberSumCurrent = "sums-current.txt"
	memberImage      = "image.img"
	memberDelta      = "image.delta"
	memberShared     = "image.shared"
	memberDeepDelta  = "deep_delta"
)

// memberVariant is the name of the delta of a variant, from 1.
func memberVariant(n int) string { return fmt.Sprintf("image.%d.delta", n) }

// variantOf returns the number of a variant's delta, 0 for any other name.
func variantOf(name string) int {
	for n := 1; n <= maxVariants; n++ {
		if name == memberVariant(n) {
			return n
		}
	}
	return 0
}

const (
	maxTextMember    = 4 << 10 // bytes of a text member
	maxImagesMembers = maxComponents * 48
)

// ReadOptions bound ReadImages.
type ReadOptions struct {
	// MaxBytes is the greatest size of the unpacked payload
	// (Sizes.ImagesPayload); 0 is DefaultMaxImages.
	MaxBytes int64
	// SpoolDir is the directory for content that comes before the texts that
	// describe it, as the shell reference may write it. The files there have no
	// name. Without a directory, such a payload is an ErrSpool.
	SpoolDir string
	// Members returns the members that make up the content of an image with
	// variants (Component.Members). fn gets them as one content. If Members is
	// nil, fn is called for each member.
	Members func(image.Digest) []string
	// MaxSpool is the greatest number of bytes in SpoolDir at one time; 0 is
	// MaxBytes.
	MaxSpool int64
}
