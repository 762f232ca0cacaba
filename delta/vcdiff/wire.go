package vcdiff

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// wire reads a delta's bytes and counts them.
type wire struct {
	br  *bufio.Reader
	off int64
}

func (w *wire) reset(r io.Reader) {
	if w.br == nil {
		w.br = bufio.NewReaderSize(r, 32<<10)
	} else {
		w.br.Reset(r)
	}
	w.off = 0
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.br.Read(p)
	w.off += int64(n)
	return n, err
}

func (w *wire) ReadByte() (byte, error) {
	b, err := w.br.ReadByte()
	if err == nil {
		w.off++
	}
	return b, err
}

// full reads exactly len(p) bytes.
func (w *wire) full(p []byte) error {
	_, err := io.ReadFull(w, p)
	return w.cut(err)
}

// skip reads n bytes and drops them.
func (w *wire) skip(n int64) error {
	m, err := io.CopyN(io.Discard, w.br, n)
	w.off += m
	return w.cut(err)
}

// cut turns an end of input in the middle of a delta into ErrCorrupt.
func (w *wire) cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: cut off after %d bytes: %w", ErrCorrupt, w.off, io.ErrUnexpectedEOF)
	}
	return err
}

// size reads an integer as RFC 3284 section 2 writes it: seven bits a byte,
// the highest first. It is never negative.
func (w *wire) size() (int64, error) {
	v, err := readSize(w)
	return v, w.cut(err)
}

func readSize(r io.ByteReader) (int64, error) {
	var v int64
	for range 10 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if v > math.MaxInt64>>7 {
			return 0, fmt.Errorf("%w: integer too large", ErrCorrupt)
		}
		v = v<<7 | int64(b&0x7f)
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: integer too long", ErrCorrupt)
}
