// Package model has the arithmetic coder of the delta format and its adaptive
// models: probabilities, integers, flags, bytes and words. Each model is code
// that runs in both directions, so the encoder and the decoder cannot differ.
//
// It knows nothing about files and deltas. Every constant, context and hash here is
// part of the format.
package model

import (
	"math"
	"math/bits"
)

// A Coder is a binary arithmetic coder (the carry-less range coder of lpaq) that
// works in both directions: Code writes the bit it is given, or returns the bit
// it reads. So each model is written once, and cannot differ between the encoder
// and the decoder.
//
// If decoding runs past the end of its input, the Coder reads zeros and sets Short.
// What it returns then is noise. The caller bounds it, and refuses it at the end of
// the frame.
type Coder struct {
	Encoding bool // it writes; otherwise it reads
	lo, hi   uint32
	x        uint32
	in       []byte
	pos      int
	Short    bool // decoding: the input ended too early
	out      []byte
	Price    bool    // encoding: add up what bits cost
	Bits     float64 // what they cost since the Coder was made
	Coded    int64   // encoding: how many bits were coded since then
}

const probBits = 16

// Code codes one bit, which is 1 with the probability p/65536; 0 < p < 65536.
func (c *Coder) Code(p uint32, bit int) int {
	if c.Encoding {
		c.encode(p, bit)
		return bit
	}
	bit = 0
	if mid := c.split(p); c.x <= mid {
		c.hi, bit = mid, 1
	} else {
		c.lo = mid + 1
	}
	for (c.lo^c.hi)>>24 == 0 {
		c.x = c.x<<8 | uint32(c.next())
		c.lo, c.hi = c.lo<<8, c.hi<<8|255
	}
	return bit
}

func (c *Coder) encode(p uint32, bit int) {
	c.Coded++
	if mid := c.split(p); bit != 0 {
		c.hi = mid
	} else {
		c.lo = mid + 1
	}
	if c.Price {
		c.pay(p, bit)
	}
	for (c.lo^c.hi)>>24 == 0 {
		c.out = append(c.out, byte(c.hi>>24))
		c.lo, c.hi = c.lo<<8, c.hi<<8|255
	}
}

// split returns the last place of the interval's part that stands for a 1.
func (c *Coder) split(p uint32) uint32 {
	return c.lo + uint32(uint64(c.hi-c.lo)*uint64(p)>>probBits)
}

// pay adds what a bit costs that is 1 with the probability p/65536.
func (c *Coder) pay(p uint32, bit int) {
	if bit == 0 {
		p = 1<<probBits - p
	}
	c.Bits += probBits - math.Log2(float64(p))
}

func (c *Coder) next() byte {
	if c.pos < len(c.in) {
		c.pos++
		return c.in[c.pos-1]
	}
	c.pos++
	if c.pos > len(c.in)+maxMissing {
		c.Short = true
	}
	return 0
}

// maxMissing is how many bytes may be missing at the end of a frame. The decoder reads
// readAhead bytes ahead of the last bit, and the encoder leaves out as many zeros.
const (
	maxMissing = 2 * readAhead
	readAhead  = 4
)

// Start begins a frame: with the coded bytes when decoding.
func (c *Coder) Start(in []byte) {
	c.lo, c.hi, c.in, c.pos, c.Short = 0, 1<<32-1, in, 0, false
	c.out = c.out[:0]
	if !c.Encoding {
		c.x = 0
		for range readAhead {
			c.x = c.x<<8 | uint32(c.next())
		}
	}
}

// Finish ends a frame when encoding and returns its bytes, which are valid until
// Start. The decoder pads with zeros, so it writes only the bytes that determine the
// interval, and leaves out zeros at the end while the decoder still accepts the frame.
func (c *Coder) Finish() []byte {
	least := len(c.out) + readAhead - maxMissing
	if c.lo > 0 {
		// Find the shortest prefix that, padded with zeros, lies in [lo, hi].
		for n := 1; n <= 4; n++ {
			s := uint(32 - 8*n)
			v := (uint64(c.lo) + 1<<s - 1) >> s << s
			if v <= uint64(c.hi) {
				for i := range n {
					c.out = append(c.out, byte(v>>(24-8*uint(i))))
				}
				break
			}
		}
	}
	for len(c.out) > max(0, least) && c.out[len(c.out)-1] == 0 {
		c.out = c.out[:len(c.out)-1]
	}
	return c.out
}

// Prob is an adaptive probability of a 1. It has 22 bits of probability, and a count
// that slows down the adaptation as it grows.
type Prob uint32

// FreshProb is a probability of one half that has seen nothing.
const FreshProb Prob = 1 << 31

// rates[n] is 65536/(n+1.5).
var rates [256]uint32

func init() {
	for n := range rates {
		rates[n] = uint32(65536 * 2 / (2*n + 3))
	}
}

func (p Prob) p16() uint32 {
	v := uint32(p) >> 16
	return min(max(v, 8), 65536-8)
}

// update moves p towards bit, by at least one part in limit+1.5.
func (p *Prob) update(bit int, limit uint32) {
	n := uint32(*p) & 1023
	v := uint32(*p) >> 10
	r := rates[n]
	if bit != 0 {
		v += uint32((uint64(1<<22-1-v) * uint64(r)) >> 16)
	} else {
		v -= uint32((uint64(v) * uint64(r)) >> 16)
	}
	if n < limit {
		n++
	}
	*p = Prob(v<<10 | n)
}

// quick is the limit of probabilities that are used without mixing.
const quick = 30

// Bit codes a bit with one adaptive probability, which was FreshProb at first.
func (c *Coder) Bit(p *Prob, bit int) int {
	bit = c.Code(p.p16(), bit)
	p.update(bit, quick)
	return bit
}

// Flag codes a bool with one adaptive probability.
func (c *Coder) Flag(p *Prob, b bool) bool {
	v := 0
	if b {
		v = 1
	}
	return c.Bit(p, v) != 0
}

// FreshProbs returns n probabilities of one half.
func FreshProbs(n int) []Prob {
	p := make([]Prob, n)
	for i := range p {
		p[i] = FreshProb
	}
	return p
}

// Tree codes a symbol of n bits, high bit first, with 1<<n probabilities.
func (c *Coder) Tree(p []Prob, n, sym int) int {
	at := 1
	for i := n - 1; i >= 0; i-- {
		at = at<<1 | c.Bit(&p[at], sym>>i&1)
	}
	return at - 1<<n
}

// Raw codes n bits without a model.
func (c *Coder) Raw(n int, v uint64) (got uint64) {
	for i := n - 1; i >= 0; i-- {
		got = got<<1 | uint64(c.Code(1<<15, int(v>>i&1)))
	}
	return got
}

// A UintModel models non-negative numbers: their bit length in a tree, then the
// bits below the highest, the first three of them in a context of the length.
type UintModel struct {
	size [128]Prob
	mant [64][8]Prob
	low  [64]Prob
}

// NewUintModel returns an untrained UintModel.
func NewUintModel() *UintModel {
	n := new(UintModel)
	for i := range n.size {
		n.size[i] = FreshProb
	}
	for i := range n.mant {
		for j := range n.mant[i] {
			n.mant[i][j] = FreshProb
		}
		n.low[i] = FreshProb
	}
	return n
}

// NewUintModels returns n of them.
func NewUintModels(n int) []*UintModel {
	s := make([]*UintModel, n)
	for i := range s {
		s[i] = NewUintModel()
	}
	return s
}

// Len returns how many bytes were written since Start.
func (c *Coder) Len() int { return len(c.out) }

// Uint codes v < 1<<63.
func (c *Coder) Uint(n *UintModel, v uint64) uint64 {
	l := c.Tree(n.size[:], 6, bits.Len64(v)&63)
	if l <= 1 {
		return uint64(l)
	}
	got := uint64(1)
	at := 1
	for i := l - 2; i >= 0; i-- {
		b := int(v >> i & 1)
		switch {
		case at < 8:
			b = c.Bit(&n.mant[l][at], b)
			at = at<<1 | b
		case i < 2:
			b = c.Bit(&n.low[i], b)
		default:
			b = c.Code(1<<15, b)
		}
		got = got<<1 | uint64(b)
	}
	return got
}

// Int codes v, of magnitude below 1<<62, folded to a non-negative number.
func (c *Coder) Int(n *UintModel, v int64) int64 {
	u := c.Uint(n, uint64(v)<<1^uint64(v>>63))
	return int64(u>>1) ^ -int64(u&1)
}
