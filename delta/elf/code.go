package elf

// scanArm finds branches and absolute addresses in A32 code (Arm ARM, A5).
func (p *Predictor) scanArm(fields []Field, old []byte, at int, s, q, opc, npc uint64) []Field {
	i := at + int(-q&3)
	if (s+uint64(i-at))&3 != 0 {
		return fields
	}
	lo, hi := max(p.o.lo, 4096), p.o.hi
	abs := p.o.lo >= 4096
	if p.apart.on {
		p.apart.follow(opc, len(old)-at)
	}
	for ; i+4 <= len(old); i += 4 {
		w := le.Uint32(old[i:])
		if p.apart.on {
			a := opc + uint64(i-at)
			var ok bool
			if fields, ok = p.literal(fields, i, w, a, npc-opc); ok {
				continue
			}
			p.apart.arm(w, a)
		}
		if w>>25&7 == 5 && w>>28 != 15 {
			d := uint64(i - at)
			t := opc + d + 8 + uint64(int64(int32(w<<8)>>6))
			if t-p.from < p.to-p.from {
				continue
			}
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindArm, sub: uint8(w >> 24 & 1), pc: npc + d, key: t})
		} else if w&0x0f7f0000 == 0x051f0000 || w&0x0f3f0e00 == 0x0d1f0a00 {
			sub := uint8(a32Load)
			if w>>25&7 == 6 {
				sub = a32Float
			}
			fields = p.short(fields, i, kindShort, sub, w, opc+uint64(i-at), npc+uint64(i-at))
		} else if abs && uint64(w) >= lo && uint64(w) < hi {
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindAbs32, key: uint64(w)})
		} else if !abs {
			d := uint64(i - at)
			if t := opc + d + uint64(int64(int32(w))); t >= p.o.rw && t < hi {
				fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindPool, pc: npc + d, key: t})
			}
		}
	}
	return fields
}

// scanThumb finds BL, BLX and B.W (T32) and literal pools.
func (p *Predictor) scanThumb(fields []Field, old []byte, at int, s, q, opc, npc uint64) []Field {
	i := at + int(q&1)
	if (s+uint64(i-at))&1 != 0 {
		return fields
	}
	lo, hi := max(p.o.lo, 4096), p.o.hi
	abs := p.o.lo >= 4096
	if !abs {
		lo = p.o.rw
	}
	size := max(hi, lo) - lo
	if p.apart.on {
		p.apart.follow(opc, len(old)-at)
	}
	for i+4 <= len(old) {
		w := le.Uint32(old[i:])
		d := uint64(i - at)
		word := uint64(w) // an address, if this is a literal
		if !abs {
			word = opc + d + uint64(int64(int32(w)))
		}
		if p.apart.on {
			var ok bool
			if fields, ok = p.literal(fields, i, w, opc+d, npc-opc); ok {
				i += 4
				continue
			}
			p.apart.thumb(w, opc+d)
		}
		if n := thumbPlain[w>>8&255]; n > 0 && word-lo >= size {
			i += int(n)
			continue
		}
		h1, h2 := uint16(w), uint16(w>>16)
		if h1>>11 == 0x1e && (h2>>14 == 3 || h2>>14 == 2 && h2>>12&1 == 1) {
			t := thumbBase(opc+d, h2) + thumbOffset(h1, h2)
			if t-p.from >= p.to-p.from || h2>>12&1 == 0 {
				fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindThumb, sub: uint8(h2 >> 12 & 5), pc: npc + d, key: t})
			}
			i += 4
			continue
		}
		if word-lo < size && (opc+d)&3 == 0 && (npc+d)&3 == 0 {
			if abs {
				fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindAbs32, key: word})
			} else {
				fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindPool, pc: npc + d, key: word})
			}
			i += 4
			continue
		}
		if h1>>11 >= 0x1d {
			if sub, ok := thumb32(h1, h2); ok {
				fields = p.short(fields, i, kindShort, sub, w, opc+d, npc+d)
			}
			i += 4
			continue
		}
		if sub := thumb16Forms[h1>>8]; sub > 0 {
			fields = p.short(fields, i, kindShort16, sub-1, uint32(h1), opc+d, npc+d)
		}
		i += 2
	}
	return fields
}

// short appends a short reference, if its target is outside of the range.
func (p *Predictor) short(fields []Field, i int, kind Kind, sub uint8, w uint32, opc, npc uint64) []Field {
	t := shortValue(sub, w, opc)
	if t-p.from < p.to-p.from && (opc-npc)&3 == 0 {
		return fields
	}
	n := uint8(4)
	if kind == kindShort16 {
		n = 2
	}
	return append(fields, Field{Off: int32(i), Len: n, Kind: kind, sub: sub, pc: npc, key: t})
}

func thumbBase(pc uint64, h2 uint16) uint64 {
	if h2>>12&1 == 0 { // BLX goes to A32 code, from an aligned place
		return (pc + 4) &^ 3
	}
	return pc + 4
}

func thumbOffset(h1, h2 uint16) uint64 {
	a, b := uint32(h1), uint32(h2)
	s := a >> 10 & 1
	i1, i2 := ^(b>>13&1^s)&1, ^(b>>11&1^s)&1
	v := s<<24 | i1<<23 | i2<<22 | a&0x3ff<<12 | b&0x7ff<<1
	return uint64(int64(int32(v<<7) >> 7))
}

// scanA64 finds B, BL and ADRP with the instruction that adds the low 12 bits.
func (p *Predictor) scanA64(fields []Field, old []byte, at int, q, opc, npc uint64) []Field {
	i := at + int(-q&3)
	if (opc+uint64(i-at))&3 != 0 {
		return fields
	}
	if p.apart.on {
		p.apart.follow(opc, len(old)-at)
	}
	for ; i+4 <= len(old); i += 4 {
		w := le.Uint32(old[i:])
		d := uint64(i - at)
		if p.apart.on && w&0x9f000000 != 0x90000000 {
			var ok bool
			if fields, ok = p.lowBits(fields, i, w); ok {
				continue
			}
		}
		switch {
		case w>>26&0x1f == 5:
			t := opc + d + uint64(int64(int32(w<<6)>>4))
			if t-p.from < p.to-p.from {
				continue
			}
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindA64, pc: npc + d, key: t})
		case w>>25&0x3f == 0x1a || w>>24 == 0x54 || w&0x3b000000 == 0x18000000:
			fields = p.short(fields, i, kindShort, a64Cond, w, opc+d, npc+d)
		case w>>25&0x3f == 0x1b:
			fields = p.short(fields, i, kindShort, a64Test, w, opc+d, npc+d)
		case w&0x9f000000 == 0x10000000:
			fields = p.short(fields, i, kindShort, a64Adr, w, opc+d, npc+d)
		case w&0x9f000000 == 0x90000000:
			t := adrp(w, opc+d)
			if p.apart.on {
				p.apart.pages[w&31] = t
			}
			if i+8 <= len(old) {
				w2 := le.Uint32(old[i+4:])
				if z, ok := lowScale(w2); ok && w2>>5&31 == w&31 {
					fields = append(fields, Field{Off: int32(i), Len: 8, Kind: kindPage, sub: uint8(z), pc: npc + d, key: t + uint64(w2>>10&0xfff)<<z})
					i += 4
					p.apart.pages.written(w2)
					continue
				}
			}
			kind := kindPageAlone
			if p.apart.on {
				if low, ok := firstLow(old[i+4:], w&31); ok {
					kind, t = kindPageLow, t+low
				}
			}
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kind, pc: npc + d, key: t})
		}
	}
	return fields
}

func adrp(w uint32, pc uint64) uint64 {
	im := int64(w>>29&3|w>>5&0x7ffff<<2) << 43 >> 43
	return pc&^0xfff + uint64(im<<12)
}

// lowScale returns by how much an ADD, a load or a store scales its 12 bits.
func lowScale(w uint32) (uint, bool) {
	switch {
	case w&0x7fc00000 == 0x11000000:
		return 0, true
	case w&0x3b000000 == 0x39000000:
		if w&0x04800000 == 0x04800000 {
			return 4, true
		}
		return uint(w >> 30), true
	}
	return 0, false
}

// scanX86 finds calls, jumps and addresses relative to the instruction. It does
// not decode instructions: it looks for bytes whose target is a known address.
func (p *Predictor) scanX86(fields []Field, old []byte, at int, opc, npc uint64) []Field {
	lo, hi := p.o.lo, p.o.hi
	for i := at; i+5 <= len(old); {
		b := old[i]
		n := 0 // bytes before the displacement
		switch {
		case b == 0xe8 || b == 0xe9:
			n = 1
		case b == 0x0f && old[i+1]&0xf0 == 0x80:
			n = 2
		case old[i+1]&0xc7 == 5 && ripOpcode[b]:
			n = 2
		}
		if n == 0 || i+n+4 > len(old) {
			i++
			continue
		}
		d := uint64(i - at + n + 4)
		t := opc + d + uint64(int64(int32(le.Uint32(old[i+n:]))))
		if t < lo || t >= hi {
			i++
			continue
		}
		if t-p.from < p.to-p.from {
			i += n + 4
			continue
		}
		fields = append(fields, Field{Off: int32(i + n), Len: 4, Kind: kindX86, sub: uint8(n), pc: npc + d, key: t})
		i += n + 4
	}
	return fields
}

// ripOpcode marks the last opcode byte of instructions that often take an
// operand relative to RIP.
var ripOpcode = func() (t [256]bool) {
	for _, b := range []byte{0x8d, 0x8b, 0x89, 0x8a, 0x88, 0xff, 0x83, 0x80, 0x81, 0xc7, 0xc6, 0x3b, 0x39, 0x38, 0x3a, 0x03, 0x2b, 0x0b, 0x23, 0x33,
		0x85, 0x63, 0x6f, 0x7f, 0x10, 0x11, 0x28, 0x29, 0xb6, 0xb7, 0xbe, 0xbf, 0x58, 0x59, 0x5c, 0x5e, 0x54, 0x57, 0x2e, 0x2f, 0x6e, 0x7e, 0xd6, 0xef, 0xb1, 0xc1, 0x87} {
		t[b] = true
	}
	return t
}()

// scanPlt finds the entries of an arm PLT: two ADDs and an LDR that together
// hold the distance to a GOT slot.
func (p *Predictor) scanPlt(fields []Field, sec *section, old []byte, at int, s, q, opc, npc uint64) []Field {
	i := at + int(-q&3)
	if (opc+uint64(i-at))&3 != 0 {
		return fields
	}
	for i+12 <= len(old) {
		if t, ok := pltOffset(old[i:]); ok {
			d := uint64(i - at)
			fields = append(fields, Field{Off: int32(i), Len: 12, Kind: kindPlt, pc: npc + d + 8, key: opc + d + 8 + t})
			i += 12
			continue
		}
		i += 4
	}
	return fields
}

func pltOffset(b []byte) (uint64, bool) {
	w1, w2, w3 := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
	if w1&0xffffff00 != 0xe28fc600 || w2&0xffffff00 != 0xe28cca00 || w3&0xfffff000 != 0xe5bcf000 {
		return 0, false
	}
	return uint64(w1&255)<<20 + uint64(w2&255)<<12 + uint64(w3&0xfff), true
}

// value reads the target from new bytes. ok is false if their form differs from
// that of the old ones.
func value(f *Field, old, b []byte) (uint64, bool) {

	if f.Kind == kindShort16 {
		w, o := uint32(le.Uint16(b)), uint32(le.Uint16(old))
		return shortValue(f.sub, w, f.pc), (w^o)&shortFixed[f.sub] == 0
	}
	if f.Kind == kindGo+goLine {
		v, n := varint(b)
		return uint64(int32(unfold(v))), n == uint32(f.Len)
	}
	w := le.Uint32(b)
	switch f.Kind {
	case kindShort:
		return shortValue(f.sub, w, f.pc), (w^le.Uint32(old))&shortFixed[f.sub] == 0
	case kindArm:
		return f.pc + 8 + uint64(int64(int32(w<<8)>>6)), w>>24 == le.Uint32(old)>>24
	case kindThumb:
		h1, h2, o := uint16(w), uint16(w>>16), le.Uint16(old[2:])
		return thumbBase(f.pc, h2) + thumbOffset(h1, h2), h1>>11 == 0x1e && h2&0xd000 == o&0xd000
	case kindA64:
		return f.pc + uint64(int64(int32(w<<6)>>4)), w>>26 == le.Uint32(old)>>26
	case kindPage:
		w2, o2 := le.Uint32(b[4:]), le.Uint32(old[4:])
		return adrp(w, f.pc) + uint64(w2>>10&0xfff)<<f.sub, w&0x9f00001f == le.Uint32(old)&0x9f00001f && w2&^(0xfff<<10) == o2&^(0xfff<<10)
	case kindPageAlone, kindPageLow:
		return adrp(w, f.pc), w&0x9f00001f == le.Uint32(old)&0x9f00001f
	case kindLow:
		return f.pc + uint64(w>>10&0xfff)<<(f.sub>>5), w&^(0xfff<<10) == le.Uint32(old)&^(0xfff<<10)
	case kindX86, kindRel32, kindPool, kindLiteral:
		return f.pc + uint64(int64(int32(w))), true
	case kindAbs64:
		return le.Uint64(b), true
	case kindPrel31:
		return f.pc + uint64(int64(int32(w<<1)>>1)), w>>31 == 0
	case kindPlt:
		t, ok := pltOffset(b)
		return f.pc + t, ok
	case kindRelOff, kindSym:
		if f.Len == 8 {
			return le.Uint64(b), true
		}
	}
	return uint64(w), true
}

// put writes a target in the old bytes' form.
func put(f *Field, old, b []byte, v uint64) {

	if f.Kind == kindShort16 {
		le.PutUint16(b, uint16(shortPut(f.sub, uint32(le.Uint16(old)), f.pc, v)))
		return
	}
	if f.Kind == kindGo+goLine {
		if !putVarint(b[:f.Len], fold(uint32(v))) {
			copy(b[:f.Len], old)
		}
		return
	}
	w := le.Uint32(old)
	d := v - f.pc
	switch f.Kind {
	case kindShort:
		w = shortPut(f.sub, w, f.pc, v)
	case kindArm:
		w = w&0xff000000 | uint32((d-8)>>2)&0xffffff
	case kindThumb:
		h2 := le.Uint16(old[2:])
		o := uint32(v - thumbBase(f.pc, h2))
		s := o >> 24 & 1
		j1, j2 := ^(o>>23&1^s)&1, ^(o>>22&1^s)&1
		le.PutUint16(b, uint16(0x1e<<11|s<<10|o>>12&0x3ff))
		le.PutUint16(b[2:], h2&0xd000|uint16(j1<<13|j2<<11|o>>1&0x7ff))
		return
	case kindA64:
		w = w&0xfc000000 | uint32(d>>2)&0x3ffffff
	case kindLow:
		w = w&^(0xfff<<10) | uint32(v&0xfff>>(f.sub>>5))<<10
	case kindPage, kindPageAlone, kindPageLow:
		g := uint32((v&^0xfff - f.pc&^0xfff) >> 12)
		w = w&0x9f00001f | g&3<<29 | g>>2&0x7ffff<<5
		if f.Kind == kindPage {
			le.PutUint32(b[4:], le.Uint32(old[4:])&^(0xfff<<10)|uint32(v&0xfff>>f.sub)<<10)
		}
	case kindX86, kindRel32, kindPool, kindLiteral:
		w = uint32(d)
	case kindPrel31:
		w = uint32(d) & 0x7fffffff
	case kindPlt:
		le.PutUint32(b, w&0xffffff00|uint32(d>>20)&255)
		le.PutUint32(b[4:], le.Uint32(old[4:])&0xffffff00|uint32(d>>12)&255)
		le.PutUint32(b[8:], le.Uint32(old[8:])&0xfffff000|uint32(d)&0xfff)
		return
	case kindAbs64:
		le.PutUint64(b, v)
		return
	case kindRelOff, kindSym:
		if f.Len == 8 {
			le.PutUint64(b, v)
			return
		}
		w = uint32(v)
	default:
		w = uint32(v)
	}
	le.PutUint32(b, w)
}
