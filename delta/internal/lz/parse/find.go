package parse

import (
	"encoding/binary"
	"math/bits"

	"github.com/mender-app/mender-app/delta/internal/lz"
)

// A found match: a distance, and how many bytes are the same there.
type found struct{ length, dist uint32 }

// shorts finds the newest place of the same two and of the same three bytes.
type shorts struct {
	two, three []uint32
	window     uint32 // bytes that a match may lie back
}

func newShorts(window uint32) shorts {
	return shorts{make([]uint32, 1<<twoBits), make([]uint32, 1<<threeBits), window}
}

// reach is how far back a match of the bytes at b[i] may lie.
func (f *shorts) reach(i int) uint32 { return uint32(min(i, int(f.window-1))) }

// short adds the matches of the bytes w at b[i], which is at pos, and enters the place if
// insert is set. It returns the length of the longest, at least 3.
func (f *shorts) short(matches []found, b []byte, i int, w, pos uint32, most int, insert bool) ([]found, int) {
	h2, h3 := w&0xffff, w<<8*0x9e3779b1>>(32-threeBits)
	best := 1
	for k, c := range [2]uint32{f.two[h2], f.three[h3]} {
		if d := pos - c; d-1 < f.reach(i) {
			if n := same(b, i-int(d), i, most); n > best && n >= k+2 {
				best = n
				matches = append(matches, found{uint32(n), d})
			}
		}
	}
	if insert {
		f.two[h2], f.three[h3] = pos, pos
	}
	return matches, max(best, 3)
}

// lengthAt returns the length of the match at place c; 0 if that is out of reach.
func (f *shorts) lengthAt(c uint32, b []byte, i int, pos uint32) int {
	d := pos - c
	if d-1 >= f.reach(i) {
		return 0
	}
	return same(b, i-int(d), i, min(len(b)-i, lz.MaxMatch))
}

// trees finds earlier places of the same bytes. For each hash of four bytes it has
// a binary tree of places, which is sorted by what follows them, the newest place at
// its root.
type trees struct {
	shorts
	four      []uint32
	son       []uint32 // two for each place of the window
	fourShift int      // of a hash of four bytes
	depth     int      // how many places of a tree are compared
	matches   []found
}

const (
	twoBits   = 16
	threeBits = 18
	fourBits  = 20
	manyBits  = 22 // instead of fourBits, from so many places on: less lies in each tree
	manyFrom  = 8 << 20
)

// newTrees returns a finder that has room for size places at first, and for those of
// the window at most.
func newTrees(depth int, window uint32, size int64) *trees {
	bits := fourBits
	if size >= manyFrom {
		bits = manyBits
	}
	f := &trees{shorts: newShorts(window), depth: depth, four: make([]uint32, 1<<bits), fourShift: 32 - bits}
	f.grow(size)
	for _, t := range [][]uint32{f.two, f.three, f.four} {
		for i := range t {
			t[i] = f.none(0)
		}
	}
	return f
}

// grow makes room for places.
func (f *trees) grow(places int64) {
	son := make([]uint32, 2*min(places, int64(f.window)))
	copy(son, f.son)
	f.son = son
}

// none is a place that is out of reach from pos and all later places.
func (f *trees) none(pos uint32) uint32 { return pos - f.window }

// at returns the longest match of each length, longer ones farther back, for the
// bytes at b[i], which is at pos. It enters the place if insert is set; then at least
// lz.MaxMatch bytes follow.
func (f *trees) at(b []byte, i int, pos uint32, insert bool) []found {
	f.matches = f.matches[:0]
	most := min(len(b)-i, lz.MaxMatch)
	if most < 4 {
		return nil
	}
	w := binary.LittleEndian.Uint32(b[i:])
	h4, mask, reach := w*0x85ebca6b>>f.fourShift, f.window-1, f.reach(i)
	var best int
	f.matches, best = f.short(f.matches, b, i, w, pos, most, insert)
	c := f.four[h4]
	if p := int(pos & mask); 2*p >= len(f.son) {
		f.grow(int64(p) + max(int64(p)/4, 1<<16))
	}
	less, more := pos&mask<<1, pos&mask<<1|1 // where the next smaller and larger place go
	if insert {
		f.four[h4] = pos
	}
	sameLess, sameMore := 0, 0
	for range f.depth {
		d := pos - c
		if d-1 >= reach {
			break
		}
		j := i - int(d)
		n := min(sameLess, sameMore)
		n += same(b, j+n, i+n, most-n)
		if n > best {
			best = n
			f.matches = append(f.matches, found{uint32(n), d})
		}
		s := c & mask << 1
		if n == most {
			if insert {
				f.son[less], f.son[more] = f.son[s], f.son[s|1]
			}
			return f.matches
		}
		if b[j+n] < b[i+n] {
			if insert {
				f.son[less] = c
			}
			less, c, sameLess = s|1, f.son[s|1], n
		} else {
			if insert {
				f.son[more] = c
			}
			more, c, sameMore = s, f.son[s], n
		}
	}
	if insert {
		f.son[less], f.son[more] = f.none(pos), f.none(pos)
	}
	return f.matches
}

// peek returns the length of the match with the last place of the same hash. At least
// four bytes follow.
func (f *trees) peek(b []byte, i int, pos uint32) int {
	h4 := binary.LittleEndian.Uint32(b[i:]) * 0x85ebca6b >> f.fourShift
	return f.lengthAt(f.four[h4], b, i, pos)
}

// same returns how many bytes at b[i] and b[j] are the same, at most most.
func same(b []byte, i, j, most int) int {
	n := 0
	for n+8 <= most {
		if x := binary.LittleEndian.Uint64(b[i+n:]) ^ binary.LittleEndian.Uint64(b[j+n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < most && b[i+n] == b[j+n] {
		n++
	}
	return n
}
