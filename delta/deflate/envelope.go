package deflate

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash"
	"hash/adler32"
	"hash/crc32"
	"io"
	"sync"
)

// Envelope is the format around a stream: a header before it, a checksum after it.
type Envelope int

const (
	NoEnvelope   Envelope = iota // a raw stream, as in an entry of a zip archive
	GzipEnvelope                 // a member, RFC 1952
	ZlibEnvelope                 // RFC 1950
)

// MaxHead is the greatest length of the header of an envelope, in bytes.
const MaxHead = 1 << 10

// Usual heads: that of gzip -9n, with which Debian's packages are made, and that
// of zlib's level 6.
var (
	GzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3}
	ZlibHead = []byte{0x78, 0x9c}
)

var errStream = errors.New("not one deflate stream of the kind and size")

// readGzipHead reads the header of a gzip member from r and calls put for its bytes.
func readGzipHead(r io.ByteReader, put func(byte)) error {
	n := 0
	next := func() (byte, error) {
		b, err := r.ReadByte()
		if n++; err != nil || n > MaxHead {
			return 0, errStream
		}
		put(b)
		return b, nil
	}
	var fixed [10]byte
	for i := range fixed {
		b, err := next()
		if err != nil || i < 3 && b != GzipHead[i] {
			return errStream
		}
		fixed[i] = b
	}
	flags := fixed[3]
	if flags&0xe0 != 0 {
		return errStream
	}
	skip := 0
	if flags&4 != 0 {
		lo, err := next()
		if err != nil {
			return err
		}
		hi, err := next()
		if err != nil {
			return err
		}
		skip = int(lo) | int(hi)<<8
	}
	for range skip {
		if _, err := next(); err != nil {
			return err
		}
	}
	for _, bit := range []byte{8, 16} {
		for flags&bit != 0 {
			b, err := next()
			if err != nil {
				return err
			}
			if b == 0 {
				break
			}
		}
	}
	if flags&2 != 0 {
		for range 2 {
			if _, err := next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readHead reads what comes before the stream from r.
func (k Envelope) readHead(r io.ByteReader) (head []byte, err error) {
	put := func(b byte) { head = append(head, b) }
	switch k {
	case GzipEnvelope:
		err = readGzipHead(r, put)
	case ZlibEnvelope:
		for range ZlibHead {
			b, err := r.ReadByte()
			if err != nil {
				return nil, errStream
			}
			put(b)
		}
		// The method is deflate, the window is valid, there is no dictionary.
		if head[0]&15 != 8 || head[0]>>4 > 7 || head[1]&32 != 0 || binary.BigEndian.Uint16(head)%31 != 0 {
			err = errStream
		}
	}
	return head, err
}

// Sum returns the hash at the end of the envelope, or nil if it has none.
func (k Envelope) Sum() hash.Hash32 {
	switch k {
	case GzipEnvelope:
		return crc32.NewIEEE()
	case ZlibEnvelope:
		return adler32.New()
	}
	return nil
}

// AppendTail appends what comes after a stream with so many uncompressed bytes.
func (k Envelope) AppendTail(b []byte, sum hash.Hash32, size int64) []byte {
	switch k {
	case GzipEnvelope:
		b = binary.LittleEndian.AppendUint32(b, sum.Sum32())
		b = binary.LittleEndian.AppendUint32(b, uint32(size))
	case ZlibEnvelope:
		b = binary.BigEndian.AppendUint32(b, sum.Sum32())
	}
	return b
}

// inflaters are reused: one takes 40 KiB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// A Stream reads the uncompressed content of a stream, from its beginning.
type Stream struct {
	Head []byte // of the envelope
	io.Reader
	z io.ReadCloser
}

// Open reads the header of the envelope from r and returns the stream after it.
func (k Envelope) Open(r *bufio.Reader) (*Stream, error) {
	head, err := k.readHead(r)
	if err != nil {
		return nil, err
	}
	z := inflaters.Get().(io.ReadCloser)
	if err := z.(flate.Resetter).Reset(r, nil); err != nil {
		inflaters.Put(z)
		return nil, err
	}
	return &Stream{Head: head, Reader: z, z: z}, nil
}

// Close frees the stream. It must not be read afterwards.
func (s *Stream) Close() { inflaters.Put(s.z) }

// Inflated is a stream that was read whole.
type Inflated struct {
	Plain []byte // the uncompressed content; nil after InflateTo
	Head  []byte // of the envelope
	End   int64  // offset of what follows it
}

// Inflate reads the stream whose envelope begins at an offset of r, of size bytes
// in all. It returns an error if there is no stream, if the stream has more than
// most uncompressed bytes, or if its checksum is wrong.
func (k Envelope) Inflate(r io.ReaderAt, at, size, most int64) (in Inflated, err error) {
	var out bytes.Buffer
	if in, err = k.InflateTo(&out, r, at, size, most); err == nil {
		in.Plain = out.Bytes()
	}
	return in, err
}

// InflateTo does what Inflate does, and gives the uncompressed content to w. After an
// error w may have some of it.
func (k Envelope) InflateTo(w io.ReaderFrom, r io.ReaderAt, at, size, most int64) (in Inflated, err error) {
	section := io.NewSectionReader(r, at, size-at)
	br := bufio.NewReader(section)
	z, err := k.Open(br)
	if err != nil {
		return in, err
	}
	defer z.Close()
	plain, sum := io.Reader(z), k.Sum()
	if sum != nil {
		plain = io.TeeReader(z, sum)
	}
	n, err := w.ReadFrom(io.LimitReader(plain, most+1))
	if err != nil || n > most {
		return in, errStream
	}
	if sum != nil {
		want := k.AppendTail(nil, sum, n)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(want, got) {
			return in, errStream
		}
	}
	read, err := section.Seek(0, io.SeekCurrent)
	in.Head, in.End = z.Head, at+read-int64(br.Buffered())
	return in, err
}
