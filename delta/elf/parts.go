package elf

import "io"

// PartKind says what a part of a file consists of.
type PartKind uint8

const (
	CodeA32 PartKind = iota
	CodeThumb
	CodeA64
	CodeX86
	// Pairs is a table whose entries are two words of 32 bits, Triples one whose
	// entries are three words of 64 bits.
	Pairs
	Triples
	// GoFunctions is Go's table of functions and their records, and GoSequences what
	// these point to, of Go 1.20 and later.
	GoFunctions
	GoSequences
)

// Part is a part of a file.
type Part struct {
	Off, Size int64
	Kind      PartKind
}

// maxSample is how much of a section is read to tell A32 from Thumb.
const maxSample = 64 << 10

// Parts returns the code and the tables of an ELF file, in order and without
// overlaps; none if it is no ELF file.
func Parts(r io.ReaderAt, size int64) []Part {
	f, err := Parse(r, size)
	if err != nil {
		return nil
	}
	var parts []Part
	end := uint64(0)
	for i := range f.sections {
		s := &f.sections[i]
		if s.off < end || s.size > uint64(size) || s.off > uint64(size)-s.size {
			continue
		}
		if found := f.partsOf(s); len(found) > 0 {
			parts = append(parts, found...)
			end = s.off + s.size
		}
	}
	return parts
}

// partsOf returns the parts of a section.
func (f *File) partsOf(s *section) []Part {
	part := func(kind PartKind, begin, end uint64) Part {
		return Part{Off: int64(s.off + begin), Size: int64(end - begin), Kind: kind}
	}
	switch {
	case s.class == classCode || s.class == classPlt:
		return []Part{part(f.codeKind(s), 0, s.size)}
	case s.class == classEhHdr && s.size > 12:
		return []Part{part(Pairs, 12, s.size)}
	case s.class == classRel && s.rela && f.wide:
		return []Part{part(Triples, 0, s.size)}
	case s.class == classRel && !s.rela && !f.wide:
		return []Part{part(Pairs, 0, s.size)}
	case s.class == classPcln && f.gotab != nil && f.gotab.off == s.off && f.gotab.version == goMagic20:
		g := f.gotab
		functions := part(GoFunctions, g.funcs, s.size)
		if g.pcs >= g.funcs {
			return []Part{functions}
		}
		return []Part{part(GoSequences, g.pcs+1, g.funcs), functions} // a zero comes first
	}
	return nil
}

// codeKind tells which instructions a section has. On arm it counts calls.
func (f *File) codeKind(s *section) PartKind {
	switch f.machine {
	case machineX86:
		return CodeX86
	case machineArm64:
		return CodeA64
	}
	b := make([]byte, min(s.size, maxSample))
	n, _ := f.r.ReadAt(b, int64(s.off))
	b = b[:n]
	a32, thumb := 0, 0
	for i := 0; i+4 <= len(b); i += 2 {
		w := le.Uint32(b[i:])
		if i&3 == 0 && w>>24 == 0xeb {
			a32++
		}
		if w>>11&31 == 0x1e && w>>30 == 3 {
			thumb++
		}
	}
	if a32 > thumb {
		return CodeA32
	}
	return CodeThumb
}
