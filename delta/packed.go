package delta

import (
	"bytes"
	"hash"
	"io"

	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/script"
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
	covers     []script.Match
}

// between is how much of a content of that size is not in streams, when encoding.
func (p *packing) between(size int64) int64 {
	for _, st := range p.streams {
		size -= st.length
	}
	return size
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
	if s.Encoding {
		todo = e.pack.streams
	}
	for i := 0; ; i++ {
		if err := s.rest(); err != nil {
			return err
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if !s.Flag(&s.streams[min(i, 1)], i < len(todo)) {
			break
		}
		if int64(i) > e.size/minStream {
			return formatError("a file has too many streams")
		}
		st := packedStream{}
		if s.Encoding {
			st = todo[i]
		}
		st.gap = int64(s.Uint(s.gap, uint64(st.gap)))
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
	covers []script.Match
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
	if p.Encoding {
		part.new = io.NewSectionReader(p.e.new, p.wrote-(p.end-p.e.size), n)
		part.covers = script.Clip(p.covers, p.passed, p.passed+n)
		p.passed += n
	}
	if p.f == nil {
		return p.literal(&part, p.e.op == opBulk)
	}
	err := p.changed(&part, p.f, p.oldAt)
	p.oldAt = p.walk.ends[0]
	return err
}

// stream codes one stream.
func (p *unpacking) stream(st *packedStream) error {
	if err := p.streamHead(st); err != nil {
		return err
	}
	p.left -= st.size
	plain := entry{path: p.e.path, size: st.size, op: p.e.op, src: p.e.src, bulk: p.e.bulk, covers: st.covers}
	if p.Encoding {
		in, err := st.inflate(p.e.new, st.at, p.e.size, nil, maxPlain)
		if err != nil {
			return err
		}
		plain.new = bytes.NewReader(in.plain)
	}
	var old File
	if p.f != nil {
		if p.Flag(&p.fromOld, st.old >= 0) {
			var err error
			if old, err = p.oldStream(st); err != nil {
				return err
			}
			defer old.Close()
			plain.noELF = st.oldSize > 0
		} else if plain.op = opLiteral; p.Flag(&p.diff.bulk, plain.bulk) {
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
	st.framing = framing(p.Tree(p.framing[:], 2, int(st.framing)))
	st.variant = deflate.Variant(p.Tree(p.variant[:], 5, int(st.variant)))
	st.size = int64(p.Uint(p.plainSize, uint64(st.size)))
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
	if p.Flag(&p.sameHead[st.framing], bytes.Equal(st.head, *last)) {
		st.head = *last
		return nil
	}
	n := p.Uint(p.skip, uint64(len(st.head)))
	if n > maxGzipHead {
		return formatError("the head of a stream is too long")
	}
	head := make([]byte, n)
	copy(head, st.head)
	for i := range head {
		head[i] = p.path.Byte(p.Coder, head[i], 1, 0)
	}
	st.head, *last = head, head
	return nil
}

// oldStream codes which stream of the old file is meant, and opens what is in it.
func (p *unpacking) oldStream(st *packedStream) (File, error) {
	st.old = p.oldAt + p.Int(p.seekOld, st.old-p.oldAt)
	if p.Short || st.old < 0 || st.old >= p.e.osize {
		return nil, formatError("an old stream is out of bounds")
	}
	if st.oldSize = int64(p.Uint(p.oldSize, uint64(st.oldSize))); st.oldSize > 0 {
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
