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
	s.wrote, s.limit = 0, info.Size
	if err := s.rest(); err != nil {
		return err
	}
	tar := 0
	if p != nil && p.tar {
		tar = 1
	}
	var err error
	if s.raw(1, uint64(tar)) != 0 {
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
		err = s.checkFiles(true)
	}
	if err == nil && s.short {
		err = formatError("a frame is cut short")
	}
	if err == nil {
		_, err = s.cut(s.enc && len(s.bulk) > 0)
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
	n = int(s.raw(3, uint64(n)))
	if n > maxRefs {
		return formatError("too many references")
	}
	streams := make([]*headerStream, n)
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
		b = int(s.raw(12, uint64(b)))
		if b >= len(s.bases) || s.bases[b].Kind != Tar {
			return formatError("unknown base")
		}
		h := &headerStream{base: b}
		if h.r, err = s.old.Headers(s.ctx, s.bases[b].Digest); err != nil {
			return s.badHeaders(b, err)
		}
		streams[i] = h
	}
	sums := 0
	if p != nil && p.sums {
		sums = 1
	}
	s.useSums, s.sums = s.raw(1, uint64(sums)) != 0, map[uint64][md5.Size]byte{}
	defer func() { s.useSums, s.sums = false, nil }()
	s.header.begin()
	last := 0
	for i := 0; ; i++ {
		if err := s.rest(); err != nil {
			return err
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if !s.flag(&s.more, p != nil && i < len(p.members)) {
			break
		}
		var m *memberPlan
		if p != nil {
			m = &p.members[i]
		} else {
			m = &memberPlan{}
		}
		ref := s.tree(s.ref[last][:], 3, m.ref)
		last = min(ref, maxRefs)
		if ref > n {
			return formatError("unknown reference")
		}
		var raw []byte
		if ref > 0 {
			h := streams[ref-1]
			skip := s.num(s.skip, uint64(m.skip))
			if s.short {
				return formatError("a frame is cut short")
			}
			if err := h.advance(skip); err != nil {
				return s.badHeaders(h.base, err)
			}
			raw = h.raw
		}
		if err := s.member(m, raw, streams, ref); err != nil {
			return err
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
	if s.flag(&s.pad, zero) {
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

// member codes one member, of which ref is the old header or nil.
func (s *session) member(m *memberPlan, ref []byte, streams []*headerStream, k int) error {
	raw, err := s.header.code(s.coder, m.raw, ref)
	s.stat("headers")
	if err != nil {
		return err
	}
	var got meta
	if n, err := got.next(raw); n != 0 || err != nil {
		return formatError("a member's header does not parse")
	}
	if err := s.write(raw); err != nil {
		return err
	}
	e := &m.entry
	e.path, e.size, e.ref = got.path, got.size, nil
	if k > 0 {
		if h := streams[k-1]; h.meta.file() && h.meta.size > 0 {
			e.ref, e.rsize = &source{h.base, h.meta.path}, h.meta.size
		}
	}
	if err := s.content(e); err != nil {
		return fmt.Errorf("file %q: %w", got.path, err)
	}
	pad := int(-got.size & (block - 1))
	if pad > 0 {
		b := s.buf[:pad]
		clear(b)
		if !s.flag(&s.pad, m.padded) {
			if s.enc {
				if err := readFull(m.new, b, m.size); err != nil {
					return err
				}
			}
			s.diff.literals(s.coder, b, 0)
		}
		if err := s.write(b); err != nil {
			return err
		}
	}
	return s.checkFiles(false)
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
