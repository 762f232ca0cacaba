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

	"github.com/mender-app/mender-app/delta/deflate"
)

// A content may have deflate streams in it (RFC 1951): it is a gzip member, or a
// zlib stream, or a zip archive. Those that delta/deflate makes again byte for
// byte are coded by what is in them, against what is in a stream of the old
// file, and the decoder compresses what comes out. What lies between them is
// coded as it is, and so are streams that the old file has too: they are copied
// without being taken apart.

const (
	maxPlain    = 32 << 20 // bytes of what is in a new stream
	maxOldPlain = 4 << 20  // of what is in an old one the decoder holds in memory
	maxGzipHead = 1 << 10
	minStream   = 256 // a content of n bytes has at most 1+n/minStream streams,
	plainShare  = 64  // with maxPlain+n*plainShare bytes in them, old and new
)

// framing is what surrounds a stream and is made with it.
type framing int

const (
	bare     framing = iota // nothing of ours: an entry of a zip archive
	gzipped                 // a member, RFC 1952
	zlibbed                 // RFC 1950
	framings = 4            // to be coded in two bits
)

// packing is where the streams of a content are, and how they are made. The
// covers of the content are those of what lies between.
type packing struct{ streams []packedStream }

// packedStream is one stream of a content.
type packedStream struct {
	framing
	gap     int64  // bytes of the content between the stream before and this
	head    []byte // of the framing
	variant deflate.Variant
	size    int64 // of what is in it
	old     int64 // where the stream is that it is changed from; -1: from nothing
	oldSize int64 // of what is in that, if it is not held as a whole, else 0
	// Encoding only.
	at, length int64 // in the content
	covers     []cover
}

// between is how much of a content of that size is not in streams, when encoding.
func (p *packing) between(size int64) int64 {
	for _, st := range p.streams {
		size -= st.length
	}
	return size
}

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

// packed codes a content with streams in it, of which choice said how it is made.
func (s *session) packed(e *entry) (err error) {
	var f File
	if e.op == opDiff || e.op == opDiffOf {
		if f, err = s.openOld(e.src, e.osize); err != nil {
			return err
		}
		defer f.Close()
	}
	p := &unpacking{session: s, e: e, f: f, end: s.wrote + e.size, left: maxPlain + e.size*plainShare, covers: e.covers}
	var todo []packedStream
	if s.enc {
		todo = e.pack.streams
	}
	for i := 0; ; i++ {
		if err := s.rest(); err != nil {
			return err
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if !s.flag(&s.streams[min(i, 1)], i < len(todo)) {
			break
		}
		if int64(i) > e.size/minStream {
			return formatError("a file has too many streams")
		}
		st := packedStream{}
		if s.enc {
			st = todo[i]
		}
		st.gap = int64(s.num(s.gap, uint64(st.gap)))
		if err := p.between(st.gap); err != nil {
			return err
		}
		if err := p.stream(&st); err != nil {
			return err
		}
		if s.wrote > p.end {
			return formatError("the streams of a file are larger than it")
		}
	}
	return p.between(p.end - s.wrote)
}

// unpacking is a content with streams on its way.
type unpacking struct {
	*session
	e     *entry
	f     File  // what it is changed from, or nil
	end   int64 // where it ends in the object
	oldAt int64 // where what was last made use of ends in the old file
	left  int64 // bytes that may yet be in streams
	// Encoding only: covers of what lies between, and how much of that there was.
	covers []cover
	passed int64
}

// between codes the next n bytes of a content, up to a stream or the end.
func (p *unpacking) between(n int64) error {
	if n > p.end-p.wrote {
		return formatError("a stream is out of bounds")
	}
	if n == 0 {
		return nil
	}
	part := entry{path: p.e.path, size: n, op: p.e.op, src: p.e.src, bulk: p.e.bulk, noELF: true}
	if p.enc {
		part.new = io.NewSectionReader(p.e.new, p.wrote-(p.end-p.e.size), n)
		part.covers = clip(p.covers, p.passed, p.passed+n)
		p.passed += n
	}
	if p.f == nil {
		return p.literal(&part, p.e.op == opBulk)
	}
	err := p.changed(&part, p.f, p.oldAt)
	p.oldAt = p.walk.oldAt
	return err
}

// clip returns what the covers have between two offsets, counted from the first.
func clip(covers []cover, from, to int64) []cover {
	var out []cover
	for _, c := range covers {
		a, b := max(c.new, from), min(c.new+c.length, to)
		if a < b {
			out = append(out, cover{new: a - from, old: c.old + a - c.new, length: b - a})
		}
	}
	return out
}

// stream codes one stream.
func (p *unpacking) stream(st *packedStream) error {
	if err := p.streamHead(st); err != nil {
		return err
	}
	p.left -= st.size
	plain := entry{path: p.e.path, size: st.size, op: p.e.op, src: p.e.src, bulk: p.e.bulk, covers: st.covers}
	if p.enc {
		in, err := st.inflate(p.e.new, st.at, p.e.size, nil, maxPlain)
		if err != nil {
			return err
		}
		plain.new = bytes.NewReader(in.plain)
	}
	var old File
	if p.f != nil {
		if p.flag(&p.fromOld, st.old >= 0) {
			var err error
			if old, err = p.oldStream(st); err != nil {
				return err
			}
			defer old.Close()
			plain.noELF = st.oldSize > 0
		} else if plain.op = opLiteral; p.flag(&p.diff.bulk, plain.bulk) {
			plain.op = opBulk
		}
	}
	if err := p.beginPack(st); err != nil {
		return err
	}
	var err error
	p.packing = true
	switch {
	case st.size == 0:
	case old != nil:
		err = p.changed(&plain, old, 0)
	default:
		err = p.literal(&plain, plain.op == opBulk)
	}
	p.packing = false
	if err != nil {
		return err
	}
	return p.endPack(st)
}

// streamHead codes how a stream is made.
func (p *unpacking) streamHead(st *packedStream) error {
	st.framing = framing(p.tree(p.framing[:], 2, int(st.framing)))
	st.variant = deflate.Variant(p.tree(p.variant[:], 5, int(st.variant)))
	st.size = int64(p.num(p.plainSize, uint64(st.size)))
	if st.framing > zlibbed || st.variant >= deflate.NumVariants {
		return formatError("unknown compression")
	}
	if st.size > min(maxPlain, p.left) {
		return formatError("too much is in a stream")
	}
	if st.framing == bare {
		return nil
	}
	last := &p.lastHead[st.framing]
	if p.flag(&p.sameHead[st.framing], bytes.Equal(st.head, *last)) {
		st.head = *last
		return nil
	}
	n := p.num(p.skip, uint64(len(st.head)))
	if n > maxGzipHead {
		return formatError("the head of a stream is too long")
	}
	head := make([]byte, n)
	copy(head, st.head)
	for i := range head {
		head[i] = p.path.byte(p.coder, head[i], 1, 0)
	}
	st.head, *last = head, head
	return nil
}

// oldStream codes which stream of the old file is meant, and opens what is in it.
func (p *unpacking) oldStream(st *packedStream) (File, error) {
	st.old = p.oldAt + p.signed(p.seekOld, st.old-p.oldAt)
	if p.short || st.old < 0 || st.old >= p.e.osize {
		return nil, formatError("an old stream is out of bounds")
	}
	if st.oldSize = int64(p.num(p.oldSize, uint64(st.oldSize))); st.oldSize > 0 {
		if st.oldSize > p.left {
			return nil, formatError("too much is in an old stream")
		}
		p.left -= st.oldSize
		p.oldPlain = nil // what it takes is the ring's now
		return st.forward(p.f, st.old, p.e.osize, st.oldSize, make([]byte, maxOldPlain))
	}
	in, err := st.inflate(p.f, st.old, p.e.osize, p.oldPlain, min(maxOldPlain, p.left))
	if err != nil {
		return nil, formatError("an old file has not the stream it should have: %v", err)
	}
	p.left -= int64(len(in.plain))
	p.oldPlain, p.oldAt = in.plain, in.end
	return memFile{bytes.NewReader(in.plain)}, nil
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

// packer makes a stream of what is written to the session.
type packer struct {
	z    *deflate.Writer
	sum  hash.Hash32
	size int64
}

// emitter passes the compressed bytes on.
type emitter struct{ s *session }

func (w emitter) Write(b []byte) (int, error) { return len(b), w.s.emit(b) }

func (s *session) beginPack(st *packedStream) error {
	if s.packer == nil {
		s.packer = &packer{z: new(deflate.Writer)}
	}
	s.packer.sum, s.packer.size = st.sum(), 0
	s.packer.z.Reset(emitter{s}, st.variant)
	return s.emit(st.head)
}

func (p *packer) write(b []byte) error {
	if p.sum != nil {
		p.sum.Write(b)
	}
	p.size += int64(len(b))
	_, err := p.z.Write(b)
	return err
}

func (s *session) endPack(st *packedStream) error {
	if err := s.packer.z.Close(); err != nil {
		return err
	}
	return s.emit(st.appendTail(nil, s.packer.sum, s.packer.size))
}
