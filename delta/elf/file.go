// Package elf predicts how addresses in an executable change from one build to
// the next. It gets an old file and the matches of its ranges with ranges of the
// new one. It finds the places that hold addresses (branches, page pairs,
// pointers, tables) and predicts what the new file holds there.
//
// It reads files that may be damaged or hostile: everything is bounded, and a
// wrong prediction costs bytes, never correctness. It must not know how its
// predictions are coded.
package elf

import (
	"errors"
	"io"
	"sort"
)

// ErrFormat: a file is not an ELF file that this package understands.
var ErrFormat = errors.New("not an ELF file of a known machine")

// Machines (System V ABI, e_machine).
const (
	machineArm   = 40
	machineX86   = 62
	machineArm64 = 183
)

const (
	maxSegments = 64
	maxSections = 512
	maxNames    = 1 << 16
	headSize    = 4096 // the program headers lie within the first headSize bytes
)

type segment struct {
	off, addr, size, mem uint64 // size in the file, mem in memory
	exec, write          bool
}

type class uint8

const (
	classNone class = iota
	classCode
	classPlt
	classPcln
	classExidx
	classEhHdr
	classRel
	classSyms
	classPointers // .got, .data.rel.ro, .init_array, .dynamic
	classTypelink
	classBuildID
	classDebugLink
	classData
)

type section struct {
	off, size, addr uint64
	class           class
	entry           uint64
	rela            bool
	link            uint64 // offset of the string table
	linkSize        uint64
	plt             bool
}

// File is what is known about one file.
type File struct {
	machine  uint16
	size     int64
	wide     bool // 64-bit
	segments []segment
	sections []section // with content, by offset
	lo, hi   uint64    // addresses
	rw       uint64    // the lowest writable address
	text     section
	frame    section // .eh_frame
	gotab    *goTable
	goBases  GoBases

	findOff, findSize uint64 // of findfunctab, if it is understood

	r      io.ReaderAt
	blocks *[numBlocks]block // of a Go file, by offset
}

// block is a part of the file that was read.
type block struct {
	at    uint64 // the offset plus one; 0 if there is none
	bytes [blockSize]byte
}

const (
	numBlocks = 512
	blockSize = 512
)

// peek returns a byte of the file; 0 if it cannot be read.
func (f *File) peek(off uint64) byte {
	if f.blocks == nil {
		f.blocks = new([numBlocks]block)
	}
	at := off &^ (blockSize - 1)
	b := &f.blocks[at/blockSize%numBlocks]
	if b.at != at+1 {
		clear(b.bytes[:])
		if at < uint64(f.size) {
			_, _ = f.r.ReadAt(b.bytes[:min(blockSize, uint64(f.size)-at)], int64(at))
		}
		b.at = at + 1
	}
	return b.bytes[off%blockSize]
}

// word returns four bytes of the file; zeros take the place of what cannot be read.
func (f *File) word(off uint64) uint32 {
	return uint32(f.peek(off)) | uint32(f.peek(off+1))<<8 | uint32(f.peek(off+2))<<16 | uint32(f.peek(off+3))<<24
}

// Parse reads the tables of an ELF file of the given size. A predictor reads from r,
// too.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, min(size, headSize))
	if n, _ := r.ReadAt(head, 0); n < len(head) {
		return nil, ErrFormat
	}
	f, err := parseHead(head)
	if err != nil {
		return nil, err
	}
	f.size, f.r = size, r
	f.readSections(r, head, uint64(size))
	if s := f.find(classPcln); s != nil {
		if f.gotab = readGoTable(r, *s, f); f.gotab != nil {
			f.goBases = f.readGoBases(r)
			if f.goBases.Text != 0 {
				f.gotab.text = f.goBases.Text
			}
			f.findOff, f.findSize = f.readFindTable(r)
		}
	}
	return f, nil
}

// parseHead reads the file and the program headers.
func parseHead(b []byte) (*File, error) {
	if len(b) < 64 || string(b[:4]) != "\x7fELF" || b[5] != 1 {
		return nil, ErrFormat
	}

	f := &File{machine: le.Uint16(b[18:]), wide: b[4] == 2}
	switch {
	case f.machine == machineArm && !f.wide, f.machine == machineArm64 && f.wide, f.machine == machineX86 && f.wide:
	default:
		return nil, ErrFormat
	}
	phoff, phent, phnum := uint64(le.Uint32(b[28:])), uint64(le.Uint16(b[42:])), uint64(le.Uint16(b[44:]))
	want := uint64(32)
	if f.wide {
		phoff, phent, phnum = le.Uint64(b[32:]), uint64(le.Uint16(b[54:])), uint64(le.Uint16(b[56:]))
		want = 56
	}
	if phent != want || phnum == 0 || phnum > maxSegments || phoff > uint64(len(b)) || phoff+phent*phnum > uint64(len(b)) {
		return nil, ErrFormat
	}
	f.lo, f.rw = ^uint64(0), ^uint64(0)
	for i := range phnum {
		p := b[phoff+i*phent:]
		if le.Uint32(p) != 1 { // PT_LOAD
			continue
		}
		var s segment
		var flags uint32
		if f.wide {
			flags = le.Uint32(p[4:])
			s = segment{off: le.Uint64(p[8:]), addr: le.Uint64(p[16:]), size: le.Uint64(p[32:]), mem: le.Uint64(p[40:])}
		} else {
			flags = le.Uint32(p[24:])
			s = segment{off: uint64(le.Uint32(p[4:])), addr: uint64(le.Uint32(p[8:])), size: uint64(le.Uint32(p[16:])), mem: uint64(le.Uint32(p[20:]))}
		}
		const most = 1 << 47
		if s.off > most || s.addr > most || s.size > most || s.mem > most || s.mem < s.size {
			return nil, ErrFormat
		}
		s.exec, s.write = flags&1 != 0, flags&2 != 0
		f.segments = append(f.segments, s)
		f.lo, f.hi = min(f.lo, s.addr), max(f.hi, s.addr+s.mem)
		if s.write {
			f.rw = min(f.rw, s.addr)
		}
	}
	if len(f.segments) == 0 {
		return nil, ErrFormat
	}
	return f, nil
}

// readSections reads the valid part of the section table. If there is no table, it
// uses the segments instead.
func (f *File) readSections(r io.ReaderAt, b []byte, size uint64) {

	shoff, shent, shnum, shstr := uint64(le.Uint32(b[32:])), uint64(le.Uint16(b[46:])), uint64(le.Uint16(b[48:])), uint64(le.Uint16(b[50:]))
	want := uint64(40)
	if f.wide {
		shoff, shent, shnum, shstr = le.Uint64(b[40:]), uint64(le.Uint16(b[58:])), uint64(le.Uint16(b[60:])), uint64(le.Uint16(b[62:]))
		want = 64
	}
	if shent == want && shnum <= maxSections && shstr < shnum && shoff <= size && shnum*shent <= size-shoff {
		t := make([]byte, shnum*shent)
		if n, _ := r.ReadAt(t, int64(shoff)); n == len(t) {
			f.sectionTable(r, t, shent, shstr, size)
		}
	}
	if len(f.sections) == 0 {
		for _, s := range f.segments {
			c := classData
			if s.exec {
				c = classCode
			}
			if s.off < size && s.size <= size-s.off {
				f.sections = append(f.sections, section{off: s.off, size: s.size, addr: s.addr, class: c})
			}
		}
	}
	sort.SliceStable(f.sections, func(i, j int) bool { return f.sections[i].off < f.sections[j].off })
}

func (f *File) sectionTable(r io.ReaderAt, t []byte, ent, str, size uint64) {

	get := func(i uint64) (name, typ uint32, flags, addr, off, sz, es uint64) {
		h := t[i*ent:]
		if f.wide {
			return le.Uint32(h), le.Uint32(h[4:]), le.Uint64(h[8:]), le.Uint64(h[16:]), le.Uint64(h[24:]), le.Uint64(h[32:]), le.Uint64(h[56:])
		}
		return le.Uint32(h), le.Uint32(h[4:]), uint64(le.Uint32(h[8:])), uint64(le.Uint32(h[12:])), uint64(le.Uint32(h[16:])), uint64(le.Uint32(h[20:])), uint64(le.Uint32(h[36:]))
	}
	linkAt := uint64(24)
	if f.wide {
		linkAt = 40
	}
	_, _, _, _, off, sz, _ := get(str)
	if sz > maxNames || off > size || sz > size-off {
		return
	}
	names := make([]byte, sz)
	if n, _ := r.ReadAt(names, int64(off)); n < len(names) {
		return
	}
	for i := range uint64(len(t)) / ent {
		name, typ, flags, addr, off, sz, es := get(i)
		if typ == 0 || typ == 8 || off > size || sz > size-off || sz == 0 || uint64(name) >= uint64(len(names)) {
			continue
		}
		n := names[name:]
		for k, c := range n {
			if c == 0 {
				n = n[:k]
				break
			}
		}
		s := section{off: off, size: sz, addr: addr, entry: es, class: classOf(string(n), typ, flags)}
		s.rela = typ == 4
		s.plt = string(n) == ".rel.plt" || string(n) == ".rela.plt"
		switch string(n) {
		case ".text":
			f.text = s
		case ".eh_frame":
			f.frame = s
		}
		if l := uint64(le.Uint32(t[i*ent+linkAt:])); l < uint64(len(t))/ent && s.class == classSyms {
			if _, _, _, _, o, z, _ := get(l); o <= size && z <= size-o {
				s.link, s.linkSize = o, z
			}
		}
		if s.class != classNone {
			f.sections = append(f.sections, s)
		}
	}
}

func classOf(name string, typ uint32, flags uint64) class {
	const alloc, exec = 2, 4
	switch {
	case name == ".note.gnu.build-id":
		return classBuildID
	case name == ".gnu_debuglink":
		return classDebugLink
	case flags&alloc == 0 && typ != 2:
		return classNone
	case name == ".plt":
		return classPlt
	case flags&exec != 0:
		return classCode
	case name == ".gopclntab" || name == ".data.rel.ro.gopclntab":
		return classPcln
	case typ == 0x70000001 || name == ".ARM.exidx":
		return classExidx
	case name == ".eh_frame_hdr":
		return classEhHdr
	case typ == 9 || typ == 4:
		return classRel
	case typ == 2 || typ == 11:
		return classSyms
	case name == ".typelink":
		return classTypelink
	case name == ".got" || name == ".got.plt" || name == ".data.rel.ro" || typ == 14 || typ == 15 || typ == 16 || typ == 6:
		return classPointers
	}
	return classData
}

func (f *File) find(c class) *section {
	for i := range f.sections {
		if f.sections[i].class == c {
			return &f.sections[i]
		}
	}
	return nil
}

// addr returns the address of a file offset.
func (f *File) addr(off uint64) (uint64, bool) {
	for i := range f.segments {
		if s := &f.segments[i]; off >= s.off && off-s.off < s.size {
			return s.addr + off - s.off, true
		}
	}
	return 0, false
}

// offset returns the file offset of an address.
func (f *File) offset(addr uint64) (uint64, bool) {
	for i := range f.segments {
		if s := &f.segments[i]; addr >= s.addr && addr-s.addr < s.size {
			return addr - s.addr + s.off, true
		}
	}
	return 0, false
}

// within reports whether a value is an address of the file and not a small number.
func (f *File) within(a uint64) bool { return a >= 4096 && a >= f.lo && a < f.hi }

// section returns the section that an offset lies in, and how many bytes from the
// offset on the answer holds.
func (f *File) section(off uint64) (*section, uint64) {
	i := sort.Search(len(f.sections), func(i int) bool { return f.sections[i].off > off })
	next := ^uint64(0)
	if i < len(f.sections) {
		next = f.sections[i].off - off
	}
	if i > 0 {
		if s := &f.sections[i-1]; off-s.off < s.size {
			return s, min(next, s.size-(off-s.off))
		}
	}
	return nil, next
}

// Go reports whether the file has Go's tables.
func (f *File) Go() bool { return f.gotab != nil }
