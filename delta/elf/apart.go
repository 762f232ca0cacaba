package elf

// Addresses that code puts together from parts that stand apart: on arm64 an ADRP, and
// farther on the instructions that add the low 12 bits; on arm a word of a literal pool, and
// the instruction that adds PC to it. To find out which belong together, registers are
// followed along the old code, in the order in which it is matched. What is wrong about them
// costs bytes, as any wrong prediction does.

// apart is what is known about registers.
type apart struct {
	on    bool
	end   uint64     // old address behind the code that was followed
	pages pages      // A64
	moved [32]page   // A64: the page that a register got last
	loads [16]uint64 // A32, Thumb: the old address of the word that a register has, or 0
	pools [1 << poolBits]pool
}

// pages are the old pages that registers have, or 0.
type pages [32]uint64

type page struct{ old, new uint64 }

// pool is the old address of a word in a literal pool, and that of the instruction that adds PC
// to it.
type pool struct{ at, add uint64 }

const (
	// poolBits is enough for words within the reach of a load, 4 KiB.
	poolBits = 10
	// maxSkip is how many bytes of old code may be left out before registers are forgotten.
	maxSkip = 1 << 10
	// maxLow is how far behind an ADRP its low bits are looked for, in bytes.
	maxLow = 128
)

// Apart makes the predictor find addresses whose parts stand apart. It is called before the
// first Scan. In Go's code they do not.
func (p *Predictor) Apart() { p.apart.on = p.o.apart() }

func (f *File) apart() bool { return f.gotab == nil && f.machine != machineX86 }

// follow begins with size bytes of code at an old address.
func (a *apart) follow(pc uint64, size int) {
	if pc-a.end >= maxSkip {
		clear(a.pages[:])
		clear(a.loads[:])
	}
	a.end = pc + uint64(size)
}

// low returns the address that an A64 instruction makes of a page and its low 12 bits, and how
// these are scaled.
func (r *pages) low(w uint32) (target uint64, scale uint, ok bool) {
	page := r[w>>5&31]
	z, ok := lowScale(w)
	off := uint64(w>>10&0xfff) << z
	return page + off, z, ok && page != 0 && off < 1<<12
}

// written forgets the registers that an A64 instruction writes (Arm ARM, C4.1), but for rare
// ones.
func (r *pages) written(w uint32) {
	switch {
	case w&0xffc07fff == 0xa9807bfd: // STP x29, x30, [sp, #-n]!: a function begins
		clear(r[:])
	case w>>26 == 0x25 || w&0xfffffc1f == 0xd63f0000: // BL, BLR
		clear(r[:19])
	case w>>26&7 == 4 || w>>25&7 == 5: // data processing
		r[w&31] = 0
	case w>>25&7 != 4: // no load or store of these registers
	case w>>27&7 == 5: // pairs
		if w>>22&1 != 0 {
			r[w&31], r[w>>10&31] = 0, 0
		}
	case w>>27&7 == 3 || w>>22&3 != 0: // loads
		r[w&31] = 0
	}
	r[31] = 0
}

// firstLow returns the low 12 bits that code first adds to the page in a register.
func firstLow(code []byte, reg uint32) (uint64, bool) {
	var r pages
	r[reg] = 1 << 12
	for i := 0; i+4 <= min(len(code), maxLow); i += 4 {
		w := le.Uint32(code[i:])
		if t, _, ok := r.low(w); ok {
			return t & 0xfff, true
		}
		if r.written(w); r[reg] == 0 {
			break
		}
	}
	return 0, false
}

// lowBits appends the low 12 bits that the A64 instruction w adds to a page, if it does, and
// reports whether it does.
func (p *Predictor) lowBits(fields []Field, i int, w uint32) ([]Field, bool) {
	r := &p.apart.pages
	t, z, ok := r.low(w)
	r.written(w)
	if ok {
		fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindLow, sub: uint8(z<<5 | uint(w>>5&31)), key: t})
	}
	return fields, ok
}

// onPage sets the new page that low bits are added to: the one that the register got, or that of
// the target v.
func (p *Predictor) onPage(f *Field, v uint64) {
	f.pc = v &^ 0xfff
	if m := &p.apart.moved[f.sub&31]; m.old == f.key&^0xfff {
		f.pc = m.new
	}
}

// arm follows an A32 instruction at an old address.
func (a *apart) arm(w uint32, pc uint64) {
	switch {
	case w&0x0f7f0000 == 0x051f0000: // LDR r, [pc, #n]
		a.loads[w>>12&15] = shortValue(a32Load, w, pc)
	case w&0x0fff0ff0 == 0x008f0000, w&0x0faf0ff0 == 0x078f0000: // ADD r, pc, r; LDR r, [pc, r] and its like
		a.use(w&15, pc)
	case w&0x0ff00fff == 0x0080000f: // ADD r, r, pc
		a.use(w>>16&15, pc)
	}
}

// thumb follows a Thumb instruction at an old address.
func (a *apart) thumb(w uint32, pc uint64) {
	switch h1, h2 := w&0xffff, w>>16; {
	case h1>>11 == 9: // LDR r, [pc, #n]
		a.loads[h1>>8&7] = shortValue(t16Load, h1, pc)
	case h1&0xff7f == 0xf85f: // LDR.W r, [pc, #n]
		a.loads[h2>>12] = shortValue(t32Load, w, pc)
	case h1&0xff78 == 0x4478: // ADD r, pc
		a.use(h1&7|h1>>4&8, pc)
	}
}

// use notes that the instruction at pc adds PC to what a register was loaded with.
func (a *apart) use(reg uint32, pc uint64) {
	if at := a.loads[reg]; at != 0 {
		a.pools[at>>2%(1<<poolBits)] = pool{at, pc}
		a.loads[reg] = 0
	}
}

// literal appends the word w at an old address if it is known which instruction adds PC to it,
// and if the sum leads into the file. moved is how far the range moved.
func (p *Predictor) literal(fields []Field, i int, w uint32, at, moved uint64) ([]Field, bool) {
	l := &p.apart.pools[at>>2%(1<<poolBits)]
	ahead := uint64(4) // PC is that of a later instruction
	if p.mode == A32 {
		ahead = 8
	}
	t := l.add + ahead + uint64(int64(int32(w)))
	if l.at != at || at == 0 || !p.o.within(t) {
		return fields, false
	}
	add := l.add + moved
	if l.add-p.from >= p.to-p.from {
		add, _ = p.m.plain(l.add)
	}
	return append(fields, Field{Off: int32(i), Len: 4, Kind: kindLiteral, pc: add + ahead, key: t}), true
}
