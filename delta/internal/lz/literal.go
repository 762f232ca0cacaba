package lz

import (
	"sync"

	"github.com/mender-app/mender-app/delta/internal/logistic"
)

// Literals predicts bytes. Each of several contexts selects probabilities. For each
// bit a mixer weighs what they predict (as in the PAQ family of compressors). All of
// it is integer arithmetic, so that every machine computes the same.
type Literals struct {
	tab     [inputs][1 << rowBits][16]cell
	weights [NumClasses * 4]weightSet
}

const (
	inputs  = 3
	rowBits = 12
)

// A cell is a probability of a 1 out of 4096, and in the low four bits how often it
// was adapted, up to 15.
type cell = uint16

type weights [inputs]int32 // 16 fractional bits

// A weightSet has weights by the bits of a byte that are known: first those of a byte
// that is not as expected, then those that the expected byte has a 0 after, and a 1.
type weightSet [32]weights

// A Context is what a byte is predicted from.
type Context struct {
	Last     byte   // the byte before it
	Expected byte   // the byte at the last distance
	Class    uint32 // what kind of bytes it is among
	State    uint32 // of the model
	Pos      uint32
}

func (l *Literals) init() {
	makeTables()
	for i := range l.tab {
		for k := range l.tab[i] {
			for c := range l.tab[i][k] {
				l.tab[i][k][c] = 1 << 15
			}
		}
	}
	for i := range l.weights {
		for k := range l.weights[i] {
			l.weights[i][k] = weights{1 << 16 * 13 / 32, 1 << 16 * 13 / 32, 1 << 16 * 13 / 32}
		}
	}
}

// Mixing is the state of coding one byte.
type Mixing struct {
	l      *Literals
	hashes [inputs]uint32
	rows   [inputs]*[16]cell
	in     [inputs]int32
	w      *weights
	p      int32
	k      uint32 // the cell of each row
	want   uint32 // the expected byte, with bit 8 set
	set    *weightSet
}

// rates are how much of an error a cell adapts by, out of 65536, by its count.
var rates = func() (t [16]int32) {
	for i := range t {
		t[i] = int32(65536 * 2 / (2*i + 3))
	}
	t[15] = 65536 / cellLimit
	return t
}()

// next is the count after a count.
var next = [16]cell{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15}

const cellLimit = 24

// mixRate is how quickly the weights adapt.
const mixRate = 4

// set returns the weights for a byte.
func (l *Literals) set(c *Context) *weightSet {
	after := uint32(0) // a literal, a new match, or another
	if c.State >= 7 {
		after = 1
		if c.State >= 10 {
			after = 2
		}
	}
	return &l.weights[(c.Class<<2|after)%uint32(len(l.weights))]
}

// row returns the row of a context for half a byte.
func (l *Literals) row(i, h uint32) *[16]cell { return &l.tab[i][rowOf(h)] }

// rowOf returns the index of a row, less than 1<<rowBits.
func rowOf(h uint32) uint32 {
	h *= 0x9e3779b1
	return (h ^ h>>15) * 0x85ebca6b >> (32 - rowBits)
}

// salt tells the second half of a byte from the first, by the bits of that.
const salt = 0x2f0b4c47

// mixed returns the probability of a 1 out of 65536.
func mixed(w *weights, s0, s1, s2 int32) uint32 {
	dot := int64(w[0])*int64(s0) + int64(w[1])*int64(s1) + int64(w[2])*int64(s2)
	d := min(max(dot>>16, -stretchN/2+1), stretchN/2-1)
	return uint32(squashTab[(d+stretchN/2)&(stretchN-1)])
}

// Begin starts a byte.
func (x *Mixing) Begin(l *Literals, c *Context) {
	x.l = l
	x.hashes = [inputs]uint32{uint32(c.Last), c.Class<<2 | c.Pos&3, uint32(c.Expected) | c.Class<<8}
	x.find(0)
	x.want = uint32(c.Expected) | 256
	x.set = l.set(c)
}

// find finds the rows for half a byte.
func (x *Mixing) find(salt uint32) {
	for i := range x.rows {
		x.rows[i] = x.l.row(uint32(i), x.hashes[i]+salt)
	}
}

// One returns the probability of a 1 out of 65536. node has the bits so far, after
// a 1, and done is their number.
func (x *Mixing) One(node, done uint32) uint32 {
	k := node
	if done >= 4 {
		if done == 4 {
			x.find(node * salt)
		}
		k = node&(1<<(done&3)-1) | 1<<(done&3)
	}
	k &= 15
	x.k = k
	// Whether the expected byte agrees so far, and with which bit it goes on.
	if x.want>>((8-done)&31) == node {
		done += 8 + x.want>>((7-done)&31)&1*8
	}
	w := &x.set[done&31]
	x.w = w
	s0 := int32(stretchTab[x.rows[0][k]>>4])
	s1 := int32(stretchTab[x.rows[1][k]>>4])
	s2 := int32(stretchTab[x.rows[2][k]>>4])
	x.in = [inputs]int32{s0, s1, s2}
	p := mixed(w, s0, s1, s2)
	x.p = int32(p)
	return p
}

// Learn adapts to the bit that followed.
func (x *Mixing) Learn(bit uint32) {
	err := (int32(bit)<<16 - x.p) >> 4 * mixRate
	w, k := x.w, x.k&15
	w[0] += (x.in[0]*err + 1<<13) >> 14
	w[1] += (x.in[1]*err + 1<<13) >> 14
	w[2] += (x.in[2]*err + 1<<13) >> 14
	to := int32(-bit) & 4095
	adapt(&x.rows[0][k], to)
	adapt(&x.rows[1][k], to)
	adapt(&x.rows[2][k], to)
}

// adapt moves a cell's probability to 0 or 4095.
func adapt(c *cell, to int32) {
	v := *c
	n := v & 15
	p := int32(v >> 4)
	p += ((to-p)*rates[n] + 1<<15) >> 16
	*c = cell(p)<<4 | next[n]
}

const stretchN = logistic.N

// squashTab is 65536/(1+e^(-x/256)) of x-2048, and stretchTab its inverse, of p>>4.
var (
	squashTab  [stretchN]uint16
	stretchTab [stretchN]int16
)

// makeTables makes them when there are literals to code.
var makeTables = sync.OnceFunc(func() { squashTab, stretchTab = logistic.Tables(32) })
