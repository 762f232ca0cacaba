package tarstore

import (
	"bufio"
	"io"
	"math"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/readahead"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// NewHeaders returns the headers of a tar that is read as a stream, such as a
// compressed layer, for a delta.Old. It skips the contents. Close closes the tar.
func NewHeaders(tar io.ReadCloser) delta.HeaderReader {
	return &streamHeaders{headerWalk{tarheader.NewWalk(&forward{r: bufio.NewReaderSize(tar, 64<<10)}, math.MaxInt64)}, tar}
}

// NewHeadersAt returns the headers of a tar of size bytes that can be read at random,
// for a delta.Old. Close leaves the tar open.
func NewHeadersAt(tar io.ReaderAt, size int64) delta.HeaderReader {
	return &headerWalk{tarheader.NewWalk(readahead.New(tar, size), size)}
}

type streamHeaders struct {
	headerWalk
	tar io.Closer
}

func (h *streamHeaders) Close() error { return h.tar.Close() }

// forward reads a stream at offsets that never decrease.
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
