package artifact

import (
	"hash"
	"hash/crc32"
	"io"

	"github.com/mender-app/mender-app/delta/deflate"
)

// gzipHeader begins a member: deflate, no flags, no time, best compression, unknown
// system (RFC 1952, 2.3).
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff}

// bestGzip writes a gzip member, compressed as gzip -9 does. A Debian image of 104 MB
// becomes 36.1 MB; it becomes 38.3 MB with the default level of klauspost/compress and
// 37.0 MB with the best level of compress/flate. The processor time was 18 s, 1.7 s and
// 30 s.
type bestGzip struct {
	w       io.Writer
	deflate *deflate.Writer
	sum     hash.Hash32
	size    int64
	begun   bool
}

func newBestGzip(w io.Writer) *bestGzip {
	return &bestGzip{w: w, deflate: deflate.NewWriter(w, deflate.GNU(9)), sum: crc32.NewIEEE()}
}

func (g *bestGzip) begin() error {
	if g.begun {
		return nil
	}
	g.begun = true
	_, err := g.w.Write(gzipHeader)
	return err
}

func (g *bestGzip) Write(p []byte) (int, error) {
	if err := g.begin(); err != nil {
		return 0, err
	}
	_, _ = g.sum.Write(p)
	g.size += int64(len(p))
	return g.deflate.Write(p)
}

// Close ends the member. It does not close the underlying writer.
func (g *bestGzip) Close() error {
	if err := g.begin(); err != nil {
		return err
	}
	if err := g.deflate.Close(); err != nil {
		return err
	}
	_, err := g.w.Write(deflate.GzipEnvelope.AppendTail(nil, g.sum, g.size))
	return err
}
