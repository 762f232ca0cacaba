package align

import (
	"bytes"
	"encoding/binary"
)

// around returns two neighbours in the array, between which s would be.
func (x *order) around(s []byte) (lo, hi int) {
	hi = len(x.sa) - 1
	if x.heads != nil && len(s) >= 4 {
		h := x.headOf(s)
		lo = min(max(int(x.heads[h])-1, 0), len(x.sa)-2)
		hi = min(max(int(x.heads[h+1]), lo+1), len(x.sa)-1)
	}
	for hi-lo >= 2 {
		m := lo + (hi-lo)/2
		if less(x.old[x.at(m):], s) {
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
