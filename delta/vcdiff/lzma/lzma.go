// Package lzma decodes the LZMA sections of an xdelta3 delta.
//
// xdelta3 writes each kind of section (data, instructions, addresses) of all
// windows as one xz stream that is never ended: the xz and block headers come
// with the first section, and the encoder is flushed after each section, so
// that a section holds whole LZMA2 chunks. A Decoder follows one such stream
// section by section and keeps its dictionary between them.
//
// This is not a general xz reader: block ends, indexes and integrity checks
// never occur in such a stream and are refused. It knows nothing of VCDIFF.
//
// Formats: the .xz file format 1.1.0 (sections 2.1.1, 3.1, 5.3.1), and LZMA2
// as xz-utils writes it.
package lzma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The errors a Decoder gives are one of these, wrapped with what was wrong;
// an error of the input itself is passed on as it is, and an input that ends
// early gives io.ErrUnexpectedEOF.
var (
	ErrCorrupt     = errors.New("damaged lzma data")
	ErrUnsupported = errors.New("unsupported lzma data")
	ErrDict        = errors.New("lzma dictionary too large")
)

// maxChunk is the largest compressed size of an LZMA2 chunk.
const maxChunk = 1 << 16

// A Decoder decodes one xz stream that arrives in sections. Its memory is
// the dictionary, as large as the stream's header says (256 KiB in what
// xdelta3 3.0.11 writes at every level), and about 100 KiB.
type Decoder struct {
	// Alloc gives the memory for the dictionary; n is at most 4 GiB. It may
	// refuse. It must be set.
	Alloc func(n int64) ([]byte, error)

	src     io.Reader // the section's compressed bytes
	srcLeft int64
	outLeft int64
	err     error

	started   bool // the headers are read
	needDict  bool // the next chunk must reset the dictionary
	needProps bool // the next LZMA chunk must set the properties
	needState bool // the next LZMA chunk must reset the state

	plain     bool // the current chunk is stored, not compressed
	chunkLeft int  // bytes the current chunk still gives

	dict []byte
	pos  int    // where the next byte goes in dict
	full int    // how many bytes before pos are history
	done uint32 // bytes since the dictionary was reset, modulo 2^32

	in   [maxChunk]byte
	head [1024 + 8]byte
	rc   rangeDecoder
	lz   state
}

// Reset makes d ready for another stream.
func (d *Decoder) Reset() {
	d.src, d.srcLeft, d.outLeft, d.err = nil, 0, 0, nil
	d.started, d.chunkLeft, d.dict = false, 0, nil
}

// Section makes d ready to decode the next section: n compressed bytes of
// src, which give size bytes. The section before must have been read to its
// end.
func (d *Decoder) Section(src io.Reader, n, size int64) error {
	if d.err != nil {
		return d.err
	}
	if d.outLeft != 0 || d.srcLeft != 0 {
		return d.fail(errors.New("lzma: section begun before the last one was read"))
	}
	if n < 0 || size <= 0 {
		return d.fail(fmt.Errorf("%w: section sizes %d, %d", ErrCorrupt, n, size))
	}
	d.src, d.srcLeft, d.outLeft = src, n, size
	return nil
}

// Read gives the section's bytes, and io.EOF after the last one. The last
// bytes are only given once it is sure that the section's compressed bytes
// are used up too. After an error d is of no use until Reset.
func (d *Decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if d.outLeft == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > d.outLeft {
		p = p[:d.outLeft]
	}
	n := 0
	for n < len(p) {
		if d.chunkLeft == 0 {
			if err := d.next(); err != nil {
				return 0, d.fail(err)
			}
		}
		want := min(len(p)-n, d.chunkLeft, len(d.dict)-d.pos)
		out := d.dict[d.pos : d.pos+want]
		if d.plain {
			if err := d.fill(out); err != nil {
				return 0, d.fail(err)
			}
			d.pos += want
			d.done += uint32(want)
			d.full = min(d.full+want, len(d.dict))
		} else if err := d.decode(d.pos + want); err != nil {
			return 0, d.fail(err)
		}
		n += copy(p[n:], out)
		if d.pos == len(d.dict) {
			d.pos = 0
		}
		d.outLeft -= int64(want)
		d.chunkLeft -= want
		if d.chunkLeft == 0 && !d.plain && !d.finished() {
			return 0, d.fail(fmt.Errorf("%w: chunk does not end where it says", ErrCorrupt))
		}
	}
	if d.outLeft == 0 && d.srcLeft != 0 {
		return 0, d.fail(fmt.Errorf("%w: %d bytes left at the end of a section", ErrCorrupt, d.srcLeft))
	}
	return n, nil
}

// finished reports whether the LZMA chunk ended exactly at its last byte.
func (d *Decoder) finished() bool {
	d.rc.normalize()
	return d.lz.pending == 0 && d.rc.code == 0 && d.rc.i == len(d.rc.in)
}

func (d *Decoder) fail(err error) error {
	d.err = err
	return err
}

// fill reads p from the section's compressed bytes.
func (d *Decoder) fill(p []byte) error {
	if int64(len(p)) > d.srcLeft {
		return fmt.Errorf("%w: section ends early", ErrCorrupt)
	}
	n, err := io.ReadFull(d.src, p)
	d.srcLeft -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// next reads the header of the next chunk and, of an LZMA chunk, its bytes.
func (d *Decoder) next() error {
	if !d.started {
		if err := d.header(); err != nil {
			return err
		}
		d.started = true
		d.needDict, d.needProps, d.needState = true, true, true
	}
	h := d.head[:3]
	if err := d.fill(h); err != nil {
		return err
	}
	control := h[0]
	switch {
	case control == 0:
		return fmt.Errorf("%w: stream ends inside a section", ErrCorrupt)
	case control == 1 || control >= 0xe0:
		d.needDict, d.needProps, d.needState = false, true, true
		d.full, d.done = 0, 0
	case d.needDict:
		return fmt.Errorf("%w: first chunk does not reset the dictionary", ErrCorrupt)
	}
	if control < 0x80 {
		if control > 2 {
			return fmt.Errorf("%w: chunk type %#x", ErrCorrupt, control)
		}
		d.plain = true
		d.chunkLeft = int(binary.BigEndian.Uint16(h[1:])) + 1
		return d.fits()
	}
	d.plain = false
	d.chunkLeft = int(control&0x1f)<<16 + int(binary.BigEndian.Uint16(h[1:])) + 1
	if err := d.fits(); err != nil {
		return err
	}
	h = d.head[:2]
	if err := d.fill(h); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint16(h)) + 1
	if control >= 0xc0 {
		if err := d.fill(h[:1]); err != nil {
			return err
		}
		if !d.lz.setProps(h[0]) {
			return fmt.Errorf("%w: properties %#x", ErrCorrupt, h[0])
		}
		d.needProps = false
	}
	if d.needProps {
		return fmt.Errorf("%w: chunk without properties", ErrCorrupt)
	}
	if control >= 0xa0 {
		d.lz.reset()
		d.needState = false
	}
	if d.needState {
		return fmt.Errorf("%w: chunk without a state", ErrCorrupt)
	}
	if err := d.fill(d.in[:size]); err != nil {
		return err
	}
	if !d.rc.init(d.in[:size]) {
		return fmt.Errorf("%w: chunk begins wrongly", ErrCorrupt)
	}
	return nil
}

// fits checks that the chunk stays inside its section.
func (d *Decoder) fits() error {
	if int64(d.chunkLeft) > d.outLeft {
		return fmt.Errorf("%w: chunk larger than its section", ErrCorrupt)
	}
	return nil
}

// header reads the xz stream header and the block header, and makes the
// dictionary.
func (d *Decoder) header() error {
	h := d.head[:12]
	if err := d.fill(h); err != nil {
		return err
	}
	if string(h[:6]) != "\xfd7zXZ\x00" {
		return fmt.Errorf("%w: no xz header", ErrCorrupt)
	}
	if crc32.ChecksumIEEE(h[6:8]) != binary.LittleEndian.Uint32(h[8:]) {
		return fmt.Errorf("%w: checksum of the xz header", ErrCorrupt)
	}
	// The check comes at a block's end, which is never reached here.
	if h[6] != 0 || h[7] > 0x0f {
		return fmt.Errorf("%w: xz flags %#x %#x", ErrUnsupported, h[6], h[7])
	}
	if err := d.fill(d.head[:1]); err != nil {
		return err
	}
	if d.head[0] == 0 {
		return fmt.Errorf("%w: xz index instead of a block", ErrCorrupt)
	}
	size := (int(d.head[0]) + 1) * 4
	b := d.head[:size]
	if err := d.fill(b[1:]); err != nil {
		return err
	}
	if crc32.ChecksumIEEE(b[:size-4]) != binary.LittleEndian.Uint32(b[size-4:]) {
		return fmt.Errorf("%w: checksum of the xz block header", ErrCorrupt)
	}
	// One filter, no sizes: what an encoder that streams writes.
	if b[1] != 0 || size < 12 || b[2] != 0x21 || b[3] != 1 {
		return fmt.Errorf("%w: xz block with other filters than LZMA2", ErrUnsupported)
	}
	n, ok := dictSize(b[4])
	if !ok {
		return fmt.Errorf("%w: dictionary size %#x", ErrCorrupt, b[4])
	}
	dict, err := d.Alloc(n)
	if err != nil {
		return fmt.Errorf("%w: %d KiB: %w", ErrDict, n>>10, err)
	}
	d.dict, d.pos, d.full = dict[:n], 0, 0
	return nil
}

// dictSize reads the LZMA2 property byte (.xz format 5.3.1).
func dictSize(b byte) (int64, bool) {
	switch {
	case b > 40:
		return 0, false
	case b == 40:
		return 1<<32 - 1, true
	}
	return int64(2|b&1) << (b/2 + 11), true
}
