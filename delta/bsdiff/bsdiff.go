// Package bsdiff decodes deltas in the format BSDIFF40, as bsdiff 4 by Colin
// Percival and github.com/gabstv/go-bsdiff write them.
//
// Those programs read the delta, the old file and the new one into memory. This
// decoder streams: its memory, about 12 MiB for the three bzip2 streams, does not
// depend on the files. It reads old files at random, and knows nothing of what
// they are.
package bsdiff

import (
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Magic is what a delta begins with.
const Magic = "BSDIFF40"

// headerSize is the size of a delta's header: the magic, the sizes of the
// compressed control and diff blocks, and the size of the new file. The extra
// block is the rest of the delta.
const headerSize = 32

// ErrFormat is wrapped by the errors about a malformed delta.
var ErrFormat = errors.New("bsdiff: malformed delta")

// NewSize returns the size of the new file, as the delta's header announces it.
func NewSize(delta io.ReaderAt) (int64, error) {
	_, _, size, err := header(delta)
	return size, err
}

func header(delta io.ReaderAt) (control, diff, size int64, err error) {
	var b [headerSize]byte
	if _, err := delta.ReadAt(b[:], 0); err != nil {
		return 0, 0, 0, fmt.Errorf("%w: its header: %w", ErrFormat, noEOF(err))
	}
	if string(b[:8]) != Magic {
		return 0, 0, 0, fmt.Errorf("%w: it does not begin with %s", ErrFormat, Magic)
	}
	control, diff, size = number(b[8:]), number(b[16:]), number(b[24:])
	if control < 0 || diff < 0 || size < 0 {
		return 0, 0, 0, fmt.Errorf("%w: a negative size in its header", ErrFormat)
	}
	return control, diff, size, nil
}

// number reads a number of 8 bytes: the least byte first, the highest bit the sign.
func number(b []byte) int64 {
	u := binary.LittleEndian.Uint64(b)
	n := int64(u &^ (1 << 63))
	if u>>63 == 1 {
		return -n
	}
	return n
}

// Decode writes the new file to w. delta has deltaSize bytes, and old oldSize. A
// delta that announces another size of the new file than size is refused before
// anything is written. The format has no checksum: the caller compares the digest.
func Decode(ctx context.Context, w io.Writer, old io.ReaderAt, oldSize int64, delta io.ReaderAt, deltaSize, size int64) error {
	controlSize, diffSize, announced, err := header(delta)
	if err != nil {
		return err
	}
	if announced != size {
		return fmt.Errorf("%w: it makes %d bytes, but %d were announced", ErrFormat, announced, size)
	}
	if rest := deltaSize - headerSize; controlSize > rest || diffSize > rest-controlSize {
		return fmt.Errorf("%w: its blocks are larger than it is", ErrFormat)
	}
	block := func(off, n int64) io.Reader { return bzip2.NewReader(io.NewSectionReader(delta, off, n)) }
	d := &decoder{
		w: w, old: old, oldSize: oldSize,
		control: block(headerSize, controlSize),
		diff:    block(headerSize+controlSize, diffSize),
		extra:   block(headerSize+controlSize+diffSize, deltaSize-headerSize-controlSize-diffSize),
	}
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := d.step(ctx, left)
		if err != nil {
			return err
		}
		if left -= n; n > 0 {
			d.idle = 0
		} else if d.idle++; d.idle > maxIdle {
			return fmt.Errorf("%w: instructions without an effect", ErrFormat)
		}
	}
	return nil
}

// maxIdle bounds the instructions one after the other that write nothing.
const maxIdle = 1000

type decoder struct {
	w                    io.Writer
	old                  io.ReaderAt
	oldSize, at          int64
	control, diff, extra io.Reader
	idle                 int
	buf, oldBuf          [32 << 10]byte
}

// step carries out one instruction: add bytes of the diff block to those of the
// old file, copy bytes of the extra block, move in the old file. left are the
// bytes that the new file still lacks.
func (d *decoder) step(ctx context.Context, left int64) (written int64, err error) {
	var b [24]byte
	if _, err := io.ReadFull(d.control, b[:]); err != nil {
		return 0, fmt.Errorf("%w: its control block: %w", ErrFormat, noEOF(err))
	}
	add, extra, seek := number(b[0:]), number(b[8:]), number(b[16:])
	if add < 0 || extra < 0 || add > left || extra > left-add {
		return 0, fmt.Errorf("%w: an instruction writes more than was announced", ErrFormat)
	}
	for n := add; n > 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		p := d.buf[:min(n, int64(len(d.buf)))]
		if _, err := io.ReadFull(d.diff, p); err != nil {
			return 0, fmt.Errorf("%w: its diff block: %w", ErrFormat, noEOF(err))
		}
		if err := d.addOld(p); err != nil {
			return 0, err
		}
		if _, err := d.w.Write(p); err != nil {
			return 0, err
		}
		n -= int64(len(p))
	}
	for n := extra; n > 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		p := d.buf[:min(n, int64(len(d.buf)))]
		if _, err := io.ReadFull(d.extra, p); err != nil {
			return 0, fmt.Errorf("%w: its extra block: %w", ErrFormat, noEOF(err))
		}
		if _, err := d.w.Write(p); err != nil {
			return 0, err
		}
		n -= int64(len(p))
	}
	if d.at += seek; d.at > 1<<62 || d.at < -1<<62 {
		return 0, fmt.Errorf("%w: a place far outside of the old file", ErrFormat)
	}
	return add + extra, nil
}

// addOld adds the bytes of the old file from d.at on to p. Outside of the old file
// there is nothing to add: bsdiff writes such instructions.
func (d *decoder) addOld(p []byte) error {
	from, to := max(d.at, 0), min(d.at+int64(len(p)), d.oldSize)
	if from < to {
		o := d.oldBuf[:to-from]
		if _, err := d.old.ReadAt(o, from); err != nil {
			return fmt.Errorf("bsdiff: the old file: %w", noEOF(err))
		}
		for i, b := range o {
			p[from-d.at+int64(i)] += b
		}
	}
	d.at += int64(len(p))
	return nil
}

// noEOF makes the end of what should go on an error that is not the end of a stream.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
