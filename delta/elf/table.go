package elf

// scanPointers finds absolute addresses at their natural alignment.
func (p *Predictor) scanPointers(fields []Field, old []byte, at int, s, q uint64) []Field {
	if p.o.wide {
		i := at + int(-q&7)
		if (s+uint64(i-at))&7 != 0 {
			return fields
		}
		for ; i+8 <= len(old); i += 8 {
			if v := le.Uint64(old[i:]); p.o.within(v) {
				fields = append(fields, Field{Off: int32(i), Len: 8, Kind: kindAbs64, key: v})
			}
		}
		return fields
	}
	i := at + int(-q&3)
	if (s+uint64(i-at))&3 != 0 {
		return fields
	}
	for ; i+4 <= len(old); i += 4 {
		if v := uint64(le.Uint32(old[i:])); p.o.within(v) {
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindAbs32, key: v})
		}
	}
	return fields
}

// align returns the first place from at on where an entry of size bytes of the
// section begins.
func align(sec *section, at int, s, size uint64) int {
	in := (s - sec.off) % size
	if in == 0 {
		return at
	}
	return at + int(size-in)
}

// scanRel finds the offsets, symbols and addends of relocations.
func (p *Predictor) scanRel(fields []Field, sec *section, old []byte, at int, s uint64) []Field {

	sub := uint8(0)
	if sec.plt {
		sub = 1
	}
	if p.o.wide {
		size := uint64(16)
		if sec.rela {
			size = 24
		}
		for i := align(sec, at, s, size); i+int(size) <= len(old); i += int(size) {
			fields = append(fields, Field{Off: int32(i), Len: 8, Kind: kindRelOff, sub: sub, key: le.Uint64(old[i:])})
			info := le.Uint64(old[i+8:])
			if info>>32 != 0 {
				fields = append(fields, Field{Off: int32(i + 12), Len: 4, Kind: kindSym, sub: 1, key: info >> 32 << 8})
			}
			if sec.rela {
				if v := le.Uint64(old[i+16:]); p.o.within(v) {
					fields = append(fields, Field{Off: int32(i + 16), Len: 8, Kind: kindAbs64, key: v})
				}
			}
		}
		return fields
	}
	for i := align(sec, at, s, 8); i+8 <= len(old); i += 8 {
		fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindRelOff, sub: sub, key: uint64(le.Uint32(old[i:]))})
		if info := le.Uint32(old[i+4:]); info>>8 != 0 {
			fields = append(fields, Field{Off: int32(i + 4), Len: 4, Kind: kindSym, key: uint64(info)})
		}
	}
	return fields
}

// scanSyms finds the addresses of symbols.
func (p *Predictor) scanSyms(fields []Field, sec *section, old []byte, at int, s uint64) []Field {

	if p.o.wide {
		for i := align(sec, at, s, 24); i+24 <= len(old); i += 24 {
			if v := le.Uint32(old[i:]); v != 0 && sec.link != 0 {
				fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindName, pc: sec.link, key: uint64(v)})
			}
			if v := le.Uint64(old[i+8:]); p.o.within(v) {
				fields = append(fields, Field{Off: int32(i + 8), Len: 8, Kind: kindAbs64, sub: 1, key: v})
			}
		}
		return fields
	}
	for i := align(sec, at, s, 16); i+16 <= len(old); i += 16 {
		if v := le.Uint32(old[i:]); v != 0 && sec.link != 0 {
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindName, pc: sec.link, key: uint64(v)})
		}
		if v := uint64(le.Uint32(old[i+4:])); p.o.within(v) {
			fields = append(fields, Field{Off: int32(i + 4), Len: 4, Kind: kindAbs32, sub: 1, key: v})
		}
	}
	return fields
}

// scanExidx finds the pairs of arm's exception index (EHABI, 6).
func (p *Predictor) scanExidx(fields []Field, sec *section, old []byte, at int, s, opc, npc uint64) []Field {
	for i := align(sec, at, s, 4); i+4 <= len(old); i += 4 {
		w := le.Uint32(old[i:])
		d := uint64(i - at)
		if (s+d-sec.off)&4 == 0 || w != 1 && w>>31 == 0 {
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindPrel31, pc: npc + d, key: opc + d + uint64(int64(int32(w<<1)>>1))})
		}
	}
	return fields
}

// scanEhHdr finds the sorted table of .eh_frame_hdr (LSB, 10.6.2), in its usual
// encoding: 32 bits relative to the section.
func (p *Predictor) scanEhHdr(fields []Field, sec *section, old []byte, at int, s, opc, npc uint64) []Field {
	base := sec.addr
	nbase := npc - (opc - base) // the section moves as a whole
	if v, t := p.m.plain(base); t <= covered {
		nbase = v
	}
	for i := align(sec, at, s, 4); i+4 <= len(old); i += 4 {
		if s+uint64(i-at)-sec.off < 12 {
			continue
		}
		w := le.Uint32(old[i:])
		fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindRel32, pc: nbase, key: base + uint64(int64(int32(w)))})
	}
	return fields
}
