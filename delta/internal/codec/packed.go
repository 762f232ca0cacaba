package codec

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/delta"
)

// PackedWindow is the greatest window of an object that zstd compresses, in bytes.
const PackedWindow = 4 << 20

// A Packer compresses an object. It is a zstd.Encoder, which the decoder must not link.
type Packer interface {
	io.WriteCloser
	Flush() error
}

// packing is what frames need for objects that zstd compresses. Each object is one zstd
// frame. A flush lets what was written so far be decoded, so an object may continue in the
// next frame.
type packing struct {
	newPacker func(io.Writer) (Packer, error)
	packer    Packer       // encoding: nil outside of such objects
	packed    bytes.Buffer // encoding: the bulk part of this frame

	packedSize int64 // encoding: bytes of bulk parts that zstd wrote

	unpacker *zstd.Decoder // decoding: nil before the first such object
}

// beginPacked begins an object.
func (f *frames) beginPacked() (err error) {
	if f.Encoding {
		f.packer, err = f.newPacker(&f.packed)
		return err
	}
	if f.unpacker != nil {
		err = f.unpacker.Reset(&f.left)
	} else {
		// The object's digest makes checksums needless.
		f.unpacker, err = zstd.NewReader(&f.left, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(PackedWindow), zstd.IgnoreChecksum(true))
	}
	return badPacked(err)
}

// packedBytes writes b to the frame's bulk part, or fills b from it.
func (f *frames) packedBytes(b []byte) error {
	if f.Encoding {
		_, err := f.packer.Write(b)
		return err
	}
	_, err := io.ReadFull(f.unpacker, b)
	return badPacked(err)
}

// endPacked ends an object. The frame ends with it, because its bulk part is not empty.
func (f *frames) endPacked() error {
	if !f.Encoding {
		return nil
	}
	err := f.packer.Close()
	f.packer = nil
	return err
}

func badPacked(err error) error {
	if err != nil {
		err = delta.FormatErrorf("zstd: %v", err)
	}
	return err
}

// bulkLen is how many bytes the bulk part of this frame has, about.
func (f *frames) bulkLen() int { return f.bulk.Len() + f.packed.Len() }

// flushBulk returns the bulk part of this frame. It is valid until something is written.
func (f *frames) flushBulk() ([]byte, error) {
	if f.packer != nil {
		if err := f.packer.Flush(); err != nil {
			return nil, err
		}
	}
	z := f.bulk.Flush()
	if f.packed.Len() == 0 {
		return z, nil
	}
	z = f.packed.Bytes()
	f.packed.Reset()
	f.packedSize += int64(len(z))
	return z, nil
}
