package lz

import (
	"sync"
)

// Sums predicts bytes in less time than Literals. Each of several contexts selects a
// number for each bit, and their sum, to which the logistic function is applied, is the
// probability. An error moves all of them alike. All of it is integer arithmetic, so that
// every machine computes the same.
type Sums struct {
	tab [inputs][1 << rowBits][16]number
}

// A number is a part of a sum, in units of which 2048 are one of the exponent. A sum that
// exceeds it wraps around, which costs bytes, and is the same everywhere.
type number = int16

// numberShift is how quickly numbers adapt to an error out of 65536.
const numberShift = 8

// zeroOf has the probabilities of a 0, out of 65536, by the high bits of a sum.
var zeroOf [1 << 12]uint32

var makeZeroOf = sync.OnceFunc(func() {
	makeTables()
	for i := range zeroOf {
		x := min(max(int32(int16(i<<4))>>3, -stretchN/2+1), stretchN/2-1)
		zeroOf[i] = 65536 - uint32(squashTab[x+stretchN/2])
	}
})

// zeroOfSum returns the probability of a 0, out of 65536.
func zeroOfSum(sum number) uint32 { return zeroOf[uint16(sum)>>4] }

// step returns by how much the numbers move after a bit, all ones for a 0, that had the
// probability.
func step(probability, zero uint32) number {
	return number((int32(probability-zero&65536) + 1<<(numberShift-1)) >> numberShift)
}

// contexts returns what the numbers are selected by.
func (s *Sums) contexts(c *Context) [inputs]uint32 {
	matched := uint32(0) // whether the last symbol was a match
	if c.State >= 7 {
		matched = 1
	}
	return [inputs]uint32{uint32(c.Last) | c.Class<<8, c.Class<<2 | c.Pos&3, uint32(c.Expected) | matched<<12}
}

// row returns the row of a context for half a byte.
func (s *Sums) row(i, h uint32) *[16]number { return &s.tab[i][rowOf(h)] }

// Code hands each bit of a byte to code, with the probability of a 0 out of 65536, and
// adapts to it.
func (s *Sums) Code(c *Context, v byte, code func(zero, bit uint32)) {
	h := s.contexts(c)
	half := uint32(0)
	for range 2 {
		r0, r1, r2 := s.row(0, h[0]+half), s.row(1, h[1]+half), s.row(2, h[2]+half)
		k := uint32(1)
		for k < 16 {
			bit := uint32(v >> 7)
			v <<= 1
			zero := zeroOfSum(r0[k] + r1[k] + r2[k])
			code(zero, bit)
			e := step(zero, bit-1)
			r0[k] += e
			r1[k] += e
			r2[k] += e
			k = k<<1 | bit
		}
		half = k * salt
	}
}

// Cost adds up what each bit of a byte costs, by the probability of what it is, out of
// 4096.
func (s *Sums) Cost(c *Context, v byte, costs *[4096]uint32) (cost uint32) {
	h := s.contexts(c)
	half := uint32(0)
	for range 2 {
		r0, r1, r2 := s.row(0, h[0]+half), s.row(1, h[1]+half), s.row(2, h[2]+half)
		k := uint32(1)
		for k < 16 {
			bit := uint32(v >> 7)
			v <<= 1
			p := zeroOfSum(r0[k] + r1[k] + r2[k])
			if bit != 0 {
				p = 65536 - p
			}
			cost += costs[p>>4&4095]
			k = k<<1 | bit
		}
		half = k * salt
	}
	return cost
}
