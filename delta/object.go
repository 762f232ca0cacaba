package delta

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
)

// objectPlan is what the encoder decided for one object.
type objectPlan struct {
	tar     bool
	r       io.ReaderAt
	size    int64
	refs    []int // bases whose headers are merged
	members []memberPlan
	sums    bool  // it lists the sums of its files
	tail    int64 // where what follows the members begins
	whole   entry // of an object that is no tar
}

type memberPlan struct {
	member
	ref  int // 0: none, else 1 + index into refs
	skip int // headers to pass over
	entry
	padded bool // the padding is all zeros
	blocks int  // bytes of its header blocks, in the batch's
}

// batch is members of which all is known but the contents: the old files that
// these need are verified together, before any is used.
type batch struct {
	members []*memberPlan
	raw     []byte // header blocks
	pool    []*memberPlan
	verify  []*entry
}

// maxBatch ends a batch: bytes of header blocks.
const maxBatch = 128 << 10

func (b *batch) begin() { b.members, b.raw, b.verify = b.members[:0], b.raw[:0], b.verify[:0] }

// fresh returns a member to decode into.
func (b *batch) fresh() *memberPlan {
	n := len(b.members)
	if n == len(b.pool) {
		b.pool = append(b.pool, new(memberPlan))
	}
	m := b.pool[n]
	*m = memberPlan{}
	return m
}

// passed returns how many headers of a reference are read.
func (p *objectPlan) passed(ref int) (n uint64) {
	for i := range p.members {
		if m := &p.members[i]; m.ref == ref {
			n += uint64(m.skip) + 1
		}
	}
	return n
}

// headerStream is the headers of an old tar, read forward.
type headerStream struct {
	base int
	r    HeaderReader
	raw  []byte
	meta meta
}

// advance moves n+1 headers on.
func (h *headerStream) advance(n uint64) error {
	for i := uint64(0); i <= n; i++ {
		raw, err := h.r.Next()
		if err != nil {
			return err
		}
		if i < n {
			continue
		}
		k, err := h.meta.next(raw)
		if err != nil || k != 0 {
			return errMeta
		}
		h.raw = raw
	}
	return nil
}

// object codes one object; p is nil when decoding.
func (s *session) object(info ObjectInfo, p *objectPlan) error {
	s.wrote, s.limit, s.heads = 0, info.Size, s.heads[:0]
	if err := s.rest(); err != nil {
		return err
	}
	tar := 0
	if p != nil && p.tar {
		tar = 1
	}
	var err error
	if s.Raw(1, uint64(tar)) != 0 {
		err = s.tarObject(info, p)
	} else {
		e := &entry{}
		if p != nil {
			e = &p.whole
		}
		e.size = info.Size
		err = s.content(e)
	}
	if err == nil {
		err = s.checkCopies(true)
	}
	if err == nil && s.Short {
		err = formatError("a frame is cut short")
	}
	if err == nil {
		_, err = s.cut(s.Encoding && len(s.bulk) > 0)
	}
	if err == nil && s.wrote != info.Size {
		err = formatError("an object is smaller than announced")
	}
	return err
}

func (s *session) tarObject(info ObjectInfo, p *objectPlan) (err error) {
	n := 0
	if p != nil {
		n = len(p.refs)
	}
	n = int(s.Raw(3, uint64(n)))
	if n > maxRefs {
		return formatError("too many references")
	}
	streams := make([]*headerStream, n)
	s.heads = s.heads[:0]
	defer func() {
		for _, h := range streams {
			if h != nil && h.r != nil {
				h.r.Close()
			}
		}
	}()
	for i := range streams {
		b := 0
		if p != nil {
			b = p.refs[i]
		}
		b = int(s.Raw(12, uint64(b)))
		if b >= len(s.bases) || !s.bases[b].Headers {
			return formatError("unknown base")
		}
		h := &headerStream{base: b}
		want := headCheck{base: b}
		if p != nil {
			want.n = p.passed(i + 1)
			if want.sum, err = s.sumHeaders(b, want.n); err != nil {
				return err
			}
		}
		want.n = s.Uint(s.skip, want.n)
		want.sum = uint32(s.Raw(32, uint64(want.sum)))
		s.heads = append(s.heads, want)
		if h.r, err = s.old.Headers(s.ctx, s.bases[b].Digest); err != nil {
			return s.badHeaders(b, err)
		}
		streams[i] = h
	}
	sums := 0
	if p != nil && p.sums {
		sums = 1
	}
	s.useSums, s.sums = s.Raw(1, uint64(sums)) != 0, map[uint64][md5.Size]byte{}
	defer func() { s.useSums, s.sums = false, nil }()
	s.header.begin()
	for i, last, more := 0, 0, true; more; {
		b := &s.batch
		for b.begin(); len(b.raw) < maxBatch; i++ {
			if err := s.rest(); err != nil {
				return err
			}
			if err := s.ctx.Err(); err != nil {
				return err
			}
			if more = s.Flag(&s.more, p != nil && i < len(p.members)); !more {
				break
			}
			m := b.fresh()
			if p != nil {
				m = &p.members[i]
			}
			if last, err = s.head(m, streams, last); err != nil {
				return err
			}
			b.members = append(b.members, m)
			b.verify = append(b.verify, &m.entry)
		}
		if err := s.verify(b.verify); err != nil {
			return err
		}
		at := 0
		for _, m := range b.members {
			if err := s.rest(); err != nil {
				return err
			}
			if err := s.member(m, b.raw[at:at+m.blocks]); err != nil {
				return err
			}
			at += m.blocks
		}
	}
	// What follows the members, mostly zeros.
	e := &entry{op: opLiteral}
	zero := false
	if p != nil {
		e.new = io.NewSectionReader(p.r, p.tail, p.size-p.tail)
		if e.size = p.size - p.tail; e.size > 1<<14 {
			e.op = opBulk
		}
		if zero, err = allZero(p.r, p.tail, p.size); err != nil {
			return err
		}
	}
	e.size = s.limit - s.wrote
	if s.Flag(&s.pad, zero) {
		clear(s.buf)
		for e.size > 0 {
			if err := s.ctx.Err(); err != nil {
				return err
			}
			b := s.buf[:min(chunk, e.size)]
			if err := s.write(b); err != nil {
				return err
			}
			e.size -= int64(len(b))
		}
		return nil
	}
	return s.content(e)
}

func (s *session) badHeaders(base int, err error) error {
	e := &OldError{Base: s.bases[base], Problem: BadHeaders, Err: err}
	if errors.Is(err, ErrNoObject) {
		e.Problem = NoBase
	}
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	return e
}

// head codes what is known of a member before its content; last is what the
// member before referred to, in what is returned this one.
func (s *session) head(m *memberPlan, streams []*headerStream, last int) (int, error) {
	ref := s.Tree(s.ref[last][:], 3, m.ref)
	if ref > len(streams) {
		return 0, formatError("unknown reference")
	}
	var h *headerStream
	var old []byte
	if ref > 0 {
		h = streams[ref-1]
		skip := s.Uint(s.skip, uint64(m.skip))
		if s.Short {
			return 0, formatError("a frame is cut short")
		}
		if err := h.advance(skip); err != nil {
			return 0, s.badHeaders(h.base, err)
		}
		old = h.raw
	}
	raw, err := s.header.code(s.Coder, m.raw, old)
	s.stat("headers")
	if err != nil {
		return 0, err
	}
	var got meta
	if n, err := got.next(raw); n != 0 || err != nil {
		return 0, formatError("a member's header does not parse")
	}
	m.blocks = len(raw)
	s.batch.raw = append(s.batch.raw, raw...)
	e := &m.entry
	e.path, e.size, e.ref = got.path, got.size, nil
	if h != nil && h.meta.file() && h.meta.size > 0 {
		e.ref, e.rsize = &source{h.base, h.meta.path}, h.meta.size
	}
	if err := s.choice(e); err != nil {
		return 0, fmt.Errorf("file %q: %w", e.path, err)
	}
	return min(ref, maxRefs), nil
}

// member passes on a member of which raw is the header blocks.
func (s *session) member(m *memberPlan, raw []byte) error {
	if err := s.write(raw); err != nil {
		return err
	}
	e := &m.entry
	if err := s.body(e); err != nil {
		return fmt.Errorf("file %q: %w", e.path, err)
	}
	pad := int(-e.size & (block - 1))
	if pad > 0 {
		b := s.buf[:pad]
		clear(b)
		if !s.Flag(&s.pad, m.padded) {
			if s.Encoding {
				if err := readFull(e.new, b, e.size); err != nil {
					return err
				}
			}
			s.diff.literals(s.Coder, b, 0)
		}
		if err := s.write(b); err != nil {
			return err
		}
	}
	return s.checkCopies(false)
}

func allZero(r io.ReaderAt, from, to int64) (bool, error) {
	b := make([]byte, chunk)
	for from < to {
		c := b[:min(chunk, to-from)]
		if err := readFull(r, c, from); err != nil {
			return false, err
		}
		if bytes.Count(c, []byte{0}) != len(c) {
			return false, nil
		}
		from += int64(len(c))
	}
	return true, nil
}
