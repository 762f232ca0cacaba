package codec

import (
	"crypto/sha256"
	"hash"
	"io"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
)

// output writes the bytes of the current object, counts them and updates the sums.
type output struct {
	w       io.Writer // nil when encoding
	sum     hash.Hash // of the object
	written int64
	limit   int64 // size of the object
	sums    *md5Lists
	// While a stream is being made, writes go through the compressor.
	compressing bool
	compressor  compressor
}

// begin starts an object of limit bytes.
func (o *output) begin(w io.Writer, limit int64) {
	o.w, o.sum, o.written, o.limit = w, sha256.New(), 0, limit
}

// left returns how many more bytes the object may have.
func (o *output) left() int64 { return o.limit - o.written }

// write writes bytes of a content, or uncompressed bytes of one of its streams.
func (o *output) write(b []byte) error {
	if o.compressing {
		return o.compressor.write(b)
	}
	return o.emit(b)
}

// emit writes bytes of the object.
func (o *output) emit(b []byte) error {
	o.written += int64(len(b))
	o.sums.add(b)
	if o.written > o.limit {
		return delta.FormatErrorf("an object is larger than announced")
	}
	if o.w == nil {
		return nil
	}
	o.sum.Write(b)
	_, err := o.w.Write(b)
	return err
}

// digest returns the object's digest.
func (o *output) digest() delta.Digest {
	return digest.OfHash(o.sum)
}

// compressor makes a stream.
type compressor struct {
	z    *deflate.Writer
	sum  hash.Hash32
	size int64
}

func (c *compressor) write(b []byte) error {
	if c.sum != nil {
		c.sum.Write(b)
	}
	c.size += int64(len(b))
	_, err := c.z.Write(b)
	return err
}

// emitter writes compressed bytes to the output.
type emitter struct{ o *output }

func (w emitter) Write(b []byte) (int, error) { return len(b), w.o.emit(b) }

// beginStream emits the head of an envelope. Until endStream, bytes that are written
// are compressed.
func (o *output) beginStream(k deflate.Envelope, v deflate.Variant, head []byte) error {
	if o.compressor.z == nil {
		o.compressor.z = new(deflate.Writer)
	}
	o.compressor.sum, o.compressor.size = k.Sum(), 0
	o.compressor.z.Reset(emitter{o}, v)
	o.compressing = true
	return o.emit(head)
}

// endStream ends the stream and emits the tail of its envelope.
func (o *output) endStream(k deflate.Envelope) error {
	o.compressing = false
	c := &o.compressor
	if err := c.z.Close(); err != nil {
		return err
	}
	return o.emit(k.AppendTail(nil, c.sum, c.size))
}
