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
)

// squashTab is 65536/(1+e^(-x/256)) of x-2048, and stretchTab its inverse, of p>>4.
var (
	squashTab  [stretchN]uint16
	stretchTab [stretchN]int16
)

// makeTables makes the tables of this package for the first mixer. On a small processor
// they take longer than the start of a program that has no delta to decode.
var makeTables = sync.OnceFunc(func() {
	squashTab, stretchTab = logistic.Tables(16)
	makeCounts()
})

// mixer weighs its inputs by the mean of two sets of weights, which are chosen
// independently. Then it refines what comes out: it learns how often that was right.
type mixer struct {
	in     inputs // stretched; unused ones are 0
	sets   []inputs
	more   int      // where the second sets begin
	curves []uint16 // by the choice of a curve, the probability at each of its points
}

// inputs has an int32 for each input of a mixer; weights have 16 fractional bits. The
// last is not used: it keeps each within a line of the processor's caches.
type inputs [maxInputs + 1]int32

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

// code codes a bit as the inputs predict it, and learns from it.
func (m *mixer) code(c *Coder, set, other, curve, bit int) int {
	w, v, in := &m.sets[set], &m.sets[m.more+other], &m.in
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
	p := uint32(squashTab[x&(stretchN-1)])
	k := curve*points + int(x>>pointBits)
	near := m.curves[k : k+2 : k+2]
	part := x & (1<<pointBits - 1)
	refined := (uint32(near[0])*(1<<pointBits-part) + uint32(near[1])*part) >> pointBits
	bit = c.Code((p+refined)/2, bit)

	adapt(&near[part>>(pointBits-1)], bit, curveRate)
	err := (int32(bit)<<16 - int32(p)) >> 4
	if -sureError < err && err < sureError {
		return bit
	}
	err *= mixRate
	d0, d1, d2, d3 := (in[0]*err+1<<13)>>14, (in[1]*err+1<<13)>>14, (in[2]*err+1<<13)>>14, (in[3]*err+1<<13)>>14
	d4, d5, d6 := (in[4]*err+1<<13)>>14, (in[5]*err+1<<13)>>14, (in[6]*err+1<<13)>>14
	w[0], w[1], w[2], w[3], w[4], w[5], w[6] = w[0]+d0, w[1]+d1, w[2]+d2, w[3]+d3, w[4]+d4, w[5]+d5, w[6]+d6
	v[0], v[1], v[2], v[3], v[4], v[5], v[6] = v[0]+d0, v[1]+d1, v[2]+d2, v[3]+d3, v[4]+d4, v[5]+d5, v[6]+d6
	return bit
}

// stretch is the stretched probability p/65536.
func stretch(p uint16) int32 { return int32(stretchTab[p>>4]) }

// adapt moves a probability by one part in 1<<rate towards bit.
func adapt(p *uint16, bit int, rate uint) {
	*p += uint16((int32(-bit)&0xffff - int32(*p)) >> (rate & 31))
}
