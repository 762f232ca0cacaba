package model

import "math/bits"

// A NumberModel models non-negative numbers below 1<<62 in contexts that are mixed:
// their bit length, then the bits below the highest, of which the first three and the
// last two are modelled.
type NumberModel struct {
	flag *FlagModel
	long [64]Prob // lengths of shortSize or more
}

const (
	numberInputs = 5
	sizeBits     = 4
	shortSize    = 1<<sizeBits - 1
	maxSize      = 62
)

// The sets of weights: for the bits of the length, the first and the last ones.
const (
	firstSet   = 1 << sizeBits
	lastSet    = firstSet + 8
	numberSets = lastSet + 2
)

// NewNumberModel returns an untrained NumberModel.
func NewNumberModel() *NumberModel {
	m := &NumberModel{flag: NewFlagModel(numberInputs, 12, numberSets, 1)}
	copy(m.long[:], FreshProbs(len(m.long)))
	return m
}

// Number codes v in three contexts, each below 256.
func (c *Coder) Number(m *NumberModel, v uint64, contexts [3]uint32) uint64 {
	node := uint32(1)
	size := bits.Len64(v)
	for i := sizeBits - 1; i >= 0; i-- {
		node = node<<1 | m.bit(c, node, node, &contexts, min(size, shortSize)>>i&1)
	}
	l := int(node) - 1<<sizeBits
	if l == shortSize {
		l = min(l+c.Tree(m.long[:], 6, max(size-l, 0)), maxSize)
	}
	if l <= 1 {
		return uint64(l)
	}
	got := uint64(1)
	for i := l - 2; i >= 0; i-- {
		b := int(v >> i & 1)
		switch {
		case got < 8:
			b = int(m.bit(c, uint32(l)<<3|uint32(got)|1<<10, firstSet+uint32(got), &contexts, b))
		case i < 2:
			b = int(m.bit(c, uint32(i)|uint32(got&1)<<2|1<<11, lastSet+uint32(i), &contexts, b))
		default:
			b = c.Code(1<<15, b)
		}
		got = got<<1 | uint64(b)
	}
	return got
}

// bit codes a bit of a number; node says which.
func (m *NumberModel) bit(c *Coder, node, set uint32, x *[3]uint32, bit int) uint32 {
	const k1, k2 = 0x85ebca6b, 0xc2b2ae35
	contexts := Contexts{
		node,
		(node<<8|x[0])*k1 + 1,
		(node<<8|x[1])*k1 + 2,
		(node<<8|x[2])*k1 + 3,
		((node<<8|x[1])*k1+x[2])*k2 + x[0],
	}
	return uint32(m.flag.Code(c, &contexts, int(set), 0, bit))
}
