package lzma

import "fmt"

// rangeDecoder is LZMA's binary range decoder over one chunk. Reading past
// the chunk gives zeros and sets over: the chunk is then refused.
type rangeDecoder struct {
	rng, code uint32
	in        []byte
	i         int
	over      bool
}

// init takes a chunk; it reports whether the chunk begins as it must.
func (r *rangeDecoder) init(in []byte) bool {
	if len(in) < 5 || in[0] != 0 {
		return false
	}
	r.rng = 0xffffffff
	r.code = uint32(in[1])<<24 | uint32(in[2])<<16 | uint32(in[3])<<8 | uint32(in[4])
	r.in, r.i, r.over = in, 5, false
	return true
}

func (r *rangeDecoder) normalize() {
	if r.rng < 1<<24 {
		r.rng <<= 8
		r.code = r.code<<8 | r.next()
	}
}

func (r *rangeDecoder) next() uint32 {
	if r.i < len(r.in) {
		b := r.in[r.i]
		r.i++
		return uint32(b)
	}
	r.over = true
	return 0
}

const (
	probInit  = 1 << 10 // one half
	probBits  = 11
	probShift = 5
)

// bit decodes one bit with the probability p.
func (r *rangeDecoder) bit(p *uint16) uint32 {
	if r.rng < 1<<24 {
		r.rng <<= 8
		r.code = r.code<<8 | r.next()
	}
	v := uint32(*p)
	bound := (r.rng >> probBits) * v
	if r.code < bound {
		r.rng = bound
		*p = uint16(v + (1<<probBits-v)>>probShift)
		return 0
	}
	r.rng -= bound
	r.code -= bound
	*p = uint16(v - v>>probShift)
	return 1
}

// tree decodes bits bits, the highest first, with a tree of probabilities.
func (r *rangeDecoder) tree(p []uint16, bits int) uint32 {
	rng, code := r.rng, r.code
	m := uint32(1)
	for range bits {
		if rng < 1<<24 {
			rng <<= 8
			code = code<<8 | r.next()
		}
		v := uint32(p[m])
		bound := (rng >> probBits) * v
		if code < bound {
			rng = bound
			p[m] = uint16(v + (1<<probBits-v)>>probShift)
			m <<= 1
		} else {
			rng -= bound
			code -= bound
			p[m] = uint16(v - v>>probShift)
			m = m<<1 | 1
		}
	}
	r.rng, r.code = rng, code
	return m - 1<<bits
}

// reverse decodes bits bits, the lowest first.
func (r *rangeDecoder) reverse(p []uint16, bits int) uint32 {
	m, v := uint32(1), uint32(0)
	for i := range bits {
		b := r.bit(&p[m])
		m = m<<1 | b
		v |= b << i
	}
	return v
}

// direct decodes bits bits of even probability.
func (r *rangeDecoder) direct(bits int) uint32 {
	v := uint32(0)
	for range bits {
		r.normalize()
		r.rng >>= 1
		b := uint32(0)
		if r.code >= r.rng {
			r.code -= r.rng
			b = 1
		}
		v = v<<1 | b
	}
	return v
}

// matched decodes a literal after a match: the byte at the match's distance
// picks the probabilities as long as it agrees.
func (r *rangeDecoder) matched(p []uint16, match byte) byte {
	m, w, off := uint32(1), uint32(match), uint32(0x100)
	for m < 0x100 {
		w <<= 1
		pick := w & off
		b := r.bit(&p[off+pick+m])
		m = m<<1 | b
		if b != 0 {
			off &= pick
		} else {
			off &^= pick
		}
	}
	return byte(m)
}

// lengths is the model of match lengths.
type lengths struct {
	choice, choice2 uint16
	low, mid        [16][8]uint16
	high            [256]uint16
}

func (l *lengths) reset() {
	l.choice, l.choice2 = probInit, probInit
	for i := range l.low {
		half(l.low[i][:])
		half(l.mid[i][:])
	}
	half(l.high[:])
}

func (l *lengths) decode(r *rangeDecoder, posState uint32) int {
	if r.bit(&l.choice) == 0 {
		return 2 + int(r.tree(l.low[posState][:], 3))
	}
	if r.bit(&l.choice2) == 0 {
		return 10 + int(r.tree(l.mid[posState][:], 3))
	}
	return 18 + int(r.tree(l.high[:], 8))
}

func half(p []uint16) {
	for i := range p {
		p[i] = probInit
	}
}

// state is LZMA's model: what a state reset sets back.
type state struct {
	lc      uint
	lpMask  uint32
	posMask uint32

	st      uint32    // which kinds of symbols came last, 0 to 11
	rep     [4]uint32 // the last distances, less one
	pending int       // bytes of the current match still to copy

	isMatch, isRep0Long           [12][16]uint16
	isRep, isRep0, isRep1, isRep2 [12]uint16
	slot                          [4][64]uint16
	special                       [128]uint16 // for slots 4 to 13
	align                         [16]uint16
	match, repLen                 lengths
	literal                       [16 * 0x300]uint16
}

// setProps takes the property byte; it reports whether it is a valid one.
func (s *state) setProps(b byte) bool {
	if b >= 9*5*5 {
		return false
	}
	lc, lp, pb := b%9, b/9%5, b/45
	if lc+lp > 4 {
		return false // LZMA2's limit
	}
	s.lc = uint(lc)
	s.lpMask = 1<<lp - 1
	s.posMask = 1<<pb - 1
	return true
}

func (s *state) reset() {
	s.st, s.rep, s.pending = 0, [4]uint32{}, 0
	for i := range s.isMatch {
		half(s.isMatch[i][:])
		half(s.isRep0Long[i][:])
	}
	half(s.isRep[:])
	half(s.isRep0[:])
	half(s.isRep1[:])
	half(s.isRep2[:])
	for i := range s.slot {
		half(s.slot[i][:])
	}
	half(s.special[:])
	half(s.align[:])
	s.match.reset()
	s.repLen.reset()
	half(s.literal[:])
}

// distance decodes the distance, less one, of a match of length n.
func (s *state) distance(r *rangeDecoder, n int) uint32 {
	slot := r.tree(s.slot[min(n-2, 3)][:], 6)
	if slot < 4 {
		return slot
	}
	bits := int(slot>>1 - 1)
	d := (2 | slot&1) << bits
	if slot < 14 {
		// Each slot has its own tree; its root is at index 1.
		return d + r.reverse(s.special[d-slot:], bits)
	}
	d += r.direct(bits-4) << 4
	return d + r.reverse(s.align[:], 4)
}

// decode decodes LZMA until dict is filled up to limit. After an error the
// decoder is of no use any more.
func (d *Decoder) decode(limit int) error {
	s, r, dict := &d.lz, &d.rc, d.dict
	pos := d.pos
	base := d.done - uint32(pos)
	full := d.full - pos // grows with pos
	for pos < limit {
		if s.pending == 0 {
			posState := (base + uint32(pos)) & s.posMask
			if r.bit(&s.isMatch[s.st][posState]) == 0 {
				dict[pos] = d.literal(pos, base+uint32(pos), full+pos)
				pos++
				continue
			}
			if r.bit(&s.isRep[s.st]) == 0 {
				n := s.match.decode(r, posState)
				s.rep[3], s.rep[2], s.rep[1] = s.rep[2], s.rep[1], s.rep[0]
				s.rep[0] = s.distance(r, n)
				s.pending = n
				s.st = after(s.st, 7, 10)
			} else {
				s.repeat(r, posState)
			}
			if r.over || uint64(s.rep[0]) >= uint64(min(full+pos, len(dict))) {
				return fmt.Errorf("%w: match before the beginning", ErrCorrupt)
			}
		}
		from := pos - int(s.rep[0]) - 1
		if from < 0 {
			from += len(dict)
		}
		n := min(s.pending, limit-pos, len(dict)-from)
		if from < pos && from+n > pos {
			for i := range n {
				dict[pos+i] = dict[from+i]
			}
		} else {
			copy(dict[pos:pos+n], dict[from:from+n])
		}
		pos += n
		s.pending -= n
	}
	if r.over {
		return fmt.Errorf("%w: chunk ends early", ErrCorrupt)
	}
	d.done = base + uint32(pos)
	d.full = min(full+pos, len(dict))
	d.pos = pos
	return nil
}

// after gives the state after a match or a repeated match.
func after(st, literal, match uint32) uint32 {
	if st < 7 {
		return literal
	}
	return match
}

// repeat decodes a match at one of the last distances.
func (s *state) repeat(r *rangeDecoder, posState uint32) {
	if r.bit(&s.isRep0[s.st]) == 0 {
		if r.bit(&s.isRep0Long[s.st][posState]) == 0 {
			s.pending = 1
			s.st = after(s.st, 9, 11)
			return
		}
	} else {
		var dist uint32
		if r.bit(&s.isRep1[s.st]) == 0 {
			dist = s.rep[1]
		} else {
			if r.bit(&s.isRep2[s.st]) == 0 {
				dist = s.rep[2]
			} else {
				dist = s.rep[3]
				s.rep[3] = s.rep[2]
			}
			s.rep[2] = s.rep[1]
		}
		s.rep[1] = s.rep[0]
		s.rep[0] = dist
	}
	s.pending = s.repLen.decode(r, posState)
	s.st = after(s.st, 8, 11)
}

// literal decodes one byte. have is the size of the history.
func (d *Decoder) literal(pos int, done uint32, have int) byte {
	s := &d.lz
	prev := byte(0)
	if have > 0 {
		prev = d.back(pos, 1)
	}
	ctx := (done&s.lpMask)<<s.lc | uint32(prev)>>(8-s.lc)
	p := s.literal[ctx*0x300:][:0x300]
	st := s.st
	switch {
	case st < 4:
		s.st = 0
	case st < 10:
		s.st = st - 3
	default:
		s.st = st - 6
	}
	// A state past 6 comes after a match, whose distance was checked; but a
	// dictionary may have been reset since without the state.
	if st < 7 || int64(s.rep[0]) >= int64(have) {
		return byte(d.rc.tree(p, 8))
	}
	return d.rc.matched(p, d.back(pos, int(s.rep[0])+1))
}

// back gives the byte n places before pos.
func (d *Decoder) back(pos, n int) byte {
	pos -= n
	if pos < 0 {
		pos += len(d.dict)
	}
	return d.dict[pos]
}
