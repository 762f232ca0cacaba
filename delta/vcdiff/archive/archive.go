// Package archive rebuilds container image archives from the deep deltas of the
// shell reference (app-gen --deep-delta).
//
// Such a delta is a tar of the unpacked `docker save` of the new image, in
// any order, with layers replaced. In a docker-archive, which docker save
// writes before version 25:
//
//	ID/layer.tar.vcdiff               the layer, against a layer of the old image
//	ID/layer.tar.current.sha256sum    which one: the SHA-256 of its tar
//	ID/layer.tar.new.sha256sum        the SHA-256 of the layer's tar
//	ID/layer.tar.sha256sum            alone: the layer is one of the old image
//
// In an OCI layout, which docker save writes since:
//
//	blobs/sha256/X.vcdiff             the blob X, against a blob of the old image
//	blobs/sha256/X.source             that blob's path in the old layout
//
// All other members are as in the archive. The generator pairs layers by their
// index. If the new image has more layers, the last ones are verbatim.
//
// Plan reads the list of members. Open returns the content of a member, verified
// against its digest. The package knows the two layouts and VCDIFF. It knows nothing
// of engines: the old content comes through an interface.
package archive

import (
	"errors"
	"math"
	"slices"
)

// Why a delta cannot be applied. Errors of package vcdiff are returned as they are.
var (
	// ErrInvalid: the delta is not one that the generator makes.
	ErrInvalid = errors.New("invalid deep delta")
	// ErrMissing: content of the old image is not there.
	ErrMissing = errors.New("old image's content is missing")
	// ErrDamaged: content of the old image is not what its digest says.
	ErrDamaged = errors.New("old image's content is damaged")
	// ErrRecompressed: the delta was made of a compressed layer. It gives the
	// uncompressed content, from which nobody can make the same compressed bytes
	// again (xdelta3 cannot either).
	ErrRecompressed = errors.New("deep delta of compressed layers")
)

// A Format is the layout of an image archive.
type Format string

// The layouts of docker save.
const (
	DockerArchive Format = "docker-archive"
	OCILayout     Format = "oci-layout"
)

// A Kind says where a member's content comes from.
type Kind string

// The kinds of members.
const (
	Verbatim  Kind = "verbatim"  // as it is in the delta
	Delta     Kind = "delta"     // decoded against the old image's Source
	Unchanged Kind = "unchanged" // the same as the old image's Source
	Symlink   Kind = "symlink"   // to Link, as docker save does for layers that occur twice
)

// A Member is a file of the new image's archive.
type Member struct {
	Name string // clean slash path inside the archive
	Kind Kind
	// Size in bytes; -1 for an Unchanged one, which has the size of the old content.
	Size int64
	// SHA256 is the digest of the content, 64 hex digits; "" if the delta does not
	// have it. For a layer in a docker-archive it is the diffID.
	SHA256 string
	Source string // the digest of the old content needed, "" if none
	Link   string // the target of a Symlink: clean, relative to the archive's root

	target    string // a Symlink's target as written
	off, size int64  // where the content, or the delta, is in the archive
	sourceEnd int64  // the old content has at least this size
}

// Needs returns the digests of the old content that the members need, each once.
// With unchanged false it leaves out the members that are Unchanged: an engine that
// has these layers does not need them in the archive.
func (a *Archive) Needs(unchanged bool) []string {
	var needs []string
	for _, m := range a.Members {
		if m.Source != "" && (unchanged || m.Kind != Unchanged) {
			needs = append(needs, m.Source)
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}

// Size returns the number of bytes of the members that are not Unchanged. A small
// delta can have a very large content: compare this with the free space first.
func (a *Archive) Size() int64 {
	var size int64
	for _, m := range a.Members {
		if m.Size > math.MaxInt64-size {
			return math.MaxInt64
		}
		size += max(m.Size, 0)
	}
	return size
}
