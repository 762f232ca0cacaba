// Package codec codes the objects of a delta, each in one pass, in both
// directions: the encoder and the decoder run the same code, and what the one
// writes the other reads (see model.Coder). When it encodes, it follows a plan
// (package script); when it decodes, there is none.
//
// Everything that is decoded is hostile: each count, size and offset is checked
// before it is used, memory is bounded by the constants, and work by the sizes
// in the header.
package codec

import (
	"context"
	"io"
)

const (
	// Chunk is how many bytes are passed on at a time. A frame may end after
	// each, so that it is part of the format.
	Chunk = 64 << 10
	// Memory is what decoding allocates at most, in bytes: models, buffers,
	// windows.
	Memory = 24 << 20
)

// run is shared by all coders of one delta.
type run struct {
	*frames
	ctx  context.Context
	stat func(kind string) // encoding: what was coded since the last call
	buf  []byte            // a chunk; free for whoever passes bytes on
}

// readFull reads all of b at an offset.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// bitsFor returns how many bits tell one of n things.
func bitsFor(n int) int {
	b := 0
	for 1<<b < n {
		b++
	}
	return b
}
