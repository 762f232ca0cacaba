package vcdiff

import (
	"fmt"
	"io"
)

const (
	blockSize = 8 << 10
	blocks    = 128
)

// source reads the old file. Most copies are short and near the one before,
// so short ones go through a cache of 1 MiB; a long one is read in place.
type source struct {
	r    io.ReaderAt
	size int64
	held [blocks]int64 // which block of the file is in a slot, plus one
	buf  []byte
}

func (s *source) reset(r io.ReaderAt, size int64) {
	s.r, s.size = r, size
	clear(s.held[:])
}

// read fills p from the old file's offset off, which is not negative.
func (s *source) read(p []byte, off int64) error {
	if int64(len(p)) > s.size-off {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrSource, len(p), off, s.size)
	}
	if len(p) >= blockSize {
		return s.at(p, off)
	}
	for len(p) > 0 {
		b, err := s.block(off / blockSize)
		if err != nil {
			return err
		}
		n := copy(p, b[off%blockSize:])
		p = p[n:]
		off += int64(n)
	}
	return nil
}

// block returns a block of the file. The last one may be short.
func (s *source) block(n int64) ([]byte, error) {
	if s.buf == nil {
		s.buf = make([]byte, blocks*blockSize)
	}
	slot := int(n % blocks)
	b := s.buf[slot*blockSize:][:blockSize]
	off := n * blockSize
	b = b[:min(blockSize, s.size-off)]
	if s.held[slot] == n+1 {
		return b, nil
	}
	s.held[slot] = 0
	if err := s.at(b, off); err != nil {
		return nil, err
	}
	s.held[slot] = n + 1
	return b, nil
}

func (s *source) at(p []byte, off int64) error {
	n, err := s.r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF // the file is shorter than srcSize
	}
	return fmt.Errorf("read old file at %d: %w", off+int64(n), err)
}
