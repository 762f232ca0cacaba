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
		p := Part{Off: int64(s.off), Size: int64(s.size)}
		switch {
		case s.class == classCode || s.class == classPlt:
			p.Kind = f.codeKind(s)
		case s.class == classEhHdr && s.size > 12:
			p.Kind, p.Off, p.Size = Pairs, p.Off+12, p.Size-12
		case s.class == classRel && s.rela && f.wide:
			p.Kind = Triples
		case s.class == classRel && !s.rela && !f.wide:
			p.Kind = Pairs
		default:
			continue
		}
		if s.off >= end && s.size <= uint64(size) && s.off <= uint64(size)-s.size {
			parts = append(parts, p)
			end = s.off + s.size
		}
	}
	return parts
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
