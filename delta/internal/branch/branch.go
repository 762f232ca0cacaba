// Package branch converts parts of executables to a form that repeats more often,
// and back: the places that branches go to, instead of how far away they are, and
// the steps from one entry of a table to the next. Any bytes can be converted, and
// come back as they were.
package branch

import "encoding/binary"

// Kind is what a part consists of. The values are those of the format.
type Kind uint8

const (
	None        Kind = iota
	A32              // Arm code
	Thumb            // T32 code
	A64              // Arm's 64-bit code
	X86              // 64-bit code
	Pairs            // a table of pairs of 32-bit words
	Triples          // a table of triples of 64-bit words
	GoFunctions      // Go's table of functions, and their records
	GoSequences      // what these point to
	NumKinds
)

var le = binary.LittleEndian

// A Converter converts a part, a piece at a time. The zero Converter leaves bytes as
// they are.
type Converter struct {
	Kind      Kind
	functions functions
	sequences sequences
}

// Begin begins a part of size bytes.
func (c *Converter) Begin(kind Kind, size int64) {
	*c = Converter{Kind: kind, functions: functions{size: size}}
}

// Convert converts b, the next bytes of the part, which are at pos of the file, or the
// other way if back is set. What lies across the ends of b stays as it is.
func (c *Converter) Convert(b []byte, pos uint32, back bool) {
	switch c.Kind {
	case A32:
		arm(b, pos, back)
	case Thumb:
		thumb(b, pos, back)
	case A64:
		arm64(b, pos, back)
	case X86:
		x86(b, pos, back)
	case Pairs:
		steps32(b, back)
	case Triples:
		steps64(b, back)
	case GoFunctions:
		c.functions.convert(b, back)
	case GoSequences:
		c.sequences.convert(b, back)
	}
}

// moved adds the place to a distance, or subtracts it from an address.
func moved(v, pos uint32, back bool) uint32 {
	if back {
		return v - pos
	}
	return v + pos
}

// arm converts BL.
func arm(b []byte, pos uint32, back bool) {
	for i := int(-pos & 3); i+4 <= len(b); i += 4 {
		if w := le.Uint32(b[i:]); w>>24&15 == 11 && w>>28 != 15 {
			le.PutUint32(b[i:], w&0xff000000|moved(w, (pos+uint32(i))>>2, back)&0xffffff)
		}
	}
}

// thumb converts BL and BLX. Their highest bits but one depend on the sign; those of
// an address do not.
func thumb(b []byte, pos uint32, back bool) {
	for i := int(pos & 1); i+4 <= len(b); i += 2 {
		h1, h2 := uint32(le.Uint16(b[i:])), uint32(le.Uint16(b[i+2:]))
		if h1>>11 < 0x1d {
			continue
		}
		if h1>>11 == 0x1e && h2>>14 == 3 {
			s, j1, j2 := h1>>10&1, h2>>13&1, h2>>11&1
			if !back {
				j1, j2 = ^(j1^s)&1, ^(j2^s)&1
			}
			v := moved(s<<23|j1<<22|j2<<21|h1&0x3ff<<11|h2&0x7ff, (pos+uint32(i))>>1, back)
			s, j1, j2 = v>>23&1, v>>22&1, v>>21&1
			if back {
				j1, j2 = ^(j1^s)&1, ^(j2^s)&1
			}
			le.PutUint16(b[i:], uint16(0x1e<<11|s<<10|v>>11&0x3ff))
			le.PutUint16(b[i+2:], uint16(h2&0xd000|j1<<13|j2<<11|v&0x7ff))
		}
		i += 2
	}
}

// arm64 converts BL and ADRP.
func arm64(b []byte, pos uint32, back bool) {
	for i := int(-pos & 3); i+4 <= len(b); i += 4 {
		w := le.Uint32(b[i:])
		switch {
		case w>>26 == 0x25:
			le.PutUint32(b[i:], w&0xfc000000|moved(w, (pos+uint32(i))>>2, back)&0x3ffffff)
		case w&0x9f000000 == 0x90000000:
			v := moved(w>>29&3|w>>5&0x7ffff<<2, (pos+uint32(i))>>12, back)
			le.PutUint32(b[i:], w&0x9f00001f|v&3<<29|v>>2&0x7ffff<<5)
		}
	}
}

// wrap is the number of bits of distances and addresses in 64-bit code.
const wrap = 26

// x86 converts calls, jumps and what is relative to the instruction. It does not
// decode instructions: it looks for bytes that may be one. Four bytes that are too far
// away to be converted stay as they are, so that both directions see the same.
func x86(b []byte, pos uint32, back bool) {
	for i, free := 0, 0; i+6 <= len(b); {
		n := 0 // bytes before the distance
		switch c := b[i]; {
		case c == 0xe8 || c == 0xe9:
			n = 1
		case c == 0x0f && b[i+1]&0xf0 == 0x80:
			n = 2
		case b[i+1]&0xc7 == 5 && relative[c]:
			n = 2
		}
		if n == 0 || i+n < free || i+n+4 > len(b) {
			i++
			continue
		}
		free = i + n + 4
		v := le.Uint32(b[i+n:])
		if v+1<<(wrap-1) >= 1<<wrap {
			i++
			continue
		}
		v = moved(v, pos+uint32(i+n+4), back)
		le.PutUint32(b[i+n:], uint32(int32(v<<(32-wrap))>>(32-wrap)))
		i = free
	}
}

// relative marks opcodes that often have an operand relative to the instruction.
var relative = func() (t [256]bool) {
	for _, c := range []byte{0x8d, 0x8b, 0x89, 0x3b, 0x39, 0x03, 0x2b, 0x63, 0x85, 0x6f, 0x7f, 0x10, 0x11, 0x28, 0x29, 0xff} {
		t[c] = true
	}
	return t
}()

func steps32(b []byte, back bool) {
	if back {
		for i := 8; i+4 <= len(b); i += 4 {
			le.PutUint32(b[i:], le.Uint32(b[i:])+le.Uint32(b[i-8:]))
		}
		return
	}
	for i := len(b)&^3 - 4; i >= 8; i -= 4 {
		le.PutUint32(b[i:], le.Uint32(b[i:])-le.Uint32(b[i-8:]))
	}
}

func steps64(b []byte, back bool) {
	if back {
		for i := 24; i+8 <= len(b); i += 8 {
			le.PutUint64(b[i:], le.Uint64(b[i:])+le.Uint64(b[i-24:]))
		}
		return
	}
	for i := len(b)&^7 - 8; i >= 24; i -= 8 {
		le.PutUint64(b[i:], le.Uint64(b[i:])-le.Uint64(b[i-24:]))
	}
}
