package elf

import (
	"bytes"
	"io"
	"sort"
)

// runtime.findfunctab maps an address to its function (runtime/symtab.go,
// findfuncbucket; cmd/link/internal/ld/pcln.go, findfunctab). It has a bucket for
// every 4096 bytes of code: the number of a function in 32 bits, and for every 256
// of these bytes the number of the first function there minus that of the bucket,
// in 8 bits. It can be computed from the table of functions. Since Go 1.26 it comes
// after that table in the file.
const (
	buckets    = 16
	bucketLen  = 4 + buckets
	bucketCode = 256
)

// findTableLen returns the length of the table for a number of bytes of code.
func findTableLen(code uint32) uint64 {
	n := (uint64(code) + bucketCode - 1) / bucketCode
	return n + 4*((n+buckets-1)/buckets)
}

// findTable fills b with the table's bytes from an offset on. The last of the
// entries is the end of the code.
func findTable(b []byte, at uint64, entries []uint32) {
	number := func(k uint64) uint32 { // of the function at a step of 256 bytes
		code := k * bucketCode
		i := sort.Search(len(entries)-1, func(i int) bool { return uint64(entries[i]) > code })
		return uint32(max(i, 1) - 1)
	}
	for len(b) > 0 {
		first := at / bucketLen * buckets
		base := number(first)
		var bucket [bucketLen]byte
		le.PutUint32(bucket[:], base)
		for j := range uint64(buckets) {
			bucket[4+j] = byte(number(first+j) - base)
		}
		n := copy(b, bucket[at%bucketLen:])
		b, at = b[n:], at+uint64(n)
	}
}

// readFindTable finds the table and returns its offset and length. The length is 0
// if the file has no valid table.
func (f *File) readFindTable(r io.ReaderAt) (off, size uint64) {
	g := f.gotab
	off, ok := f.offset(f.goBases.Find)
	n := uint64(len(g.entry))
	if !ok || off < g.off+g.funcs+8*n+4 || off >= g.off+g.size {
		return 0, 0
	}
	var end [4]byte
	if k, _ := r.ReadAt(end[:], int64(g.off+g.funcs+8*n)); k < len(end) {
		return 0, 0
	}
	entries := append(g.entry, le.Uint32(end[:]))
	size = findTableLen(entries[n])
	if size > g.off+g.size-off {
		return 0, 0
	}
	var is, should [64 * bucketLen]byte
	for at := uint64(0); at < size; at += uint64(len(is)) {
		k := min(uint64(len(is)), size-at)
		findTable(should[:k], at, entries)
		if m, _ := r.ReadAt(is[:k], int64(off+at)); uint64(m) < k || !bytes.Equal(is[:k], should[:k]) {
			return 0, 0
		}
	}
	return off, size
}

// newTables is what is known about the new file's tables of functions. It is read
// from the file's bytes as they arrive.
type newTables struct {
	tab, find uint64 // offsets of the table of functions and of findfunctab; 0 if there is none
	header    [8 + 8*8]byte
	funcs     uint64   // offset of the entries, once the header is there
	entries   []uint32 // and the end of the code
	next      int64    // the next offset
	filled    int      // bytes of the entries
}

// See gets the bytes of the new file, in order and without a gap, from its
// beginning.
func (p *Predictor) See(at int64, b []byte) {
	t := &p.tables
	if t.find == 0 {
		return
	}
	if t.next != at && t.next != 0 || uint64(at) > t.tab && t.funcs == 0 {
		t.find = 0 // a part is missing
		return
	}
	t.next = at + int64(len(b))
	end := t.tab + uint64(len(t.header))
	if uint64(t.next) > t.tab && uint64(at) < end {
		lo, hi := max(uint64(at), t.tab), min(uint64(t.next), end)
		copy(t.header[lo-t.tab:], b[lo-uint64(at):hi-uint64(at)])
		if hi == end {
			t.begin(p.o.wide, p.space)
		}
	}
	if t.funcs == 0 || t.find == 0 {
		return
	}
	end = t.funcs + 8*uint64(len(t.entries)) - 4
	if lo, hi := max(uint64(at), t.funcs), min(uint64(t.next), end); lo < hi {
		for ; lo < hi; lo++ {
			rel := lo - t.funcs
			if rel&4 == 0 {
				e := &t.entries[rel/8]
				*e = *e>>8 | uint32(b[lo-uint64(at)])<<24
			}
		}
		t.filled = int(hi - t.funcs)
	}
}

// begin reads the header of the table.
func (t *newTables) begin(wide bool, space *Space) {
	word := func(i int) uint64 {
		if wide {
			return le.Uint64(t.header[8+8*i:])
		}
		return uint64(le.Uint32(t.header[8+4*i:]))
	}
	n, funcs := word(0), word(7)
	if n == 0 || n > maxFuncs || funcs < uint64(len(t.header)) || funcs > maxStep {
		t.find = 0
		return
	}
	if uint64(cap(space.entries)) < n+1 {
		space.entries = make([]uint32, n+1)
	}
	t.entries = space.entries[:n+1]
	clear(t.entries)
	t.funcs = t.tab + funcs
}

// scanFind appends fields for findfunctab, for a place in the new file, and returns
// how many bytes they take from at on.
func (p *Predictor) scanFind(fields []Field, old []byte, at int, q uint64) ([]Field, int) {
	t := &p.tables
	if t.find == 0 || t.funcs == 0 || t.filled < 8*len(t.entries)-4 || q < t.find {
		return fields, 0
	}
	rel, size := q-t.find, findTableLen(t.entries[len(t.entries)-1])
	if rel >= size {
		return fields, 0
	}
	n := int(min(uint64(len(old)-at), size-rel))
	for k := 0; k < n; {
		l := min(bucketLen-int((rel+uint64(k))%bucketLen), n-k)
		fields = append(fields, Field{Off: int32(at + k), Len: uint8(l), Kind: kindGo + goFind, key: rel + uint64(k)})
		k += l
	}
	return fields, n
}
