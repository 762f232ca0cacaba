package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/branch"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/model"
)

// A delta's body is a sequence of frames. Each has a coded part, which the coder
// reads, and a bulk part, of literals that are too many to be modelled (package lz). A member of a tar lies within one frame, or begins one for each of
// its windows.

// frames writes or reads the frames of the body for the coder. The coder's models
// keep their state from frame to frame.
type frames struct {
	*model.Coder
	w     io.Writer
	r     *bufio.Reader
	bulk  BulkWriter // encoding: literals of this frame
	lz    lz.Decoder
	inLZ  bool             // decoding: the bulk part is begun
	coded []byte           // decoding: the coded part of this frame
	left  io.LimitedReader // decoding: the unread rest of the bulk part
	begun bool             // a frame is begun
	packing
	last model.Prob // the frame ends here

	size, bulkSize int64 // encoding: bytes written, and those of them in bulk parts,
	bulkPlain      int64 // and bytes that became the latter
}

const (
	maxCoded   = 1 << 20  // bytes of a frame's coded part
	maxBulk    = 16 << 20 // bytes of a frame's bulk part
	frameCoded = 48 << 10 // bytes of a frame's parts from which on it ends
	frameBulk  = 4 << 20
)

// A BulkWriter codes literals in bulk. It is a parse.Encoder, which the decoder must
// not link.
type BulkWriter interface {
	Align()
	Show(b []byte, phase uint32)
	Add(b []byte, class uint32)
	Len() int
	Literals() (mixed, summed int64) // coded so far, outside of matches
	Flush() []byte
}

func newFrameWriter(w io.Writer, bulk BulkWriter) *frames {
	f := &frames{Coder: &model.Coder{Encoding: true}, w: w, bulk: bulk, last: model.FreshProb}
	f.Start(nil)
	return f
}

func newFrameReader(r *bufio.Reader) *frames {
	return &frames{Coder: &model.Coder{}, r: r, last: model.FreshProb}
}

// boundary is called at the same points by encoder and decoder: between members,
// and between the chunks of a member. The frame ends there if the encoder finds it
// long enough.
func (f *frames) boundary() error {
	if !f.begun {
		f.begun = true
		if f.Encoding {
			return nil
		}
		return f.next()
	}
	full := f.Encoding && (f.Len() > frameCoded || f.bulkLen() > frameBulk)
	if ended, err := f.endFrame(full); !ended || err != nil {
		return err
	}
	return f.boundary()
}

// endFrame ends the frame if the encoder says so.
func (f *frames) endFrame(now bool) (bool, error) {
	if !f.Flag(&f.last, now) {
		if f.Short {
			return false, delta.FormatErrorf("a frame is cut short")
		}
		return false, nil
	}
	f.begun = false
	if f.Encoding {
		return true, f.flush()
	}
	return true, nil
}

// flush writes the frame.
func (f *frames) flush() error {
	coded := f.Finish()
	z, err := f.flushBulk()
	if err != nil {
		return err
	}
	if len(coded) > maxCoded || len(z) > maxBulk {
		return fmt.Errorf("a frame has grown to %d and %d bytes", len(coded), len(z))
	}
	var h []byte
	h = binary.AppendUvarint(h, uint64(len(coded)))
	h = binary.AppendUvarint(h, uint64(len(z)))
	for _, b := range [][]byte{h, coded, z} {
		if _, err := f.w.Write(b); err != nil {
			return err
		}
		f.size += int64(len(b))
	}
	f.bulkSize += int64(len(z))
	f.Start(nil)
	return nil
}

// next reads the head and the coded part of the next frame.
func (f *frames) next() error {
	if f.Short {
		return delta.FormatErrorf("a frame is cut short")
	}
	if _, err := io.Copy(io.Discard, &f.left); err != nil {
		return err
	}
	n, err := binary.ReadUvarint(f.r)
	if err != nil {
		return delta.FormatErrorf("the delta is cut short: %v", err)
	}
	z, err := binary.ReadUvarint(f.r)
	if err != nil {
		return delta.FormatErrorf("the delta is cut short: %v", err)
	}
	if n > maxCoded || z > maxBulk {
		return delta.FormatErrorf("a frame is too large")
	}
	b := bytes.NewBuffer(f.coded[:0])
	if _, err := io.CopyN(b, f.r, int64(n)); err != nil {
		return delta.FormatErrorf("the delta is cut short: %v", err)
	}
	f.coded = b.Bytes()
	f.Start(f.coded)
	f.left = io.LimitedReader{R: f.r, N: int64(z)}
	f.inLZ = false
	return nil
}

// bulkBytes writes b to the frame's bulk part, or fills b from it. b is at pos of its
// file, and the next piece of a part.
func (f *frames) bulkBytes(b []byte, part *branch.Converter, pos int64) error {
	if f.Encoding {
		if part.Kind != branch.None {
			b = bytes.Clone(b)
			part.Convert(b, uint32(pos), false)
		}
		f.bulk.Add(b, uint32(part.Kind))
		f.bulkPlain += int64(len(b))
		return nil
	}
	if !f.inLZ {
		if err := f.lz.Begin(&f.left); err != nil {
			return delta.FormatErrorf("literals: %v", err)
		}
		f.inLZ = true
	}
	if err := f.lz.Read(b, uint32(part.Kind)); err != nil {
		if errors.Is(err, lz.ErrFile) {
			return err
		}
		return delta.FormatErrorf("literals: %v", err)
	}
	part.Convert(b, uint32(pos), true)
	return nil
}

// bulkFile says that a file begins in the bulk part.
func (f *frames) bulkFile() {
	if f.Encoding {
		f.bulk.Align()
	} else {
		f.lz.Align()
	}
}

// show puts bytes before the next ones of the bulk part that need not be coded, at a place
// that is phase modulo 4: matches may lie in them.
func (f *frames) show(b []byte, phase int64) error {
	if f.Encoding {
		f.bulkPlain += int64(len(b))
		f.bulk.Show(b, uint32(phase))
		return nil
	}
	err := f.lz.Show(b, uint32(phase))
	if err != nil && !errors.Is(err, lz.ErrFile) {
		err = delta.FormatErrorf("literals: %v", err)
	}
	return err
}
