package script

import (
	"io"

	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/branch"
)

// Op is how a content is made. The values are those of the format.
type Op uint8

const (
	Same        Op = iota // the old file of the reference, unchanged
	Copy                  // another old file, unchanged
	Change                // changed from the old file of the reference
	ChangeOther           // changed from another old file
	Literal               // modelled byte by byte
	Bulk                  // in the frame's bulk part
	Packed                // a whole object, compressed by zstd in the frames' bulk parts
	NumOps
)

// Copies reports whether the content is an unchanged old file.
func (o Op) Copies() bool { return o == Same || o == Copy }

// Changes reports whether the content is changed from an old file.
func (o Op) Changes() bool { return o == Change || o == ChangeOther }

// Source is an old file: the index of a base, and a path in it.
type Source struct {
	Base int
	Path string
}

// Place has what both sides know about a content before it is coded.
type Place struct {
	Path    string // of the member, "" for a blob
	Size    int64
	Ref     *Source // the file of the reference, or nil
	RefSize int64   // of that file
}

// Content is the plan of one content.
type Content struct {
	Op      Op
	Source  Source      // of Same, Copy, Change and ChangeOther
	OldSize int64       // of the source
	New     io.ReaderAt // the content itself
	Matches []Match     // of a change: for the bytes outside of streams
	Mode    elf.Mode
	Bulk    bool     // bytes outside of matches go to the bulk part
	Parts   []Part   // of a content in bulk: what is converted
	Streams []Stream // deflate streams whose uncompressed bytes are coded
	// Apart says that the old file has code in which addresses may have parts that stand apart.
	Apart bool
	// Show says that old bytes are shown before new ones in bulk.
	Show bool
	// Split says that the old file has code whose changed instructions are coded by their parts.
	Split bool
	// Unwind is what is known about the unwind tables, or nil. UnwindFrom has for each of its
	// rows that of the old file, plus one; 0 if there is none.
	Unwind     *elf.Unwind
	UnwindFrom []int32
}

// Part is a part of a content in bulk that is converted. Parts are in order and do not
// overlap.
type Part struct {
	Off, Size int64
	Kind      branch.Kind
}

// StreamHead has everything that the decoder needs to make a stream.
type StreamHead struct {
	Envelope deflate.Envelope
	Gap      int64  // bytes of the content between the stream before and this one
	Head     []byte // of the envelope
	Variant  deflate.Variant
	Size     int64 // uncompressed
	Old      int64 // offset of the old stream that it is changed from; -1: none
	OldSize  int64 // uncompressed size of the old stream if it is read forward, else 0
}

// Stream is one stream of a content.
type Stream struct {
	StreamHead
	At, Length int64   // in the content, with the envelope
	Matches    []Match // of its uncompressed bytes with those of the old stream
}

// Between returns how many bytes of a content of that size are not in streams.
func (c *Content) Between(size int64) int64 {
	for i := range c.Streams {
		size -= c.Streams[i].Length
	}
	return size
}

// Uncompressed returns how many bytes are coded for a content of that size. Streams
// count with their uncompressed bytes.
func (c *Content) Uncompressed(size int64) int64 {
	n := c.Between(size)
	for i := range c.Streams {
		n += c.Streams[i].Size
	}
	return n
}

// Uncovered returns how many of these bytes are outside of matches.
func (c *Content) Uncovered(size int64) int64 {
	n := c.Uncompressed(size) - Covered(c.Matches)
	for i := range c.Streams {
		n -= Covered(c.Streams[i].Matches)
	}
	return n
}

// Member is a member of a tar.
type Member struct {
	Raw    []byte // header blocks
	Ref    int    // 0: no reference, else 1 + index into Object.Refs
	Skip   int    // headers of the reference to skip
	Padded bool   // the padding is all zeros
	Content
}

// Object is the plan of one object of the new image.
type Object struct {
	Tar     bool // it is split into members
	R       io.ReaderAt
	Size    int64
	Refs    []int // bases whose headers are read
	Members []Member
	Sums    bool    // it has lists of the MD5 sums of its files
	Tail    int64   // offset of the bytes after the members
	Whole   Content // of an object that is not split
}

// Passed returns how many headers of a reference are read.
func (o *Object) Passed(ref int) (n uint64) {
	for i := range o.Members {
		if m := &o.Members[i]; m.Ref == ref {
			n += uint64(m.Skip) + 1
		}
	}
	return n
}
