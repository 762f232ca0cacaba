package delta

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/mender-app/mender-app/delta/deflate"
)

// Where a new file is one gzip member (RFC 1952) that delta/deflate can make
// again, its plain content is coded instead, against that of an old member, and
// the decoder compresses what comes out. A member that does not come out the
// same in the encoder is left as it is.

const (
	maxPlain    = 16 << 20 // bytes of a new member's content
	maxOldPlain = 4 << 20  // of an old one's, which the decoder holds in memory
	maxGzipHead = 1 << 10
)

// packing is how a content is compressed.
type packing struct {
	head    []byte // of the member
	variant deflate.Variant
	size    int64 // of the plain content
}

// gzipHead is that of gzip -9n, with which Debian's packages are made.
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3}

var errGzip = errors.New("not one gzip member")

func isGzip(b []byte) bool { return len(b) >= 18 && bytes.Equal(b[:3], gzipHead[:3]) }

// readGzipHead takes the header of a member off r and calls put for its bytes.
func readGzipHead(r io.ByteReader, put func(byte)) error {
	n := 0
	next := func() (byte, error) {
		b, err := r.ReadByte()
		if n++; err != nil || n > maxGzipHead {
			return 0, errGzip
		}
		put(b)
		return b, nil
	}
	var fixed [10]byte
	for i := range fixed {
		b, err := next()
		if err != nil || i < 3 && b != gzipHead[i] {
			return errGzip
		}
		fixed[i] = b
	}
	flags := fixed[3]
	if flags&0xe0 != 0 {
		return errGzip
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

// inflaters are kept: one takes 40 KiB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// gunzip appends to plain the content of r, which must be one member of at most
// so many bytes of content.
func gunzip(r io.Reader, plain []byte, most int) (content, head []byte, err error) {
	br := bufio.NewReader(r)
	if err := readGzipHead(br, func(b byte) { head = append(head, b) }); err != nil {
		return nil, nil, err
	}
	z := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(z)
	if err := z.(flate.Resetter).Reset(br, nil); err != nil {
		return nil, nil, err
	}
	out := bytes.NewBuffer(plain)
	n, err := out.ReadFrom(io.LimitReader(z, int64(most)+1))
	if err != nil || n > int64(most) {
		return nil, nil, errGzip
	}
	content = out.Bytes()
	var tail [9]byte
	k, err := io.ReadFull(br, tail[:])
	if k != 8 || err != io.ErrUnexpectedEOF ||
		binary.LittleEndian.Uint32(tail[:]) != crc32.ChecksumIEEE(content[len(plain):]) ||
		binary.LittleEndian.Uint32(tail[4:]) != uint32(n) {
		return nil, nil, errGzip
	}
	return content, head, nil
}

// pack codes how a content is compressed; e.pack is nil where it is not.
func (s *session) pack(e *entry) error {
	k := 0
	if len(e.path) > 3 && e.path[len(e.path)-3:] == ".gz" {
		k = 1
	}
	if !s.flag(&s.packed[k], e.pack != nil) {
		e.pack = nil
		return nil
	}
	var p packing
	if s.enc {
		p = *e.pack
	}
	p.variant = deflate.Variant(s.tree(s.variant[:], 5, int(p.variant)))
	p.size = int64(s.num(s.plainSize, uint64(p.size)))
	if p.variant >= deflate.NumVariants || p.size > maxPlain {
		return formatError("unknown compression")
	}
	if s.flag(&s.sameHead, bytes.Equal(p.head, s.gzipHead)) {
		p.head = s.gzipHead
	} else {
		n := s.num(s.skip, uint64(len(p.head)))
		if n > maxGzipHead {
			return formatError("a gzip header is too long")
		}
		head := make([]byte, n)
		copy(head, p.head)
		for i := range head {
			head[i] = s.path.byte(s.coder, head[i], 1, 0)
		}
		p.head, s.gzipHead = head, head
	}
	if !s.enc {
		e.pack = &p
	}
	return nil
}

// packer makes a member of what is written to the session.
type packer struct {
	z    *deflate.Writer
	crc  hash.Hash32
	size int64
}

// emitter passes the compressed bytes on.
type emitter struct{ s *session }

func (w emitter) Write(b []byte) (int, error) { return len(b), w.s.emit(b) }

func (s *session) beginPack(p *packing) error {
	if s.packer == nil {
		s.packer = &packer{z: new(deflate.Writer), crc: crc32.NewIEEE()}
	}
	s.packer.crc.Reset()
	s.packer.size = 0
	s.packer.z.Reset(emitter{s}, p.variant)
	return s.emit(p.head)
}

func (p *packer) write(b []byte) error {
	p.crc.Write(b)
	p.size += int64(len(b))
	_, err := p.z.Write(b)
	return err
}

func (s *session) endPack() error {
	p := s.packer
	if err := p.z.Close(); err != nil {
		return err
	}
	var tail []byte
	tail = binary.LittleEndian.AppendUint32(tail, p.crc.Sum32())
	tail = binary.LittleEndian.AppendUint32(tail, uint32(p.size))
	return s.emit(tail)
}

// packedBody passes a compressed content on.
func (s *session) packedBody(e *entry) error {
	plain := *e
	plain.size, plain.pack = e.pack.size, nil
	if s.enc {
		b, _, err := gunzip(io.NewSectionReader(e.new, 0, e.size), nil, maxPlain)
		if err != nil {
			return err
		}
		plain.new = bytes.NewReader(b)
	}
	before := s.wrote
	if err := s.beginPack(e.pack); err != nil {
		return err
	}
	s.packing = true
	err := s.contents(&plain, true)
	s.packing = false
	if err == nil {
		err = s.endPack()
	}
	if err == nil && s.wrote-before != e.size {
		err = formatError("a gzip member has another size than announced")
	}
	return err
}

// memFile is the content of an old member.
type memFile struct{ *bytes.Reader }

func (memFile) Close() error { return nil }

// openPlain returns the content of an old member.
func (s *session) openPlain(f File) (File, error) {
	defer f.Close()
	b, _, err := gunzip(io.NewSectionReader(f, 0, f.Size()), s.oldPlain[:0], maxOldPlain)
	if err != nil {
		return nil, formatError("an old file is not the gzip member it should be: %v", err)
	}
	s.oldPlain = b
	return memFile{bytes.NewReader(b)}, nil
}
