package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/model"
)

// A delta's body is a sequence of frames. Each has a coded part, which the coder
// reads, and a bulk part, which is one zstd frame of literals that are too many to
// be modelled. A member of a tar lies within one frame, or begins one for each of
// its windows.

// frames writes or reads the frames of the body for the coder. The coder's models
// keep their state from frame to frame.
type frames struct {
	*model.Coder
	w     io.Writer
	r     *bufio.Reader
	bulk  []byte // encoding: literals of this frame
	zw    *zstd.Encoder
	zr    *zstd.Decoder
	coded []byte           // decoding: the coded part of this frame
	left  io.LimitedReader // decoding: the unread rest of the bulk part
	begun bool             // a frame is begun
	last  model.Prob       // the frame ends here

	size, bulkSize int64 // encoding: bytes written, and those of them in bulk parts
}

const (
	maxCoded   = 1 << 20  // bytes of a frame's coded part
	maxBulk    = 16 << 20 // bytes of a frame's bulk part
	BulkWindow = 1 << 20  // zstd window of a bulk part
	frameCoded = 48 << 10 // bytes of a frame's parts from which on it ends
	frameBulk  = 4 << 20
	maxLiteral = 64 << 20 // uncompressed bytes of one bulk part
)

func newFrameWriter(w io.Writer) (*frames, error) {
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithWindowSize(BulkWindow), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	f := &frames{Coder: &model.Coder{Encoding: true}, w: w, zw: zw, last: model.FreshProb}
	f.Start(nil)
	return f, nil
}

func newFrameReader(r *bufio.Reader) (*frames, error) {
	zr, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(BulkWindow), zstd.WithDecoderMaxMemory(maxLiteral))
	if err != nil {
		return nil, err
	}
	return &frames{Coder: &model.Coder{}, r: r, zr: zr, last: model.FreshProb}, nil
}

func (f *frames) close() {
	if f.zw != nil {
		f.zw.Close()
	}
	if f.zr != nil {
		f.zr.Close()
	}
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
	full := f.Encoding && (f.Len() > frameCoded || len(f.bulk) > frameBulk)
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
	var z []byte
	if len(f.bulk) > 0 {
		z = f.zw.EncodeAll(f.bulk, nil)
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
	f.bulk = f.bulk[:0]
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
	if z == 0 {
		return f.zr.Reset(nil)
	}
	return f.zr.Reset(&f.left)
}

// bulkBytes writes b to the frame's bulk part, or fills b from it.
func (f *frames) bulkBytes(b []byte) error {
	if f.Encoding {
		f.bulk = append(f.bulk, b...)
		return nil
	}
	if _, err := io.ReadFull(f.zr, b); err != nil {
		return delta.FormatErrorf("literals: %v", err)
	}
	return nil
}
