// Package readahead reads files that are wanted in small pieces, mostly one after the
// other, from a few places at a time. A system call takes about as long as copying some
// KiB, so it reads more than is asked for, and keeps it. A bufio.Reader reads from one
// place on; this one can be asked for any place.
package readahead

import "io"

// Size is how many bytes are read at a time. A longer piece is read at once.
const Size = 4 << 10

// maxKept is how many pieces are kept: matches of a program go back and forth between
// its sections.
const maxKept = 8

// A Reader reads ahead in a file.
type Reader struct {
	// Taken is how many bytes were read from the file.
	Taken int64

	r    io.ReaderAt
	size int64
	kept []piece // made one by one, as they are needed: most files need none
	next int     // the one that is replaced next
}

// piece is what was read from an offset on.
type piece struct {
	off    int64
	b, buf []byte
}

// New returns a Reader of size bytes of r.
func New(r io.ReaderAt, size int64) *Reader { return &Reader{r: r, size: size} }

// Reset makes the Reader read another file. It reuses the memory.
func (r *Reader) Reset(from io.ReaderAt, size int64) {
	r.r, r.size, r.next = from, size, 0
	for i := range r.kept {
		r.kept[i].b = nil
	}
}

// find returns what is kept from an offset on.
func (r *Reader) find(at int64) []byte {
	for i := range r.kept {
		p := &r.kept[i]
		if k := at - p.off; 0 <= k && k < int64(len(p.b)) {
			return p.b[k:]
		}
	}
	return nil
}

// replaced returns the piece that the next one takes the place of.
func (r *Reader) replaced() *piece {
	if len(r.kept) < maxKept {
		r.kept = append(r.kept, piece{buf: make([]byte, Size)})
		return &r.kept[len(r.kept)-1]
	}
	p := &r.kept[r.next]
	r.next = (r.next + 1) % maxKept
	return p
}

// ReadAt reads as io.ReaderAt does. An error that lies behind what is asked for is
// returned by the call that asks for it. For pieces in order, the file is read in order.
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if b := r.find(at); b != nil {
			n += copy(p[n:], b)
			continue
		}
		ahead := min(Size, r.size-at)
		if int64(len(p)-n) >= ahead {
			k, err := r.r.ReadAt(p[n:], at)
			r.Taken += int64(k)
			return n + k, err
		}
		kept := r.replaced()
		k, err := r.r.ReadAt(kept.buf[:ahead], at)
		r.Taken += int64(k)
		kept.off, kept.b = at, kept.buf[:k]
		if k == 0 {
			return n, err
		}
	}
	return n, nil
}
