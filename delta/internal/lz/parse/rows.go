package parse

import (
	"encoding/binary"
	"math/bits"

	"github.com/mender-app/mender-app/delta/internal/lz"
)

// rows is a finder that takes less time than trees, and misses some matches. For each hash
// of four and of eight bytes it has a row of the newest places, which is one line of the
// processor's cache. A byte of the hash beside each place tells most places apart, so that
// their bytes, which are not in the cache, need not be read.
type rows struct {
	shorts
	four, eight []row
	eightShift  int
	matches     []found
}

// row has the newest places first, and a byte of the hash of each, the newest lowest, in
// tags. It is 64 bytes long.
type row struct {
	tags   [2]uint64
	places [12]uint32
}

const (
	fourRows = 16 // bits of the hash of four bytes that choose a row
	nearRows = 16 // and of that of eight, for a window of lz.Window
	farRows  = 20 // and for a greater one
	tries    = 4  // places of a row that are compared
)

func newRows(window uint32) *rows {
	n := nearRows
	if window > lz.Window {
		n = farRows
	}
	return &rows{shorts: newShorts(window), four: make([]row, 1<<fourRows), eight: make([]row, 1<<n), eightShift: 64 - n}
}

func (f *rows) at(b []byte, i int, pos uint32, insert bool) []found {
	f.matches = f.matches[:0]
	most := min(len(b)-i, lz.MaxMatch)
	if most < 8 {
		return nil
	}
	w := binary.LittleEndian.Uint64(b[i:])
	h4, h8 := uint32(w)*0x85ebca6b, w*0x9e3779b97f4a7c15
	four, eight := &f.four[h4>>(32-fourRows)], &f.eight[h8>>f.eightShift]
	tag4, tag8 := uint64(h4<<fourRows>>24), h8>>(f.eightShift-8)&0xff
	var best int
	f.matches, best = f.short(f.matches, b, i, uint32(w), pos, most, insert)
	best = f.longest(four, tag4, b, i, pos, best, most)
	f.longest(eight, tag8, b, i, pos, best, most)
	if insert {
		four.enter(tag4, pos)
		eight.enter(tag8, pos)
	}
	return f.matches
}

// enter makes a place the newest.
func (r *row) enter(tag uint64, place uint32) {
	r.tags[1] = r.tags[1]<<8 | r.tags[0]>>56
	r.tags[0] = r.tags[0]<<8 | tag
	copy(r.places[1:], r.places[:len(r.places)-1])
	r.places[0] = place
}

// longest adds the matches of a row that are longer than best, and returns the length of
// the longest.
func (f *rows) longest(r *row, tag uint64, b []byte, i int, pos uint32, best, most int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	left, reach := tries, f.reach(i)
	for k, tags := range r.tags {
		// Each byte that is 0 has its top bit set in x afterwards, and sometimes a byte above it.
		x := tags ^ tag*ones
		for x = (x - ones) &^ x & tops; x != 0; x &= x - 1 {
			n := bits.TrailingZeros64(x)>>3 + k*8
			if n >= len(r.places) || left == 0 || best == most {
				return best
			}
			left--
			d := pos - r.places[n]
			if d-1 >= reach {
				return best
			}
			j := i - int(d)
			if b[j+best] != b[i+best] {
				continue
			}
			n = same(b, j, i, most)
			if n <= best {
				continue
			}
			best = n
			// What is farther away and shorter is of no use.
			for len(f.matches) > 0 && f.matches[len(f.matches)-1].dist >= d {
				f.matches = f.matches[:len(f.matches)-1]
			}
			f.matches = append(f.matches, found{uint32(n), d})
		}
	}
	return best
}

func (f *rows) peek(b []byte, i int, pos uint32) int {
	h4 := binary.LittleEndian.Uint32(b[i:]) * 0x85ebca6b
	return f.lengthAt(f.four[h4>>(32-fourRows)].places[0], b, i, pos)
}
