package lz

// inSize is a power of two, so that no place in the input needs to be checked.
const inSize = 16 << 10

// A reader is the range decoder. It is passed by value, so that a processor has it in
// registers from bit to bit.
type reader struct {
	rng, code uint32
	at        uint32 // what follows in the input
}

// shift takes input until there are 24 bits.
func (r reader) shift(in *[inSize]byte) reader {
	for r.rng < 1<<24 {
		r.rng <<= 8
		r.code = r.code<<8 | uint32(in[r.at%inSize])
		r.at++
	}
	return r
}

// bit decodes a bit.
func (r reader) bit(in *[inSize]byte, p *Prob) (reader, uint32) {
	bound := r.rng >> ProbBits * p.Zero()
	if r.code < bound {
		r.rng = bound
		p.Learn(0)
		return r.shift(in), 0
	}
	r.code -= bound
	r.rng -= bound
	p.Learn(1)
	return r.shift(in), 1
}

// split divides the range, and returns all ones if a 0 follows, otherwise zero. Which
// bits follow is often hard to foresee, for a processor as well, so that masks are
// quicker than branches.
func (r reader) split(bound uint32) (reader, uint32) {
	zero := uint32((uint64(r.code) - uint64(bound)) >> 32)
	r.rng = bound&zero | (r.rng-bound)&^zero
	r.code -= bound &^ zero
	return r, zero
}

// tree decodes as many bits as the tree has, the highest first.
func (r reader) tree(in *[inSize]byte, p []Prob) (reader, uint32) {
	v := uint32(1)
	var zero uint32
	for v < uint32(len(p)) {
		q := &p[v]
		r, zero = r.split(r.rng >> ProbBits * q.Zero())
		v = v<<1 + 1 + zero
		q.move(zero)
		r = r.shift(in)
	}
	return r, v - uint32(len(p))
}

// reverse decodes n bits, the lowest first.
func (r reader) reverse(in *[inSize]byte, p []Prob, n uint32) (reader, uint32) {
	v, node := uint32(0), uint32(1)
	var zero uint32
	for i := range n {
		q := &p[node]
		r, zero = r.split(r.rng >> ProbBits * q.Zero())
		node = node<<1 + 1 + zero
		v |= (1 + zero) << i
		q.move(zero)
		r = r.shift(in)
	}
	return r, v
}

// direct decodes n bits of even probability.
func (r reader) direct(in *[inSize]byte, n uint32) (reader, uint32) {
	v := uint32(0)
	var zero uint32
	for range n {
		half := r.rng >> 1
		zero = uint32((uint64(r.code) - uint64(half)) >> 32)
		r.rng = half
		r.code -= half &^ zero
		v = v<<1 + 1 + zero
		r = r.shift(in)
	}
	return r, v
}

// literal decodes a byte between matches. It does what Mixing does, without its state
// in memory.
func (r reader) literal(in *[inSize]byte, l *Literals, c *Context) (reader, byte) {
	h0, h1, h2 := uint32(c.Last), c.Class<<2|c.Pos&3, uint32(c.Expected)|c.Class<<8
	weights := l.set(c)
	want := uint32(c.Expected)
	agrees := ^uint32(0) // while the byte is as expected
	node, half := uint32(1), uint32(0)
	for done := uint32(0); done < 8; {
		r0, r1, r2 := l.row(0, h0+half), l.row(1, h1+half), l.row(2, h2+half)
		k := uint32(1)
		for range 4 {
			next := want >> 7 & 1
			w := &weights[(done+(8+next<<3)&agrees)&31]
			c0, c1, c2 := &r0[k&15], &r1[k&15], &r2[k&15]
			s0, s1, s2 := int32(stretchTab[*c0>>4]), int32(stretchTab[*c1>>4]), int32(stretchTab[*c2>>4])
			p := mixed(w, s0, s1, s2)
			var zero uint32
			r, zero = r.split(r.rng >> ProbBits * (65536 - p))
			bit := 1 + zero
			k = k<<1 + bit
			agrees &= next ^ bit - 1
			want <<= 1
			done++
			r = r.shift(in)
			err := (int32(bit)<<16 - int32(p)) >> 4 * mixRate
			w[0] += (s0*err + 1<<13) >> 14
			w[1] += (s1*err + 1<<13) >> 14
			w[2] += (s2*err + 1<<13) >> 14
			to := int32(^zero & 4095)
			adapt(c0, to)
			adapt(c1, to)
			adapt(c2, to)
		}
		node = node<<4 | k&15
		half = k * salt
	}
	return r, byte(node)
}

// sum decodes a byte between matches that Sums predicts.
func (r reader) sum(in *[inSize]byte, s *Sums, c *Context) (reader, byte) {
	h := s.contexts(c)
	v, half := uint32(0), uint32(0)
	for range 2 {
		r0, r1, r2 := s.row(0, h[0]+half), s.row(1, h[1]+half), s.row(2, h[2]+half)
		k := uint32(1)
		for k < 16 {
			n0, n1, n2 := &r0[k], &r1[k], &r2[k]
			p := zeroOfSum(*n0 + *n1 + *n2)
			var zero uint32
			r, zero = r.split(r.rng >> ProbBits * p)
			k = k<<1 + 1 + zero
			e := step(p, zero)
			*n0 += e
			*n1 += e
			*n2 += e
			r = r.shift(in)
		}
		v = v<<4 | k&15
		half = k * salt
	}
	return r, byte(v)
}
