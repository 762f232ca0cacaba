package elf

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// Mask returns a copy of an ELF file in which everything that changes with the
// layout is blanked, or replaced by a hash of what it refers to. The encoder uses
// it to find which parts of two files correspond. It returns nil for other files.
func Mask(b []byte, mode Mode) []byte {
	f, err := Parse(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil
	}
	if f.gotab != nil && mode == Plain && f.machine == machineArm {
		mode = A32
	}
	m := &masker{f: f, b: b, o: append([]byte(nil), b...)}
	for s := range f.disjointSections() {
		lo, hi := int(s.off), int(s.off+s.size)
		switch s.class {
		case classCode:
			switch {
			case f.machine == machineArm64:
				m.a64(lo, hi)
			case f.machine == machineX86:
				m.x86(lo, hi, s.addr)
			case mode == A32:
				m.arm(lo, hi)
			default:
				m.thumb(lo, hi)
			}
		case classPcln:
			if f.gotab != nil {
				m.pcln(lo, hi)
			}
		case classTypelink:
			m.typelink(lo, hi)
		case classPlt:
			if f.machine == machineArm {
				for p := lo; p+12 <= hi; p += 4 {
					if _, ok := pltOffset(b[p:]); ok {
						m.o[p], m.o[p+4] = 0, 0
						m.o[p+8], m.o[p+9] = 0, m.o[p+9]&0xf0
					}
				}
			}
		case classBuildID:
			if s.size == idAt+idLen {
				clear(m.o[lo+idAt : hi])
			}
		case classDebugLink:
			clear(m.o[lo:hi])
		case classExidx:
			for p := lo; p+4 <= hi; p += 4 {
				w := le.Uint32(b[p:])
				if (p-lo)&4 == 0 || w != 1 && w>>31 == 0 {
					le.PutUint32(m.o[p:], m.ref(s.addr+uint64(p-lo)+uint64(int64(int32(w<<1)>>1)))&0x7fffffff)
				}
			}
		case classEhHdr:
			for p := lo + 12; p+4 <= hi; p += 4 {
				le.PutUint32(m.o[p:], m.ref(s.addr+uint64(int64(int32(le.Uint32(b[p:]))))))
			}
		case classRel:
			m.rel(s, lo, hi)
		case classSyms:
			// Symbols keep their names and sizes.
			size, at := 16, 4
			if f.wide {
				size, at = 24, 8
			}
			for p := lo; p+size <= hi; p += size {
				clear(m.o[p+at : p+at+4])
				le.PutUint32(m.o[p:], m.name(s, le.Uint32(b[p:])))
			}
		case classData, classPointers:
			m.pointers(lo, hi)
			if s.class == classData {
				m.jumps(s)
			}
		}
	}
	// findfunctab is predicted wherever it is matched with any old bytes, so all
	// of it gets the same value.
	for i := range f.findSize / 4 {
		le.PutUint32(m.o[f.findOff+4*i:], 0xf1d00000|uint32(i))
	}
	return m.o
}

// disjointSections yields the sections in the order of the file, without those that begin
// inside the one before: no byte is read twice, whatever the section table says.
func (f *File) disjointSections() iter.Seq[*section] {
	return func(yield func(*section) bool) {
		end := uint64(0)
		for i := range f.sections {
			s := &f.sections[i]
			if s.off < end {
				continue
			}
			end = s.off + s.size
			if !yield(s) {
				return
			}
		}
	}
}

type masker struct {
	f    *File
	b, o []byte
}

var le = binary.LittleEndian

// name returns a hash of a symbol's name.
func (m *masker) name(s *section, n uint32) uint32 {
	return m.text(s.link+min(uint64(n), s.linkSize), s.link+s.linkSize)
}

// maxNameLen is how much of a name is hashed, in bytes. Names may overlap: without
// a bound, masking a table of them would take quadratic time.
const maxNameLen = 4096

// text returns a hash (FNV-1a) of the text from an offset up to a zero or to an
// end.
func (m *masker) text(from, end uint64) uint32 {
	h := uint32(2166136261)
	for i := from; i < min(end, from+maxNameLen) && m.b[i] != 0; i++ {
		h = (h ^ uint32(m.b[i])) * 16777619
	}
	return h
}

// ref returns a hash of the content at an address.
func (m *masker) ref(a uint64) uint32 {
	off, ok := m.f.offset(a)
	if !ok || off+8 > uint64(len(m.b)) {
		return 0xfffffff1
	}
	h := uint32(2166136261)
	for i := off; i < off+8; i += 4 {
		w := le.Uint32(m.b[i:])
		if m.f.within(uint64(w)) && m.f.lo >= 4096 || w>>24 == 0xeb {
			w = 1
		}
		h = (h ^ w) * 16777619
		h ^= h >> 15
	}
	return h
}

func (m *masker) arm(lo, hi int) {
	abs := m.f.lo >= 4096
	for p := lo; p+4 <= hi; p += 4 {
		w := le.Uint32(m.b[p:])
		if w>>24&0xf == 0xb && w>>28 != 15 {
			le.PutUint32(m.o[p:], w&0xff000000)
		} else if abs && m.f.within(uint64(w)) {
			le.PutUint32(m.o[p:], 0xfffffff0)
		}
	}
}

func (m *masker) thumb(lo, hi int) {
	for p := lo; p+4 <= hi; p += 2 {
		h1, h2 := le.Uint16(m.b[p:]), le.Uint16(m.b[p+2:])
		if h1>>11 == 0x1e && h2>>14 == 3 {
			le.PutUint16(m.o[p:], 0xf000)
			le.PutUint16(m.o[p+2:], h2&0xd000)
			p += 2
		}
	}
}

func (m *masker) a64(lo, hi int) {
	for p := lo; p+4 <= hi; p += 4 {
		w := le.Uint32(m.b[p:])
		if w>>26 == 0x25 {
			le.PutUint32(m.o[p:], w&0xfc000000)
		} else if w&0x9f000000 == 0x90000000 {
			le.PutUint32(m.o[p:], w&0x9f00001f)
			if p+8 <= hi {
				w2 := le.Uint32(m.b[p+4:])
				if _, ok := lowScale(w2); ok && w2>>5&31 == w&31 {
					le.PutUint32(m.o[p+4:], w2&^(0xfff<<10))
					p += 4
				}
			}
		}
	}
}

func (m *masker) x86(lo, hi int, addr uint64) {
	for p := lo; p+6 <= hi; {
		c := m.b[p]
		n := 0
		switch {
		case c == 0xe8:
			n = 1
		case m.b[p+1]&0xc7 == 5 && ripOpcode[c]:
			n = 2
		}
		if n == 0 || p+n+4 > hi {
			p++
			continue
		}
		t := addr + uint64(p-lo+n+4) + uint64(int64(int32(le.Uint32(m.b[p+n:]))))
		if t < m.f.lo || t >= m.f.hi {
			p++
			continue
		}
		clear(m.o[p+n : p+n+4])
		p += n + 4
	}
}

// pointers blanks addresses; the address of a Go function becomes a hash of its
// name.
func (m *masker) pointers(lo, hi int) {
	if m.f.wide {
		for p := (lo + 7) &^ 7; p+8 <= hi; p += 8 {
			if v := le.Uint64(m.b[p:]); m.f.within(v) {
				le.PutUint64(m.o[p:], 0xffffffff00000000|uint64(m.function(v)))
			}
		}
		return
	}
	if m.f.lo < 4096 && m.f.hi > 1<<24 {
		return
	}
	for p := (lo + 3) &^ 3; p+4 <= hi; p += 4 {
		if v := uint64(le.Uint32(m.b[p:])); m.f.within(v) {
			le.PutUint32(m.o[p:], m.function(v))
		}
	}
}

// function returns a hash of the name of the Go function that begins at an
// address, and the same value for all other addresses.
func (m *masker) function(addr uint64) uint32 {
	const other = 0xfffffff0
	g := m.f.gotab
	if g == nil {
		return other
	}
	i, ok := slices.BinarySearch(g.entry, uint32(addr-g.text))
	if !ok || addr < g.text || addr-g.text > math.MaxUint32 {
		return other
	}
	return m.goName(g.off + g.funcs + uint64(g.record[i]))
}

// goName returns a hash of the name of the function whose record is at an offset.
func (m *masker) goName(record uint64) uint32 {
	g := m.f.gotab
	if record+8 > uint64(len(m.b)) {
		return 0
	}
	return m.text(g.off+g.names+uint64(le.Uint32(m.b[record+4:])), g.off+g.size)
}

// rel replaces a relocation's place by a hash of the content there.
func (m *masker) rel(s *section, lo, hi int) {
	if m.f.wide {
		size := 16
		if s.rela {
			size = 24
		}
		for p := lo; p+size <= hi; p += size {
			v := le.Uint64(m.b[p:])
			if s.rela {
				v = le.Uint64(m.b[p+16:])
				le.PutUint64(m.o[p+16:], 0)
			}
			le.PutUint64(m.o[p:], uint64(m.ref(v)))
			le.PutUint32(m.o[p+12:], 0)
		}
		return
	}
	for p := lo; p+8 <= hi; p += 8 {
		h := uint32(0)
		if off, ok := m.f.offset(uint64(le.Uint32(m.b[p:]))); ok && off+4 <= uint64(len(m.b)) {
			h = m.ref(uint64(le.Uint32(m.b[off:])))
		}
		le.PutUint32(m.o[p:], h)
		m.o[p+5], m.o[p+6], m.o[p+7] = 0, 0, 0
	}
}

// pcln replaces functions by hashes of their names, so that the table and the
// records of the same functions look alike.
func (m *masker) pcln(lo, hi int) {
	g := m.f.gotab
	for i := range g.record {
		p := lo + int(g.funcs) + i*8
		q := lo + int(g.funcs) + int(g.record[i])
		if q < lo || q+recordLen > hi || p+8 > hi {
			continue
		}
		h := m.goName(uint64(q))
		le.PutUint32(m.o[p:], h)
		le.PutUint32(m.o[p+4:], h)
		le.PutUint32(m.o[q:], h)
		le.PutUint32(m.o[q+4:], h)
		for _, k := range []int{16, 20, 24, 32} {
			clear(m.o[q+k : q+k+4])
		}
		tabs := int(min(le.Uint32(m.b[q+28:]), 64)) + int(m.b[q+43])
		for k := 0; k < tabs && q+48+k*4 <= hi; k++ {
			if v := le.Uint32(m.b[q+44+k*4:]); v != 0 && v != 0xffffffff {
				le.PutUint32(m.o[q+44+k*4:], 1)
			}
		}
	}
}

// typelink replaces the places of types by their hashes (internal/abi.Type: two
// words of the machine, then 32 bits).
func (m *masker) typelink(lo, hi int) {
	hash := uint64(8)
	if m.f.wide {
		hash = 16
	}
	for p := lo; p+4 <= hi; p += 4 {
		off, ok := m.f.offset(m.f.goBases.Types + uint64(le.Uint32(m.b[p:])))
		if ok && m.f.goBases.Types != 0 && off+hash+4 <= uint64(len(m.b)) {
			copy(m.o[p:p+4], m.b[off+hash:])
		}
	}
}

// ModeOf returns how the code of a file is best read, whether the file has Go's tables,
// whether Predictor.Apart changes what is predicted, and whether all instructions have 32 bits.
func ModeOf(b []byte) (mode Mode, isGo, apart, words bool) {
	f, err := Parse(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return Plain, false, false, false
	}
	if f.machine != machineArm {
		return Plain, f.Go(), f.apart(), f.machine == machineArm64
	}
	// Nearly every A32 instruction has the condition "always".
	always, all := 0, 0
	for s := range f.disjointSections() {
		if s.class != classCode {
			continue
		}
		for p := s.off; p+4 <= s.off+s.size; p += 4 {
			all++
			if b[p+3]>>4 == 0xe {
				always++
			}
		}
	}
	if always*2 > all {
		return A32, f.Go(), f.apart(), true
	}
	return Plain, f.Go(), f.apart(), f.gotab != nil
}
