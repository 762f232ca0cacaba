// Package readahead reads files that are wanted in small pieces, mostly one after the
// other. A system call takes about as long as copying some KiB, so it reads more than
// is asked for, and keeps it. A bufio.Reader reads from one place on; this one can be
// asked for any place.
package readahead

import "io"

// Size is how many bytes are read at a time. A longer piece is read at once.
const Size = 4 << 10

// A Reader reads ahead in a file.
type Reader struct {
	// Taken is how many bytes were read from the file.
	Taken int64

	r    io.ReaderAt
	size int64
	off  int64  // of the first byte of b
	b    []byte // what was read last
	buf  []byte // made at the first piece that needs it: most files need none
}

// New returns a Reader of size bytes of r.
func New(r io.ReaderAt, size int64) *Reader { return &Reader{r: r, size: size} }

// ReadAt reads as io.ReaderAt does. An error that lies behind what is asked for is
// returned by the call that asks for it. For pieces in order, the file is read in order.
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if k := at - r.off; 0 <= k && k < int64(len(r.b)) {
			n += copy(p[n:], r.b[k:])
			continue
		}
		ahead := min(Size, r.size-at)
		if int64(len(p)-n) >= ahead {
			k, err := r.r.ReadAt(p[n:], at)
			r.Taken += int64(k)
			return n + k, err
		}
		if r.buf == nil {
			r.buf = make([]byte, Size)
		}
		k, err := r.r.ReadAt(r.buf[:ahead], at)
		r.Taken += int64(k)
		r.off, r.b = at, r.buf[:k]
		if k == 0 {
			return n, err
		}
	}
	return n, nil
}
