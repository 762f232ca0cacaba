package align

import (
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
)

// An order is the suffix array of an old file, which is sorted only where somebody
// looks: a new file that differs little from it is searched for at few places.
//
// At first, the suffixes are in groups by their first bits. To tell which suffix is at
// a place, its group is divided as by quicksort (Bentley and Sedgewick, "Fast
// Algorithms for Sorting and Searching Strings", 1997), and so on with the part that
// has the place. The other parts stay as they are. When that takes too much work, the
// whole array is sorted instead.
type order struct {
	ctx   context.Context // if it is done, the array is of no use
	old   []byte
	sa    []int32
	bits  int         // how many first bits there is a table of
	heads []int32     // where the suffixes begin that start with them; nil for a small file
	first []uint64    // a bit for each place where a group begins; nil if everything is sorted
	depth map[int]int // how many bytes are equal in a group that begins at a place, if not firstDepth

	work, most int // suffixes that were compared with others, and how many may be
}

const (
	manySuffixes = 1 << 16 // a smaller file has no table
	fewBits      = 16
	hugeFile     = 1 << 22 // a smaller file is sorted at once
	moreBits     = 20
	firstDepth   = 2  // bytes
	smallGroup   = 16 // a group of this size is sorted at once
	keyLen       = 7  // bytes that are compared at once
)

// allow tells which part of the search has been done. The work may be up to ten for each
// suffix, a tenth of it at the beginning: sorting everything takes about as long.
func (x *order) allow(done, all int) {
	x.most = len(x.old) + 9*int(float64(len(x.old))*float64(done)/float64(all))
}

func newOrder(ctx context.Context, old []byte) (*order, error) {
	x := &order{ctx: ctx, old: old, sa: make([]int32, len(old)), most: len(old)}
	switch {
	case len(old) < manySuffixes:
		return x, x.sort()
	case len(old) < hugeFile:
		x.count(fewBits)
		return x, x.sort()
	}
	x.count(moreBits)
	x.fill()
	return x, ctx.Err()
}

// count makes the table of first bits.
func (x *order) count(bits int) {
	x.bits = bits
	x.heads = make([]int32, 1<<bits+1)
	for i := range x.old {
		x.heads[x.head(i)+1]++
	}
	for h := range 1 << bits {
		x.heads[h+1] += x.heads[h]
	}
}

// fill puts the suffixes into groups by their first bits, in the order of the file.
func (x *order) fill() {
	n := int32(len(x.old))
	x.first = make([]uint64, n/64+1)
	x.depth = map[int]int{}
	at := slices.Clone(x.heads)
	for _, k := range at {
		x.begin(int(k))
	}
	// The last byte is less than all suffixes that it begins. It is a group by itself,
	// because it is shorter than firstDepth.
	last := x.head(int(n) - 1)
	x.sa[at[last]] = n - 1
	at[last]++
	x.begin(int(at[last]))
	for i := range n - 1 {
		h := x.head(int(i))
		x.sa[at[h]] = i
		at[h]++
	}
}

// sort sorts the whole array.
func (x *order) sort() error {
	x.first, x.depth = nil, nil
	err := sortSuffixes(x.ctx, x.old, x.sa, 256)
	if err != nil {
		clear(x.sa)
	}
	return err
}

// head returns the first bits of a suffix. Zeros follow the end of the file.
func (x *order) head(i int) int {
	var b [4]byte
	if i+4 <= len(x.old) {
		b = [4]byte(x.old[i:])
	} else {
		copy(b[:], x.old[i:])
	}
	return x.headOf(b[:])
}

func (x *order) headOf(b []byte) int { return int(binary.BigEndian.Uint32(b) >> uint(32-x.bits)) }

func (x *order) begin(k int)       { x.first[k/64] |= 1 << uint(k%64) }
func (x *order) begins(k int) bool { return x.first[k/64]>>uint(k%64)&1 != 0 }

// at returns the suffix at place k of the array.
func (x *order) at(k int) int {
	if x.first != nil && !(x.begins(k) && x.begins(k+1)) {
		x.settle(k)
	}
	return int(x.sa[k])
}

// settle divides the group that has place k until the suffix at that place is known, or
// sorts everything.
func (x *order) settle(k int) {
	lo, hi := x.group(k)
	depth := firstDepth
	if d, ok := x.depth[lo]; ok {
		depth = d
		delete(x.depth, lo)
	}
	for hi-lo > smallGroup {
		if x.work > x.most {
			_ = x.sort() // the search looks at ctx
			return
		}
		a, b := x.divide(lo, hi, depth)
		x.leave(lo, a, k, depth)
		x.leave(a, b, k, depth+keyLen)
		x.leave(b, hi, k, depth)
		switch {
		case k < a:
			hi = a
		case k >= b:
			lo = b
		default:
			lo, hi, depth = a, b, depth+keyLen
		}
	}
	group := x.sa[lo:hi]
	for i := 1; i < len(group); i++ {
		for j := i; j > 0 && x.less(int(group[j])+depth, int(group[j-1])+depth); j-- {
			group[j], group[j-1] = group[j-1], group[j]
		}
	}
	for i := lo; i < hi; i++ {
		x.begin(i)
	}
}

// leave makes a group of the places from lo to hi. If it does not have place k, it
// stays as it is for now, and depth bytes are equal in it.
func (x *order) leave(lo, hi, k, depth int) {
	if lo == hi {
		return
	}
	x.begin(lo)
	if hi-lo > smallGroup && (k < lo || k >= hi) {
		x.depth[lo] = depth
	}
}

// group returns where the group begins that has place k, and where it ends.
func (x *order) group(k int) (lo, hi int) {
	w := k / 64
	word := x.first[w] << uint(63-k%64) >> uint(63-k%64)
	for word == 0 {
		w--
		word = x.first[w]
	}
	lo = 64*w + bits.Len64(word) - 1
	w = (k + 1) / 64
	word = x.first[w] >> uint((k+1)%64) << uint((k+1)%64)
	for word == 0 {
		w++
		word = x.first[w]
	}
	return lo, 64*w + bits.TrailingZeros64(word)
}

// divide moves the suffixes of a group, of which depth bytes are equal, into three
// parts: what comes before one of them by the next bytes, from a on those with the same
// next bytes, and from b on what comes after.
func (x *order) divide(lo, hi, depth int) (a, b int) {
	x.work += hi - lo
	one, two, three := x.key(x.sa[lo], depth), x.key(x.sa[lo+(hi-lo)/2], depth), x.key(x.sa[hi-1], depth)
	pivot := max(min(one, two), min(max(one, two), three))
	sa := x.sa
	a, b = lo, hi
	for i := lo; i < b; {
		p := sa[i]
		switch k := x.key(p, depth); {
		case k < pivot:
			sa[i], sa[a] = sa[a], p
			a++
			i++
		case k > pivot:
			b--
			sa[i], sa[b] = sa[b], p
		default:
			i++
		}
	}
	return a, b
}

// key returns keyLen bytes of a suffix as a number, and in its lowest byte how many they
// are: fewer at the end of the file.
func (x *order) key(p int32, depth int) uint64 {
	at := int(p) + depth
	if at+8 <= len(x.old) {
		return binary.BigEndian.Uint64(x.old[at:])&^0xff | keyLen
	}
	var b [8]byte
	b[7] = byte(copy(b[:keyLen], x.old[at:]))
	return binary.BigEndian.Uint64(b[:])
}

// less reports whether the suffix at place a of the file comes before that at b.
func (x *order) less(a, b int) bool {
	n := equalLen(x.old[a:], x.old[b:])
	x.work += n / 64
	if b+n == len(x.old) {
		return false
	}
	return a+n == len(x.old) || x.old[a+n] < x.old[b+n]
}
