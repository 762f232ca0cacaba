package codec

import (
	"bufio"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
)

// plainFile has the uncompressed bytes of an old stream. They are in pieces: one buffer
// that grows would take up to three times the memory while it is copied, and leave it to
// the garbage collector, which a device's programs keep short of memory.
type plainFile struct {
	pieces [][]byte // of pieceSize bytes each
	size   int64
}

const (
	pieceSize  = Chunk
	keptPieces = 4 // for the next stream
)

// ReadFrom replaces the content by all of r.
func (f *plainFile) ReadFrom(r io.Reader) (int64, error) {
	f.size = 0
	for {
		i := int(f.size / pieceSize)
		if i == len(f.pieces) {
			f.pieces = append(f.pieces, make([]byte, pieceSize))
		}
		n, err := r.Read(f.pieces[i][f.size%pieceSize:])
		f.size += int64(n)
		if err == io.EOF {
			return f.size, nil
		}
		if err != nil {
			return f.size, err
		}
	}
}

func (f *plainFile) Size() int64 { return f.size }

// Close frees the content, but for what the next stream is likely to need.
func (f *plainFile) Close() error {
	f.size = 0
	if len(f.pieces) > keptPieces {
		clear(f.pieces[keptPieces:])
		f.pieces = f.pieces[:keptPieces]
	}
	return nil
}

func (f *plainFile) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, delta.FormatErrorf("an old stream is read before its beginning")
	}
	for n < len(b) && off < f.size {
		at := off % pieceSize
		k := copy(b[n:], f.pieces[off/pieceSize][at:min(pieceSize, at+f.size-off)])
		n, off = n+k, off+int64(k)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

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
