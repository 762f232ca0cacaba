package elf

// Short references are branches and loads with a small reach. They change if
// something was inserted or removed between them and their target. They become
// fields only if the target lies outside of the range.

const (
	t16Cond  = iota // Bcc, 16 bits
	t16Jump         // B, 16 bits
	t16Zero         // CBZ, CBNZ
	t16Load         // LDR from a literal pool
	t16Adr          // ADR
	t32Cond         // Bcc.W
	t32Load         // LDR.W and its like, from a literal pool
	t32Float        // VLDR from a literal pool
	a32Load         // LDR from a literal pool
	a32Float        // VLDR from a literal pool
	a64Cond         // B.cc, CBZ, CBNZ, LDR from a literal pool: 19 bits of words
	a64Test         // TBZ, TBNZ
	a64Adr          // ADR
)

// thumb16Forms maps the upper byte of a 16-bit instruction to the form of its
// reference plus one, or to 0 if it has none.
var thumb16Forms = func() (t [256]uint8) {
	for i := range t {
		switch h := uint16(i) << 8; {
		case h>>12 == 0xd && h>>9&7 != 7:
			t[i] = t16Cond + 1
		case h>>11 == 0x1c:
			t[i] = t16Jump + 1
		case h&0xf500 == 0xb100:
			t[i] = t16Zero + 1
		case h>>11 == 9:
			t[i] = t16Load + 1
		case h>>11 == 0x14:
			t[i] = t16Adr + 1
		}
	}
	return t
}()

// thumbPlain is, by the upper byte of its first half, the size of an instruction that has
// no reference, or 0 if it may have one.
var thumbPlain = func() (t [256]uint8) {
	for i := range t {
		switch {
		case i>>3 == 0x1e || i == 0xf8 || i == 0xf9 || i == 0xed || thumb16Forms[i] > 0:
		case i>>3 >= 0x1d:
			t[i] = 4
		default:
			t[i] = 2
		}
	}
	return t
}()

// thumb32 returns the form of a 32-bit instruction other than BL, BLX and B.W.
func thumb32(h1, h2 uint16) (sub uint8, ok bool) {
	switch {
	case h1>>11 == 0x1e && h2>>12&13 == 8 && h1>>7&7 != 7:
		return t32Cond, true
	case h1&0xfe1f == 0xf81f && h1>>5&3 != 3 && h2>>12 != 15:
		return t32Load, true
	case h1&0xff3f == 0xed1f && h2>>9&7 == 5:
		return t32Float, true
	}
	return 0, false
}

func signBits(v uint32, n uint) uint64 { return uint64(int64(int32(v<<(32-n)) >> (32 - n))) }

// upDown adds or subtracts, as the U bit says.
func upDown(base uint64, up bool, d uint32) uint64 {
	if up {
		return base + uint64(d)
	}
	return base - uint64(d)
}

// shortValue reads the target of a short reference at pc.
func shortValue(sub uint8, w uint32, pc uint64) uint64 {
	h2 := w >> 16
	switch sub {
	case t16Cond:
		return pc + 4 + signBits(w&0xff, 8)<<1
	case t16Jump:
		return pc + 4 + signBits(w&0x7ff, 11)<<1
	case t16Zero:
		return pc + 4 + uint64(w>>9&1<<6|w>>3&31<<1)
	case t16Load, t16Adr:
		return (pc+4)&^3 + uint64(w&0xff)<<2
	case t32Cond:
		return pc + 4 + signBits(w>>10&1<<20|h2>>11&1<<19|h2>>13&1<<18|w&0x3f<<12|h2&0x7ff<<1, 21)
	case t32Load:
		return upDown((pc+4)&^3, w>>7&1 != 0, h2&0xfff)
	case t32Float:
		return upDown((pc+4)&^3, w>>7&1 != 0, h2&0xff<<2)
	case a32Load:
		return upDown(pc+8, w>>23&1 != 0, w&0xfff)
	case a32Float:
		return upDown(pc+8, w>>23&1 != 0, w&0xff<<2)
	case a64Cond:
		return pc + signBits(w>>5&0x7ffff, 19)<<2
	case a64Test:
		return pc + signBits(w>>5&0x3fff, 14)<<2
	case a64Adr:
		return pc + signBits(w>>29&3|w>>5&0x7ffff<<2, 21)
	}
	return 0
}

// shortFixed are the bits that identify a form.
var shortFixed = [...]uint32{
	t16Cond: 0xff00, t16Jump: 0xf800, t16Zero: 0xfd07, t16Load: 0xff00, t16Adr: 0xff00,
	t32Cond: 0xd000fbc0, t32Load: 0xf000ff7f, t32Float: 0xff00ff7f,
	a32Load: 0xff7ff000, a32Float: 0xff7fff00,
	a64Cond: 0xff00001f, a64Test: 0xfff8001f, a64Adr: 0x9f00001f,
}

// shortPut puts a target into the form of w.
func shortPut(sub uint8, w uint32, pc, v uint64) uint32 {
	k := w & shortFixed[sub]
	d := uint32(v - pc)
	ud := func(base uint64, bit, mask uint32, shift uint) uint32 {
		if v >= base {
			return bit | uint32(v-base)>>shift&mask
		}
		return uint32(base-v) >> shift & mask
	}
	switch sub {
	case t16Cond:
		return k | (d-4)>>1&0xff
	case t16Jump:
		return k | (d-4)>>1&0x7ff
	case t16Zero:
		d -= 4
		return k | d>>6&1<<9 | d>>1&31<<3
	case t16Load, t16Adr:
		return k | uint32(v-(pc+4)&^3)>>2&0xff
	case t32Cond:
		d -= 4
		return k | d>>20&1<<10 | d>>19&1<<27 | d>>18&1<<29 | d>>12&0x3f | d>>1&0x7ff<<16
	case t32Load:
		x := ud((pc+4)&^3, 1<<31, 0xfff, 0)
		return k | x>>31<<7 | x&0xfff<<16
	case t32Float:
		x := ud((pc+4)&^3, 1<<31, 0xff, 2)
		return k | x>>31<<7 | x&0xff<<16
	case a32Load:
		return k | ud(pc+8, 1<<23, 0xfff, 0)
	case a32Float:
		return k | ud(pc+8, 1<<23, 0xff, 2)
	case a64Cond:
		return k | d>>2&0x7ffff<<5
	case a64Test:
		return k | d>>2&0x3fff<<5
	case a64Adr:
		return k | d&3<<29 | d>>2&0x7ffff<<5
	}
	return w
}
