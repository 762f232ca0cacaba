// Package readahead reads files that are wanted in small pieces, mostly one after the
// other. A system call takes about as long as copying some KiB, so it reads more than
// is asked for, and keeps it. A bufio.Reader reads from one place on; this one can be
// asked for any place.
package readahead

import "io"

// Size is how many bytes are read at a time. A longer piece is read at once.
const Size = 4 << 10

// A Window has the bytes that were read last. It must not be used for another file
// before Reset.
type Window struct {
	// Taken is how many bytes were read from files.
	Taken int64

	off int64 // of the first byte
	b   []byte
	buf [Size]byte
}

// Reset forgets what was read.
func (w *Window) Reset() { w.b = nil }

// A File is what is read: a delta.File, or an io.SectionReader.
type File interface {
	io.ReaderAt
	Size() int64
}

// ReadAt reads from f as io.ReaderAt does. An error that lies behind what is asked for
// is returned by the call that asks for it. For pieces in order, f is read in order.
func (w *Window) ReadAt(f File, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if k := at - w.off; 0 <= k && k < int64(len(w.b)) {
			n += copy(p[n:], w.b[k:])
			continue
		}
		ahead := min(Size, f.Size()-at)
		if int64(len(p)-n) >= ahead {
			k, err := f.ReadAt(p[n:], at)
			w.Taken += int64(k)
			return n + k, err
		}
		k, err := f.ReadAt(w.buf[:ahead], at)
		w.Taken += int64(k)
		w.off, w.b = at, w.buf[:k]
		if k == 0 {
			return n, err
		}
	}
	return n, nil
}

// A Reader is a file with a Window of its own.
type Reader struct {
	f File
	w Window
}

// NewReader returns a Reader of size bytes of r.
func NewReader(r io.ReaderAt, size int64) *Reader { return &Reader{f: io.NewSectionReader(r, 0, size)} }

// ReadAt reads as Window.ReadAt does.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) { return r.w.ReadAt(r.f, p, off) }
