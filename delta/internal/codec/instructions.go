package codec

import "github.com/mender-app/mender-app/delta/internal/model"

// instructions is what literals know about the code that they are part of. Its bytes
// are coded in units of two bytes (Thumb) or four (A32, A64), the highest byte of each
// first: it has the opcode, which tells most about the others.
type instructions struct {
	unit   int  // 1 for all other bytes, which are coded in order
	second bool // the next unit is the second half of a Thumb instruction
}

// The sets of weights of literals: four each for bytes, Thumb code, and A32 or A64
// code.
const (
	byteSet     = 0
	thumbSet    = 4
	wordSet     = 8
	literalSets = 12
)

// longThumb is the least high byte of the first half of a Thumb instruction of 32 bits.
const longThumb = 0xe8

// begin sets the size of the units of the bytes that follow.
func (c *literalCoder) begin(unit int) { c.among = instructions{unit: unit} }

// model codes bytes that are at pos of their file. Without a coder it only trains
// the model with them.
func (c *literalCoder) model(cd *model.Coder, b []byte, pos int64) {
	for i := range b {
		k := c.ordered(i, len(b), pos)
		at := uint32(pos+int64(k)) & 3
		set := c.contexts(at)
		if cd == nil {
			c.bytes.Learn(b[k])
		} else {
			b[k] = c.bytes.Code(cd, b[k], set, true)
		}
		c.passed(b[k], at)
	}
}

// see shows the model bytes that come before those it codes.
func (c *literalCoder) see(b []byte, pos int64) {
	for i := range b {
		k := c.ordered(i, len(b), pos)
		c.bytes.See(b[k])
		c.passed(b[k], uint32(pos+int64(k)))
	}
}

// ordered returns which of n bytes at pos is the i-th that is coded: each unit, or the
// part of one at either end, is reversed.
func (c *literalCoder) ordered(i, n int, pos int64) int {
	if c.among.unit == 1 {
		return i
	}
	mask := c.among.unit - 1
	begin := i - int(pos+int64(i))&mask
	return max(begin, 0) + min(begin+mask, n-1) - i
}

// passed notes a byte at a place: whether it begins a long Thumb instruction.
func (c *literalCoder) passed(b byte, at uint32) {
	if c.among.unit == 2 && at&1 != 0 {
		c.among.second = !c.among.second && b >= longThumb
	}
}

// contexts sets the contexts of the next byte, whose place modulo 4 is at, and returns
// its set of weights.
func (c *literalCoder) contexts(at uint32) (set int) {
	const k0, k1, k2, k3, k4, k5 = 0x27d4eb2f, 0xc2b2ae35, 0x165667b1, 0x2f0b4c47, 0x3c6ef35f, 0x9e3779b1
	t := c.bytes
	x := &t.Contexts
	c1, c2, c3, c4 := t.At(1), t.At(2), t.At(3), t.At(4)
	switch c.among.unit {
	case 1:
		x[0] = c1 * k0
		x[1] = (c1|c2<<8|at&1<<16)*k1 + 2
		x[2] = (c1|c2<<8|c3<<16)*k2 + 3
		x[3] = (c2|c3<<8|at&1<<16)*k3 + 4
		x[4] = (c4|t.At(8)<<8|at<<16)*k4 + 5
		x[5] = (t.Expected()|at<<9)*k5 + 6
		return byteSet + int(at)
	case 2:
		at &= 1
		if c.among.second {
			at |= 2
		}
		s := (at | 4) << 24
		x[0] = (c1 | s) * k0
		x[5] = (t.Expected()|s)*k5 + 6
		if at&1 != 0 {
			x[1] = (c2|s)*k1 + 2
			x[2] = (c2|c4<<8|s)*k2 + 3
			x[3] = (c1|c2<<8|s)*k3 + 4
			x[4] = (c2|c4<<8|t.At(6)<<16|s)*k4 + 5
		} else {
			x[1] = (c1|c2<<8|s)*k1 + 2
			x[2] = (c1|c3<<8|s)*k2 + 3
			x[3] = (c1|c2<<8|c3<<16|s)*k3 + 4
			x[4] = (c1|c2<<8|c4<<16|s)*k4 + 5
		}
		return thumbSet + int(at)
	}
	s := (at | 8) << 24
	x[0] = (c1 | s) * k0
	x[5] = (t.Expected()|s)*k5 + 6
	switch at {
	case 3: // the last bytes are those of the instruction before, the lowest last
		x[0] = (c4 | s) * k0
		x[1] = (c4|t.At(8)<<8|s)*k1 + 2
		x[2] = (c3|c4<<8|s)*k2 + 3
		x[3] = (c2|c3<<8|c4<<16|s)*k3 + 4
		x[4] = (c4|t.At(8)<<8|t.At(12)<<16|s)*k4 + 5
	case 2:
		x[1] = (c1|c4<<8|s)*k1 + 2
		x[2] = (c1|c3<<8|s)*k2 + 3
		x[3] = (c1|t.At(5)<<8|s)*k3 + 4
		x[4] = (c1|c4<<8|t.At(5)<<16|s)*k4 + 5
	case 1:
		x[1] = (c1|c2<<8|s)*k1 + 2
		x[2] = (c1|c2<<8|c4<<16|s)*k2 + 3
		x[3] = (c2|c4<<8|s)*k3 + 4
		x[4] = (c2|t.At(6)<<8|s)*k4 + 5
	default:
		x[1] = (c1|c2<<8|c3<<16|s)*k1 + 2
		x[2] = (c1|c3<<8|s)*k2 + 3
		x[3] = (c3|c4<<8|s)*k3 + 4
		x[4] = (c2|c3<<8|s)*k4 + 5
	}
	return wordSet + int(at)
}
