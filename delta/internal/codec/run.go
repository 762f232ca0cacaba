// Package codec codes the objects of a delta, each in one pass, in both directions.
// The encoder and the decoder run the same code: one writes what the other reads
// (see model.Coder). When encoding, it follows a plan (package script); when
// decoding, there is no plan.
//
// Everything that is decoded may be hostile: each count, size and offset is checked
// before it is used. Constants bound the memory, and the sizes in the header bound
// the work.
package codec

import (
	"context"
	"io"

	"github.com/mender-app/mender-app/delta/budget"
)

const (
	// Chunk is how many bytes are written at a time. A frame may end after each
	// chunk, so it is part of the format.
	Chunk = 64 << 10
	// Memory is what decoding allocates at most, in bytes: models, buffers,
	// windows.
	Memory = 24 << 20
)

// run is shared by all coders of one delta.
type run struct {
	*frames
	ctx  context.Context
	stat func(kind string) // encoding: called with the kind of what was coded
	// share is called when encoding, with the class of what was coded since the last
	// call.
	share func(class string)
	buf   []byte      // a chunk, for temporary use
	work  budget.Work // of what was encoded, but for what Codec.Work adds
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

// bitsFor returns how many bits are needed to choose one of n things.
func bitsFor(n int) int {
	b := 0
	for 1<<b < n {
		b++
	}
	return b
}
