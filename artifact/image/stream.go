package image

import "io"

// Limits bound what ReadStream accepts. A zero field means its default.
type Limits struct {
	MaxBytes   int64 // of the whole stream; default 64 GiB
	MaxLayer   int64 // of one layer, uncompressed; default MaxBytes
	MaxMembers int   // of the tar; default 4096
	MaxJSON    int64 // of all configs and manifests together, held in memory; default 8 MiB
}

// Member is one layer as it arrives in a stream.
type Member struct {
	Name string // in the archive: "blobs/sha256/…", "<id>/layer.tar"
	Size int64  // bytes stored in the archive, which is what the reader gives
	// DiffID is the layer's diffID where the manifest has come before the
	// layer, else "". It is not verified before the layer has been read.
	DiffID Digest
	// Compression is that of the stored bytes: "", "gzip" or "zstd".
	Compression string
}

// Handler takes the parts of a stream as they arrive.
type Handler struct {
	// Manifest is called once for the images of the archive, as soon as their
	// manifests and configs have been read. early tells that no layer has
	// been handed over yet, so that one that is present already can be
	// skipped (our own writer always puts the manifests first); otherwise the
	// call comes at the end of the stream, after all layers. May be nil.
	Manifest func(imgs []StreamImage, early bool) error
	// Layer is called for each layer, in the order of arrival, with its bytes
	// as they are stored. It need not read them: what it leaves is read and
	// hashed after it returns. If no manifest has been seen it may be called
	// for a member that turns out to be no layer at all. May be nil.
	Layer func(m Member, r io.Reader) error
}

// StreamImage is one image of a stream.
type StreamImage struct {
	Image            // Layers have no content (Open is nil); Size is -1 until the layer was read
	Members []string // for each layer the member that holds it, "" if it is omitted
}

// ReadStream reads an image archive (docker-archive, OCI layout as a tar, or
// hybrid; layers in it may be compressed) that arrives as a stream, with its
// members in any order. Nothing is written anywhere; memory stays below
// MaxJSON and some 100 KiB more (and the window of zstd, at most 8 MiB, for
// layers compressed so).
//
// Every layer is hashed, uncompressed, while it is handed over. ReadStream
// returns nil only if the stream was read to its end, configs and manifests
// match their digests, and every layer in it is the one that its image's
// config names. Layers may be omitted: they have no member in the result, and
// the caller decides whether they are at hand.
func ReadStream(r io.Reader, limits Limits, h Handler) ([]StreamImage, error) {
	return nil, errTODO
}
