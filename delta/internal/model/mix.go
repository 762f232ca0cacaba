package model

import (
	"sync"

	"github.com/mender-app/mender-app/delta/internal/logistic"
)

// Logistic mixing: several models each predict the next bit, and a small online
// learner weighs their predictions (as in the PAQ family of compressors). All of it
// is integer arithmetic, so that every machine computes the same.

const (
	maxInputs = 7
	stretchN  = logistic.N

	// An index below 8 that is masked needs no check of an array of that size.
	orders    = 8
	orderMask = orders - 1
)

// squashTab is 65536/(1+e^(-x/256)) of x-2048, and stretchTab its inverse, of p>>4.
var (
	squashTab  [stretchN]uint16
	stretchTab [stretchN]int16
)

// makeTables makes them for the first mixer. On a small processor they take longer than
// the start of a program that has no delta to decode.
var makeTables = sync.OnceFunc(func() { squashTab, stretchTab = logistic.Tables(16) })

// mixer weighs its inputs by the mean of two sets of weights, which are chosen
// independently. Then it refines what comes out: it learns how often that was right.
type mixer struct {
	in         inputs // stretched; unused ones are 0
	sets       []inputs
	more       int // where the second sets begin
	set, other int // in use
	p          uint32
	curves     []uint16 // by the choice of a curve, the probability at each of its points
	near       int      // the point that is next to the last probability
}

// inputs has an int32 for each input of a mixer; weights have 16 fractional bits. The
// last is not used: it keeps each within a line of the processor's caches.
type inputs [orders]int32

// A curve has a point for each 1<<pointBits of the stretched probability, and one at
// the end.
const (
	pointBits = 7
	points    = stretchN>>pointBits + 1
	curveRate = 5
)

// sureError is the error, out of 4096, below which a mixer learns nothing. It is
// the largest value that does not make the deltas of real images larger.
const sureError = 64

// mixRate is how quickly mixers learn. Of the values from 6 to 36 it made the
// deltas of four pairs of images smallest.
const mixRate = 26

// newMixer makes a mixer of n inputs. sets and others are the numbers of the two
// kinds of sets of weights, curves that of the curves.
func newMixer(n, sets, others, curves int) *mixer {
	makeTables()
	m := &mixer{sets: make([]inputs, sets+others), more: sets, curves: make([]uint16, curves*points)}
	for i := range m.sets {
		for k := range n {
			m.sets[i][k] = int32(1<<16) * 2 / int32(n+2)
		}
	}
	for i := range m.curves {
		m.curves[i] = squashTab[min(i%points<<pointBits, stretchN-1)]
	}
	return m
}

// mix returns the probability of a 1, out of 65536, for the inputs.
func (m *mixer) mix(set, other, curve int) uint32 {
	m.set, m.other = set, m.more+other
	w, v, in := &m.sets[m.set], &m.sets[m.other], &m.in
	// A loop here takes two percent of the time of decoding, and a product of 64 bits
	// several instructions on arm/v7. A mean weight below 128 does not overflow.
	dot := (w[0]+v[0])>>6*in[0] +
		(w[1]+v[1])>>6*in[1] +
		(w[2]+v[2])>>6*in[2] +
		(w[3]+v[3])>>6*in[3] +
		(w[4]+v[4])>>6*in[4] +
		(w[5]+v[5])>>6*in[5] +
		(w[6]+v[6])>>6*in[6]
	x := uint32(min(max(dot>>11, -stretchN/2+1), stretchN/2-1) + stretchN/2)
	m.p = uint32(squashTab[x&(stretchN-1)])
	k := curve*points + int(x>>pointBits)
	c := m.curves[k : k+2 : k+2]
	part := x & (1<<pointBits - 1)
	m.near = k + int(part>>(pointBits-1))
	refined := (uint32(c[0])*(1<<pointBits-part) + uint32(c[1])*part) >> pointBits
	return (m.p + refined) / 2
}

// learn trains the mixer with the actual bit.
func (m *mixer) learn(bit int) {
	c := &m.curves[m.near]
	*c += uint16((int32(-bit)&0xffff - int32(*c)) >> curveRate)
	err := (int32(bit)<<16 - int32(m.p)) >> 4
	if -sureError < err && err < sureError {
		return
	}
	err *= mixRate
	w, v := &m.sets[m.set], &m.sets[m.other]
	in := &m.in
	d0 := (in[0]*err + 1<<13) >> 14
	d1 := (in[1]*err + 1<<13) >> 14
	d2 := (in[2]*err + 1<<13) >> 14
	d3 := (in[3]*err + 1<<13) >> 14
	d4 := (in[4]*err + 1<<13) >> 14
	d5 := (in[5]*err + 1<<13) >> 14
	d6 := (in[6]*err + 1<<13) >> 14
	w[0], w[1], w[2], w[3], w[4], w[5], w[6] = w[0]+d0, w[1]+d1, w[2]+d2, w[3]+d3, w[4]+d4, w[5]+d5, w[6]+d6
	v[0], v[1], v[2], v[3], v[4], v[5], v[6] = v[0]+d0, v[1]+d1, v[2]+d2, v[3]+d3, v[4]+d4, v[5]+d5, v[6]+d6
}

// A FlagModel codes bits of one kind, which several contexts help to predict.
type FlagModel struct {
	mix   *mixer
	n     int
	size  uint32 // of the table of each context
	shift uint   // from a hash to its place there
	tab   []Prob
	limit uint32
}

// NewFlagModel makes a model of n contexts with 1<<bits probabilities each. They
// adapt by at least one part in limit. sets and others are the numbers of the two
// kinds of sets of weights.
func NewFlagModel(n int, bits uint, limit uint32, sets, others int) *FlagModel {
	return &FlagModel{mix: newMixer(n, sets, others, sets), n: n, size: 1 << bits, shift: 32 - bits, tab: FreshProbs(n << bits), limit: limit}
}

// Code codes a bit in its contexts.
func (m *FlagModel) Code(c *Coder, contexts []uint32, set, other, bit int) int {
	var slots [orders]*Prob
	in := &m.mix.in
	at, shift := uint32(0), m.shift&31
	for i, x := range contexts[:m.n] {
		slots[i&orderMask] = &m.tab[at+x*0x9e3779b1>>shift]
		at += m.size
	}
	for i, p := range slots[:m.n] {
		in[i&orderMask] = int32(stretchTab[*p>>20])
	}
	bit = c.Code(m.mix.mix(set, other, set), bit)
	m.mix.learn(bit)
	for _, p := range slots[:m.n] {
		p.update(bit, m.limit)
	}
	return bit
}
