package delta

import (
	"bufio"
	"io"
	"math"
)

// NewHeaders gives the headers of a tar that comes as a stream, such as a layer
// that is stored compressed, for an Old. The contents are read and passed over.
// Close closes the tar.
func NewHeaders(tar io.ReadCloser) HeaderReader {
	return &streamHeaders{headerWalk{tarWalk{r: &forward{r: bufio.NewReaderSize(tar, chunk)}, size: math.MaxInt64}}, tar}
}

type streamHeaders struct {
	headerWalk
	tar io.Closer
}

func (h *streamHeaders) Close() error { return h.tar.Close() }

// forward reads a stream at offsets that never fall.
type forward struct {
	r   *bufio.Reader
	off int64
}

func (f *forward) ReadAt(b []byte, off int64) (int, error) {
	for f.off < off {
		n, err := f.r.Discard(int(min(off-f.off, 1<<30)))
		f.off += int64(n)
		if err != nil {
			return 0, err
		}
	}
	n, err := io.ReadFull(f.r, b)
	f.off += int64(n)
	return n, err
}
