package align

import (
	"bytes"
	"encoding/binary"
)

// An index finds the suffixes of a file that are next to a text, in lexical order.
type index struct {
	old   []byte
	sa    []int32
	heads []int32 // where the suffixes begin that start with two bytes; nil for a small file
}

// manySuffixes is how many a file must have for a table of two bytes to be worth
// making.
const manySuffixes = 1 << 16

func newIndex(old []byte, sa []int32) index {
	x := index{old: old, sa: sa}
	if len(old) < manySuffixes {
		return x
	}
	x.heads = make([]int32, 1<<16+1)
	two := uint16(old[0])
	for _, c := range old[1:] {
		two = two<<8 | uint16(c)
		x.heads[int(two)+1]++
	}
	x.heads[int(two)<<8&0xffff+1]++ // the last byte comes before all that continue it
	for i := range 1 << 16 {
		x.heads[i+1] += x.heads[i]
	}
	return x
}

// around returns two neighbours in sa, between which s would be.
func (x *index) around(s []byte) (lo, hi int) {
	hi = len(x.sa) - 1
	if x.heads != nil && len(s) >= 2 {
		two := int(binary.BigEndian.Uint16(s))
		lo = min(max(int(x.heads[two])-1, 0), len(x.sa)-2)
		hi = min(max(int(x.heads[two+1]), lo+1), len(x.sa)-1)
	}
	for hi-lo >= 2 {
		m := lo + (hi-lo)/2
		if less(x.old[x.sa[m]:], s) {
			lo = m
		} else {
			hi = m
		}
	}
	return lo, hi
}

// less reports whether a is less than s, as far as both reach.
func less(a, s []byte) bool {
	if len(a) >= 8 && len(s) >= 8 {
		// Most differ here, and this takes no call.
		if x, y := binary.BigEndian.Uint64(a), binary.BigEndian.Uint64(s); x != y {
			return x < y
		}
	}
	n := min(len(a), len(s))
	return bytes.Compare(a[:n], s[:n]) < 0
}
