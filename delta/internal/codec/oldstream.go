package codec

import (
	"bufio"
	"bytes"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
)

// memoryFile has the uncompressed bytes of an old stream.
type memoryFile struct{ *bytes.Reader }

func (memoryFile) Close() error { return nil }

// forwardFile has the uncompressed bytes of an old stream that is too large for
// memory. It is read once, forward; a ring keeps the last bytes.
type forwardFile struct {
	z    *deflate.Stream
	ring []byte // byte i is at i modulo the ring's length
	at   int64  // how many bytes were read
	size int64
}

// openForward opens the stream whose envelope begins at an offset of r. r has size
// bytes; the stream has plain uncompressed bytes.
func openForward(k deflate.Envelope, r io.ReaderAt, at, size, plain int64, ring []byte) (*forwardFile, error) {
	z, err := k.Open(bufio.NewReader(io.NewSectionReader(r, at, size-at)))
	if err != nil {
		return nil, delta.FormatErrorf("an old file lacks the expected stream: %v", err)
	}
	return &forwardFile{z: z, ring: ring, size: plain}, nil
}

func (f *forwardFile) Size() int64 { return f.size }

func (f *forwardFile) Close() error {
	f.z.Close()
	return nil
}

func (f *forwardFile) ReadAt(b []byte, off int64) (int, error) {
	n, end := int64(len(f.ring)), off+int64(len(b))
	if off < max(0, f.at-n) || int64(len(b)) > n || end > f.size {
		return 0, delta.FormatErrorf("an old stream is read back too far, or beyond its end")
	}
	for f.at < end {
		k, err := io.ReadFull(f.z, f.ring[f.at%n:min(n, f.at%n+end-f.at)])
		f.at += int64(k)
		if err != nil {
			return 0, delta.FormatErrorf("an old file lacks the expected stream: %v", err)
		}
	}
	k := copy(b, f.ring[off%n:])
	copy(b[k:], f.ring)
	return len(b), nil
}
