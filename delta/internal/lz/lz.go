// Package lz decodes literals in bulk: matches with earlier bytes, as LZ77 finds
// them, and bytes, as a sequence of bits in a range coder with adaptive
// probabilities. The kinds of matches, and how they are coded, are those of LZMA. The
// bytes between matches are predicted by several contexts, whose predictions are
// mixed. Package parse finds the matches.
//
// Its input may be hostile. Each match has a length and lies in the window, and each
// symbol gives at least one byte, so the work is bounded by the bytes that are asked
// for.
package lz

import "math/bits"

const (
	// Window is how far back a match may lie in what the decoder holds in memory.
	Window = 1 << 22
	// FarWindow is how far back one may lie if the decoder has a file for the rest.
	FarWindow = 1 << 26
	// MinMatch and MaxMatch are the lengths of a match, except of one byte at the
	// last distance.
	MinMatch, MaxMatch = 2, 273
	// MaxPiece is the most bytes of a piece.
	MaxPiece = 64 << 10
	// Alignment is what the place of a file in the window is a multiple of.
	Alignment = 16
	// NumClasses is the number of classes of bytes.
	NumClasses = 16
)

// A Prob is the probability of a 0, out of 65536: the mean of one that adapts
// quickly and one that adapts slowly.
type Prob struct{ quick, slow uint16 }

const (
	quickShift = 4
	slowShift  = 7
	least      = 64 // neither becomes smaller
	// ProbBits is the precision of a probability.
	ProbBits = 16
)

// Zero returns the probability of a 0. It is never 0 or 65536.
func (p *Prob) Zero() uint32 { return (uint32(p.quick) + uint32(p.slow)) >> 1 }

// Learn adapts the probability to a bit.
func (p *Prob) Learn(bit uint32) { p.move(bit - 1) }

// move adapts it to a 0 if zero is all ones, otherwise to a 1.
func (p *Prob) move(zero uint32) {
	q, s := int32(p.quick), int32(p.slow)
	to := int32(least + zero&(65535-least))
	p.quick = uint16(q + (to-q)>>quickShift)
	p.slow = uint16(s + (to-s)>>slowShift)
}

// Lengths is the model of lengths of matches.
type Lengths struct {
	Choice [2]Prob
	Low    [4][8]Prob // by the place modulo 4
	Mid    [4][8]Prob
	High   [256]Prob
}

// Model has all probabilities, and what they depend on.
type Model struct {
	State uint32    // which kinds of symbols came last, 0 to 11
	Rep   [4]uint32 // the last distances
	Pos   uint32    // bytes so far, modulo 1<<32

	Stored           Prob // a piece has no matches and no contexts
	Match, ShortRep  [16][4]Prob
	AnyRep           [16]Prob
	Rep0, Rep1, Rep2 [16]Prob
	Slot             [4][64]Prob
	Middle           [16][32]Prob // by slot: the low bits of distances
	Align            [16]Prob
	New, Old         Lengths   // of new distances, and of repeated ones
	Literal          *Literals // predicts bytes, unless Sums does
	Sums             *Sums
}

// Init prepares a model. Either Sums or Literals predict its bytes.
func (m *Model) Init(sums bool) {
	m.Rep = [4]uint32{1, 1, 1, 1}
	m.Stored = half
	fill := func(p []Prob) {
		for i := range p {
			p[i] = half
		}
	}
	for i := range m.Match {
		fill(m.Match[i][:])
		fill(m.ShortRep[i][:])
		fill(m.Middle[i][:])
	}
	for i := range m.Slot {
		fill(m.Slot[i][:])
	}
	for _, p := range [][]Prob{m.AnyRep[:], m.Rep0[:], m.Rep1[:], m.Rep2[:], m.Align[:]} {
		fill(p)
	}
	for _, l := range []*Lengths{&m.New, &m.Old} {
		fill(l.Choice[:])
		fill(l.High[:])
		for i := range l.Low {
			fill(l.Low[i][:])
			fill(l.Mid[i][:])
		}
	}
	if sums {
		makeZeroOf()
		m.Sums = new(Sums)
		return
	}
	m.Literal = new(Literals)
	m.Literal.init()
}

var half = Prob{1 << 15, 1 << 15}

// The states after a symbol.
var (
	AfterLiteral  = [16]uint32{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 4, 5}
	AfterMatch    = [16]uint32{7, 7, 7, 7, 7, 7, 7, 10, 10, 10, 10, 10}
	AfterRep      = [16]uint32{8, 8, 8, 8, 8, 8, 8, 11, 11, 11, 11, 11}
	AfterShortRep = [16]uint32{9, 9, 9, 9, 9, 9, 9, 11, 11, 11, 11, 11}
)

// SlotOf returns the slot of a distance less one: its highest two bits and their
// place.
func SlotOf(d uint32) uint32 {
	if d < 4 {
		return d
	}
	n := uint32(bits.Len32(d)) - 1
	return n<<1 | d>>(n-1)&1
}

// FirstFar is the first slot whose distances are coded with bits of even
// probability.
const FirstFar = 14
