package elf

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// Unwind tables (LSB, 10.6): .eh_frame has a record for each function (FDE), and
// .eh_frame_hdr a sorted table of these. The table follows from the records. In the
// records, the places of functions, the distances to the record that several share
// (CIE) and to the table of call sites (LSDA) follow from the order of the records,
// the sizes of functions, and few other numbers.

// UnwindRow is what is known about one FDE. Addresses are relative to that of
// .eh_frame_hdr, modulo 2^32.
type UnwindRow struct {
	At   uint32 // where it begins in .eh_frame
	PC   uint32 // the function
	Size uint32 // of the function
	LSDA uint32 // its table of call sites; 0 if it has none
	Len  uint16 // of the FDE, without the four bytes that hold it
	CIE  uint16 // which of CIEs
}

// Unwind is what is known about the unwind tables of a file.
type Unwind struct {
	Head  int64  // offset of .eh_frame_hdr
	Frame int64  // of .eh_frame
	Align uint32 // the last six bits of the address of .eh_frame_hdr
	Rows  []UnwindRow
	CIEs  []UnwindCIE
	// Table is how many entries the sorted table has. Unique says that rows of the same
	// function have one entry, the first.
	Table  int
	Unique bool
	// Spacing is the alignment of most functions, and Scale that of most sizes, as
	// powers of two.
	Spacing, Scale uint8

	order []uint32 // of the rows in the sorted table
}

// UnwindCIE is what the FDEs of a CIE have in common.
type UnwindCIE struct {
	At   uint32 // where it begins in .eh_frame
	LSDA uint8  // how many bytes the distance to an LSDA has: 0, 4 or 8
}

// Limits of what is read and of what a delta may say.
const (
	MaxUnwindRows = 3 << 16
	MaxUnwindCIEs = 1<<16 - 2 // so that the index of one more fits in 16 bits
	maxUnwindLen  = 1<<16 - 1
	maxUnwindSize = 1 << 30
)

const (
	unwindHeader = 12         // bytes before the sorted table
	unwindFirst  = 0x3b031b01 // version 1, pcrel sdata4, udata4, datarel sdata4
	pcrel4       = 0x1b       // pcrel sdata4
	pcrel8       = 0x1c       // pcrel sdata8
)

// IgnoreUnwind makes predictors leave the unwind tables as they are.
func (f *File) IgnoreUnwind() {
	if s := f.find(classEhHdr); s != nil {
		s.class = classNone
	}
}

// minUnwindRows is the least number of FDEs that make it worth to know them.
const minUnwindRows = 8

// ReadUnwind reads the unwind tables of a file; it returns nil if the file has none
// that are understood. An error of r is taken for the end of what is understood.
func ReadUnwind(r io.ReaderAt, size int64) *Unwind {
	f, err := Parse(r, size)
	if err != nil {
		return nil
	}
	return f.Unwind()
}

// Unwind is ReadUnwind of a file that was parsed.
func (f *File) Unwind() *Unwind {
	h, s := f.find(classEhHdr), &f.frame
	if h == nil || f.size > math.MaxInt32 || s.size < 16 || h.size <= unwindHeader || h.addr-h.off != s.addr-s.off || s.size > maxUnwindSize || h.size > maxUnwindSize || s.off+s.size > uint64(f.size) || h.off+h.size > uint64(f.size) {
		return nil
	}
	var head [unwindHeader]byte
	if n, _ := f.r.ReadAt(head[:], int64(h.off)); n < len(head) || le.Uint32(head[:]) != unwindFirst {
		return nil
	}
	u := &Unwind{Head: int64(h.off), Frame: int64(s.off), Align: uint32(h.addr & 63)}
	u.Table = int(min(uint64(le.Uint32(head[8:])), (h.size-unwindHeader)/8))
	u.Rows = make([]UnwindRow, 0, min(u.Table, MaxUnwindRows))
	u.readFrame(bufio.NewReaderSize(io.NewSectionReader(f.r, u.Frame, int64(s.size)), 1<<16))
	if len(u.Rows) < minUnwindRows {
		return nil
	}
	u.rename()
	u.measure()
	u.Unique = true
	if u.Sort(); len(u.order) != u.Table {
		u.Unique = false
		u.Sort()
	}
	return u
}

// readFrame reads the records of .eh_frame as far as they are understood.
func (u *Unwind) readFrame(r *bufio.Reader) {
	base := uint32(u.Frame - u.Head)
	for at := uint32(0); len(u.Rows) < MaxUnwindRows; {
		b, _ := r.Peek(64)
		if len(b) < 20 {
			return
		}
		n := le.Uint32(b)
		if n < 12 || n > 1<<24 {
			return // the end, or a record of 64 bits
		}
		if id := le.Uint32(b[4:]); id == 0 {
			if lsda, ok := understood(b[8:min(uint64(len(b)), 4+uint64(n))]); ok && len(u.CIEs) < MaxUnwindCIEs {
				u.CIEs = append(u.CIEs, UnwindCIE{at, lsda})
			}
		} else if k, ok := slices.BinarySearchFunc(u.CIEs, at+4-id, func(c UnwindCIE, at uint32) int { return cmp.Compare(c.At, at) }); ok && n <= maxUnwindLen {
			row := UnwindRow{At: at, Len: uint16(n), CIE: uint16(k), PC: base + at + 8 + le.Uint32(b[8:]), Size: le.Uint32(b[12:])}
			if w := u.CIEs[k].LSDA; w > 0 && n >= 13+uint32(w) && len(b) >= 25 && b[16] == w {
				if v := le.Uint32(b[17:]); v != 0 {
					row.LSDA = base + at + 17 + v
				}
			}
			u.Rows = append(u.Rows, row)
		}
		if k, _ := r.Discard(int(n) + 4); k < int(n)+4 {
			return
		}
		at += n + 4
	}
}

// understood reports whether the FDEs of a CIE, from its version on, hold addresses
// relative to their place in 32 bits; and how many bytes the distance to their LSDA has,
// if that is relative too.
func understood(b []byte) (lsda uint8, ok bool) {
	if len(b) < 2 || b[0] != 1 || b[1] != 'z' {
		return 0, false
	}
	end := slices.Index(b[1:], 0)
	if end < 0 {
		return 0, false
	}
	letters := b[2 : 1+end]
	b = b[2+end:]
	for range 4 { // alignment of code and of data, return address, length of what follows
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
	}
	for _, c := range letters {
		if len(b) == 0 {
			return 0, false
		}
		switch c {
		case 'R':
			ok = b[0] == pcrel4
			b = b[1:]
		case 'L':
			switch b[0] {
			case pcrel4:
				lsda = 4
			case pcrel8:
				lsda = 8
			}
			b = b[1:]
		case 'P':
			n := 5
			if b[0]&7 == 0 || b[0]&7 == 4 {
				n = 9
			}
			if len(b) < n {
				return 0, false
			}
			b = b[n:]
		case 'S', 'B':
		default:
			return 0, false
		}
	}
	return lsda, ok
}

// Sort makes the sorted table. It is called once the rows are known.
func (u *Unwind) Sort() {
	if u.order == nil {
		u.order = make([]uint32, len(u.Rows))
	}
	u.order = u.order[:len(u.Rows)]
	for i := range u.order {
		u.order[i] = uint32(i)
	}
	sort.Stable(byPlace{u})
	if u.Unique {
		u.order = slices.CompactFunc(u.order, func(a, b uint32) bool { return u.Rows[a].PC == u.Rows[b].PC })
	}
}

type byPlace struct{ *Unwind }

func (u byPlace) Len() int      { return len(u.order) }
func (u byPlace) Swap(i, j int) { u.order[i], u.order[j] = u.order[j], u.order[i] }
func (u byPlace) Less(i, j int) bool {
	return int32(u.Rows[u.order[i]].PC) < int32(u.Rows[u.order[j]].PC)
}

// Order returns the rows in the order of their functions.
func (u *Unwind) Order() []uint32 { return u.order }

// Toggle replaces what is known of b, the bytes at an offset of the file, by its
// difference to what the file has: zeros, where the rows are right. A second call
// restores the bytes.
func (u *Unwind) Toggle(off int64, b []byte) {
	u.toggleTable(off, b)
	u.toggleFrame(off, b)
}

// xor changes the bytes of a word at an offset relative to b that lie in b.
func xor(b []byte, at int64, w uint32) {
	if at >= 0 && at+4 <= int64(len(b)) {
		p := b[at : at+4]
		le.PutUint32(p, le.Uint32(p)^w)
		return
	}
	for k := range int64(4) {
		if at+k >= 0 && at+k < int64(len(b)) {
			b[at+k] ^= byte(w >> (8 * k))
		}
	}
}

func (u *Unwind) toggleTable(off int64, b []byte) {
	at := u.Head - off // of the table, in b
	n := min(u.Table, len(u.order))
	if at >= int64(len(b)) || at+unwindHeader+8*int64(n) <= 0 {
		return
	}
	frame := uint32(u.Frame - u.Head)
	xor(b, at, unwindFirst)
	xor(b, at+4, frame-4)
	xor(b, at+8, uint32(u.Table))
	at += unwindHeader
	first := int(max(0, -at/8))
	for i := first; i < n; i++ {
		k := at + 8*int64(i)
		if k >= int64(len(b)) {
			return
		}
		row := &u.Rows[u.order[i]]
		xor(b, k, row.PC)
		xor(b, k+4, frame+row.At)
	}
}

// knownOfFDE is how many bytes of an FDE may be known.
const knownOfFDE = 25

func (u *Unwind) toggleFrame(off int64, b []byte) {
	at := u.Frame - off
	frame := uint32(u.Frame - u.Head)
	i := sort.Search(len(u.Rows), func(i int) bool { return at+int64(u.Rows[i].At)+knownOfFDE > 0 })
	for ; i < len(u.Rows); i++ {
		row := &u.Rows[i]
		k := at + int64(row.At)
		if k >= int64(len(b)) {
			return
		}
		xor(b, k, uint32(row.Len))
		xor(b, k+4, row.At+4-u.CIEs[row.CIE].At)
		xor(b, k+8, row.PC-(frame+row.At+8))
		xor(b, k+12, row.Size)
		if row.LSDA != 0 {
			d := row.LSDA - (frame + row.At + 17)
			xor(b, k+17, d)
			if u.CIEs[row.CIE].LSDA == 8 {
				xor(b, k+21, uint32(int32(d)>>31))
			}
		}
	}
}

// measure finds Spacing and Scale: what seven of eight functions have.
func (u *Unwind) measure() {
	var places, sizes [7]int
	for i := range u.Rows {
		places[min(bits.TrailingZeros32(u.Rows[i].PC+u.Align), 6)]++
		sizes[min(bits.TrailingZeros32(u.Rows[i].Size), 2)]++
	}
	least := func(counts []int) uint8 {
		left := len(u.Rows)
		for k := range counts {
			if left -= counts[k]; left < len(u.Rows)-len(u.Rows)/8 {
				return uint8(k)
			}
		}
		return uint8(len(counts) - 1)
	}
	u.Spacing, u.Scale = least(places[:]), least(sizes[:3])
}

// rename numbers the CIEs in the order in which rows use them, and drops the others.
func (u *Unwind) rename() {
	all := u.CIEs
	u.CIEs = nil
	to := make([]int, len(all))
	for i := range u.Rows {
		c := &u.Rows[i].CIE
		if to[*c] == 0 {
			u.CIEs = append(u.CIEs, all[*c])
			to[*c] = len(u.CIEs)
		}
		*c = uint16(to[*c] - 1)
	}
}
