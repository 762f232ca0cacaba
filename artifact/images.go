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
	// KindDelta: a delta in the format of the room delta (image.delta).
	KindDelta
	// KindReferenceDelta: a VCDIFF against `docker save` of the current image
	// (image.img), by the reference.
	KindReferenceDelta
	// KindReferenceDeepDelta: a tar of an image whose layers are VCDIFFs
	// (image.img and the marker deep_delta), by the reference.
	KindReferenceDeepDelta
	// KindShared: a delta that makes what several variants of an image need
	// (image.shared).
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

// ImageInfo is what the images payload says of one image.
type ImageInfo struct {
	// Digest names the image and its directory in the payload. For an
	// artifact of ours it is the digest of the new image's config; the
	// reference writes whatever its engine calls the image ID, which is a
	// manifest's digest on a containerd store.
	Digest     image.Digest
	URLNew     string // the metadata's components may give the image further names
	URLCurrent string // the same as URLNew for a full image
	SumNew     image.Digest
	SumCurrent image.Digest // "" if the reference could not tell
	Kind       Kind
	Variant    int   // 0: the image is there in one way only; a delta's number from 1; -1: a full image beside deltas
	Size       int64 // bytes of the content; of several members, of the first
}

// The payload's files, in their order in the artifact.
const (
	ImagesPayload    = "images.tar.gz"
	ManifestsPayload = "manifests.tar.gz"
)

// DefaultMaxImages is what an images payload may unpack to, in bytes, if
// nothing is announced.
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
	maxTextMember    = 4 << 10 // bytes of one of the texts
	maxImagesMembers = maxComponents * 48
)

// ReadOptions bound ReadImages.
type ReadOptions struct {
	// MaxBytes is the most the payload may unpack to (Sizes.ImagesPayload);
	// 0 is DefaultMaxImages.
	MaxBytes int64
	// SpoolDir is where content is kept (in files that have no name) if it
	// comes before the texts that describe it, as the reference may write it.
	// Empty: such a payload is an ErrSpool.
	SpoolDir string
	// Members says which members make up the content of an image that is there
	// in several variants (Component.Members); fn gets them as one content. Nil:
	// fn is called for each member by itself.
	Members func(image.Digest) []string
	// MaxSpool is the most that is kept there at one time; 0 is MaxBytes.
	MaxSpool int64
}
