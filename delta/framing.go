package delta

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

// framing is what surrounds a stream and is made with it.
type framing int

const (
	bare     framing = iota // nothing of ours: an entry of a zip archive
	gzipped                 // a member, RFC 1952
	zlibbed                 // RFC 1950
	framings = 4            // to be coded in two bits
)

// gzipHead is that of gzip -9n, with which Debian's packages are made, zlibHead
// that of zlib's level 6.
var (
	gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3}
	zlibHead = []byte{0x78, 0x9c}
)

var errStream = errors.New("not one deflate stream of the kind and size")

// readGzipHead takes the header of a member off r and calls put for its bytes.
func readGzipHead(r io.ByteReader, put func(byte)) error {
	n := 0
	next := func() (byte, error) {
		b, err := r.ReadByte()
		if n++; err != nil || n > maxGzipHead {
			return 0, errStream
		}
		put(b)
		return b, nil
	}
	var fixed [10]byte
	for i := range fixed {
		b, err := next()
		if err != nil || i < 3 && b != gzipHead[i] {
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

// readHead takes what comes before a stream off r.
func (k framing) readHead(r io.ByteReader) (head []byte, err error) {
	put := func(b byte) { head = append(head, b) }
	switch k {
	case gzipped:
		err = readGzipHead(r, put)
	case zlibbed:
		for range zlibHead {
			b, err := r.ReadByte()
			if err != nil {
				return nil, errStream
			}
			put(b)
		}
		// Deflate, a window that it can have, no dictionary.
		if head[0]&15 != 8 || head[0]>>4 > 7 || head[1]&32 != 0 || binary.BigEndian.Uint16(head)%31 != 0 {
			err = errStream
		}
	}
	return head, err
}

// sum returns the hash that the framing ends with.
func (k framing) sum() hash.Hash32 {
	switch k {
	case gzipped:
		return crc32.NewIEEE()
	case zlibbed:
		return adler32.New()
	}
	return nil
}

// appendTail appends what comes after a stream of so many bytes of content.
func (k framing) appendTail(b []byte, sum hash.Hash32, size int64) []byte {
	switch k {
	case gzipped:
		b = binary.LittleEndian.AppendUint32(b, sum.Sum32())
		b = binary.LittleEndian.AppendUint32(b, uint32(size))
	case zlibbed:
		b = binary.BigEndian.AppendUint32(b, sum.Sum32())
	}
	return b
}

// inflaters are kept: one takes 40 KiB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// inflated is a stream that was read.
type inflated struct {
	plain []byte
	head  []byte
	end   int64 // where what follows it begins
}

// inflate reads the stream that begins at an offset of r, of size bytes in all,
// and has at most so many bytes in it; they are put into buf.
func (k framing) inflate(r io.ReaderAt, at, size int64, buf []byte, most int64) (in inflated, err error) {
	section := io.NewSectionReader(r, at, size-at)
	br := bufio.NewReader(section)
	if in.head, err = k.readHead(br); err != nil {
		return in, err
	}
	z := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(z)
	if err := z.(flate.Resetter).Reset(br, nil); err != nil {
		return in, err
	}
	out := bytes.NewBuffer(buf[:0])
	n, err := out.ReadFrom(io.LimitReader(z, most+1))
	if err != nil || n > most {
		return in, errStream
	}
	in.plain = out.Bytes()
	if sum := k.sum(); sum != nil {
		sum.Write(in.plain)
		want := k.appendTail(nil, sum, n)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(want, got) {
			return in, errStream
		}
	}
	read, err := section.Seek(0, io.SeekCurrent)
	in.end = at + read - int64(br.Buffered())
	return in, err
}

// memFile is what is in an old stream.
type memFile struct{ *bytes.Reader }

func (memFile) Close() error { return nil }

// forwardFile is what is in an old stream that is too large to be held. It is
// read once: what lies further back than its ring is gone.
type forwardFile struct {
	z    io.ReadCloser
	ring []byte // byte i is at i modulo the ring's length
	at   int64  // so much was read
	size int64
}

func (k framing) forward(r io.ReaderAt, at, size, plain int64, ring []byte) (*forwardFile, error) {
	br := bufio.NewReader(io.NewSectionReader(r, at, size-at))
	if _, err := k.readHead(br); err != nil {
		return nil, formatError("an old file has not the stream it should have: %v", err)
	}
	z := inflaters.Get().(io.ReadCloser)
	if err := z.(flate.Resetter).Reset(br, nil); err != nil {
		return nil, err
	}
	return &forwardFile{z: z, ring: ring, size: plain}, nil
}

func (f *forwardFile) Size() int64 { return f.size }

func (f *forwardFile) Close() error {
	inflaters.Put(f.z)
	return nil
}

func (f *forwardFile) ReadAt(b []byte, off int64) (int, error) {
	n, end := int64(len(f.ring)), off+int64(len(b))
	if off < max(0, f.at-n) || int64(len(b)) > n || end > f.size {
		return 0, formatError("an old stream is read back too far, or beyond its end")
	}
	for f.at < end {
		k, err := io.ReadFull(f.z, f.ring[f.at%n:min(n, f.at%n+end-f.at)])
		f.at += int64(k)
		if err != nil {
			return 0, formatError("an old file has not the stream it should have: %v", err)
		}
	}
	k := copy(b, f.ring[off%n:])
	copy(b[k:], f.ring)
	return len(b), nil
}
