package artifact

import (
	"errors"
	"io"

	"github.com/mender-app/mender-app/artifact/image"
)

var errTODO = errors.New("not implemented yet")

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
)

// ImageInfo is what the images payload says of one image.
type ImageInfo struct {
	// Digest names the image and its directory in the payload. For an
	// artifact of ours it is the digest of the new image's config; the
	// reference writes whatever its engine calls the image ID, which is a
	// manifest's digest on a containerd store.
	Digest     image.Digest
	URLNew     string
	URLCurrent string // the same as URLNew for a full image
	SumNew     image.Digest
	SumCurrent image.Digest // "" if the reference could not tell
	Kind       Kind
	Size       int64 // bytes of the content
}

// ReadOptions bound ReadImages.
type ReadOptions struct {
	// MaxBytes is the most the payload may unpack to (Sizes.ImagesPayload);
	// 0 is DefaultMaxImages.
	MaxBytes int64
	// SpoolDir is where content is kept (in files that have no name) if it
	// comes before the texts that describe it, as the reference may write it.
	// Empty: such a payload is an ErrSpool.
	SpoolDir string
	// MaxSpool is the most that is kept there at one time; 0 is MaxBytes.
	MaxSpool int64
}

// ReadImages reads an images payload (tar, or tar.gz) and calls fn for each
// image in turn with its content, of exactly info.Size bytes. What fn does
// not read is skipped. An error of fn ends the reading and is returned as it
// is. The payload is verified no further than its own structure: ReadImages
// returns nil only if it was read to its end and is whole, but fn must verify
// the images, and nothing fn made may be used before ReadImages returns nil.
//
// Payloads of ours are streamed: memory stays below 1 MiB and nothing is
// written. See ReadOptions.SpoolDir for the reference's.
func ReadImages(r io.Reader, o ReadOptions, fn func(info ImageInfo, content io.Reader) error) error {
	return errTODO
}

// ImagesWriter writes an images payload.
type ImagesWriter struct{ w io.Writer }

// NewImagesWriter starts an images payload (tar.gz) on w. The same images
// added in the same order give the same bytes.
func NewImagesWriter(w io.Writer) *ImagesWriter { return &ImagesWriter{w} }

// Add appends one image with its content, exactly size bytes (info.Size is
// not used). Only KindFull and KindDelta are written; full images are
// compressed, deltas, which are so already, only framed.
func (iw *ImagesWriter) Add(info ImageInfo, size int64, r io.Reader) error { return errTODO }

// Close ends the payload; it does not close the writer under it.
func (iw *ImagesWriter) Close() error { return errTODO }

// UnpackedSize returns the bytes of the tar written so far; after Close it is
// what Sizes.ImagesPayload announces.
func (iw *ImagesWriter) UnpackedSize() int64 { return 0 }
