package parse

import "github.com/mender-app/mender-app/delta/internal/lz"

// coder is the range coder's other side.
type coder struct {
	low   uint64
	rng   uint32
	out   []byte
	held  int  // how many bytes may still get a carry: one, then 0xff
	first byte // of them
	begun bool

	literals int64 // bytes that were coded by themselves
}

func (c *coder) begin() { *c = coder{rng: 1<<32 - 1, out: c.out[:0], literals: c.literals} }

func (c *coder) bit(p *lz.Prob, bit uint32) {
	bound := c.rng >> lz.ProbBits * p.Zero()
	c.split(bound, bit)
	p.Learn(bit)
}

func (c *coder) split(bound, bit uint32) {
	if bit == 0 {
		c.rng = bound
	} else {
		c.low += uint64(bound)
		c.rng -= bound
	}
	for c.rng < 1<<24 {
		c.rng <<= 8
		c.shift()
	}
}

// shift moves a byte out. It is held while a carry could reach it.
func (c *coder) shift() {
	if c.low < 0xff000000 || c.low>>32 != 0 {
		carry := byte(c.low >> 32)
		if c.begun {
			c.out = append(c.out, c.first+carry)
		}
		for ; c.held > 0; c.held-- {
			c.out = append(c.out, 0xff+carry)
		}
		c.first, c.begun = byte(c.low>>24), true
	} else {
		c.held++
	}
	c.low = c.low & 0xffffff << 8
}

// mostMissing is how many zeros the decoder takes for granted at the end of a part.
const mostMissing = 48

// end returns the bytes. The decoder takes zeros for those that are missing. A part that
// stores zeros may end with any number of them.
func (c *coder) end() []byte {
	for range 5 {
		c.shift()
	}
	b := c.out
	for n := 0; n < mostMissing && len(b) > 0 && b[len(b)-1] == 0; n++ {
		b = b[:len(b)-1]
	}
	return b
}

func (c *coder) tree(p []lz.Prob, n, v uint32) {
	node := uint32(1)
	for i := n; i > 0; i-- {
		b := v >> (i - 1) & 1
		c.bit(&p[node], b)
		node = node<<1 | b
	}
}

func (c *coder) reverse(p []lz.Prob, n, v uint32) {
	node := uint32(1)
	for i := range n {
		b := v >> i & 1
		c.bit(&p[node], b)
		node = node<<1 | b
	}
}

func (c *coder) direct(n, v uint32) {
	for i := n; i > 0; i-- {
		c.rng >>= 1
		if v>>(i-1)&1 != 0 {
			c.low += uint64(c.rng)
		}
		for c.rng < 1<<24 {
			c.rng <<= 8
			c.shift()
		}
	}
}

func (c *coder) length(l *lz.Lengths, at, n uint32) {
	n -= lz.MinMatch
	switch {
	case n < 8:
		c.bit(&l.Choice[0], 0)
		c.tree(l.Low[at][:], 3, n)
	case n < 16:
		c.bit(&l.Choice[0], 1)
		c.bit(&l.Choice[1], 0)
		c.tree(l.Mid[at][:], 3, n-8)
	default:
		c.bit(&l.Choice[0], 1)
		c.bit(&l.Choice[1], 1)
		c.tree(l.High[:], 8, n-16)
	}
}

func (c *coder) distance(m *lz.Model, length, dist uint32) {
	d := dist - 1
	slot := lz.SlotOf(d)
	c.tree(m.Slot[min(length-lz.MinMatch, 3)][:], 6, slot)
	if slot < 4 {
		return
	}
	n := slot>>1 - 1
	low := d & (1<<n - 1)
	if slot < lz.FirstFar {
		c.reverse(m.Middle[slot][:], n, low)
		return
	}
	c.direct(n-4, low>>4)
	c.reverse(m.Align[:], 4, low&15)
}

func (c *coder) literal(x *lz.Mixing, v byte) {
	c.literals++
	node := uint32(1)
	for done := range uint32(8) {
		bound := c.rng >> lz.ProbBits * (65536 - x.One(node, done))
		b := uint32(v>>(7-done)) & 1
		c.split(bound, b)
		x.Learn(b)
		node = node<<1 | b
	}
}

func (c *coder) sum(s *lz.Sums, x *lz.Context, v byte) {
	c.literals++
	s.Code(x, v, func(zero, bit uint32) { c.split(c.rng>>lz.ProbBits*zero, bit) })
}
