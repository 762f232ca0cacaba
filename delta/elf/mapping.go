package elf

import (
	"slices"
	"sort"
)

// Range says that Len bytes at Old of the old file resemble those at New of the
// new one.
type Range struct{ Old, New, Len int64 }

// mapping turns old addresses into new ones.
type mapping struct {
	o, n   *File
	ranges []Range // by Old
	pages  []int32 // first range that may hold what starts there
	shift  uint
	learnt learnt
}

const maxPages = 1 << 14

func newMapping(o, n *File, ranges []Range, space *Space) *mapping {
	m := &mapping{o: o, n: n, ranges: ranges}
	m.ranges = disjoint(m.ranges, space)
	most := int64(0)
	for _, r := range m.ranges {
		most = max(most, r.Old)
	}
	for most>>m.shift >= maxPages {
		m.shift++
	}
	if k := int(most>>m.shift) + 2; cap(space.pages) < k {
		space.pages = make([]int32, k)
	} else {
		space.pages = space.pages[:k]
	}
	m.pages = space.pages
	i := 0
	for p := range m.pages {
		for i < len(m.ranges) && m.ranges[i].Old>>m.shift < int64(p) {
			i++
		}
		m.pages[p] = int32(i)
	}
	return m
}

// disjoint sorts ranges by their old places, and cuts them so that no two share an
// old byte: the longest range keeps it. The rest of a range is one piece, because
// no longer range lies strictly within it. It works in place.
func disjoint(ranges []Range, space *Space) []Range {
	sort.SliceStable(ranges, func(i, j int) bool { return ranges[i].Old < ranges[j].Old })
	whole := slices.Grow(space.lengths[:0], len(ranges)) // lengths of the kept ranges before they were cut
	n := 0
next:
	for _, r := range ranges {
		length := r.Len
		for n > 0 {
			last := &ranges[n-1]
			over := last.Old + last.Len - r.Old
			if over <= 0 {
				break
			}
			if whole[n-1] >= length {
				if over >= r.Len {
					continue next
				}
				r.Old, r.New, r.Len = r.Old+over, r.New+over, r.Len-over
				break
			}
			if last.Old < r.Old {
				last.Len = r.Old - last.Old
				break
			}
			n--
			whole = whole[:n]
		}
		ranges[n] = r
		whole = append(whole, length)
		n++
	}
	space.lengths = whole
	return ranges[:n]
}

// find returns the last range that begins at or before off, or -1.
func (m *mapping) find(off int64) int {
	p := off >> m.shift
	if p >= int64(len(m.pages))-1 {
		return len(m.ranges) - 1
	}
	lo, hi := int(m.pages[p]), int(m.pages[p+1])
	for lo < hi {
		k := (lo + hi) / 2
		if m.ranges[k].Old <= off {
			lo = k + 1
		} else {
			hi = k
		}
	}
	return lo - 1
}

// How much a prediction can be trusted.
const (
	sure    = 0 // learnt, and confirmed since
	learned = 1
	covered = 2 // by a range
	guessed = 3 // from the range before
	unknown = 4
)

// Keys of the learnt table, in their high bits.
const (
	keyAddr  = 0 << 56
	keyShift = 1 << 56 // of what lies between two ranges
	keyGo    = 2 << 56 // and up
)

// addr predicts where what was at an old address is now.
func (m *mapping) addr(a uint64) (uint64, uint8) {
	if v, c, ok := m.learnt.get(keyAddr | a); ok {
		if c > 0 {
			return v, sure
		}
		return v, learned
	}
	return m.plain(a)
}

// plain is addr without what was learnt about this address.
func (m *mapping) plain(a uint64) (uint64, uint8) {
	off, ok := m.o.offset(a)
	if !ok {
		// After the end of the segment's part in the file: it moves with that end.
		for i := range m.o.segments {
			s := &m.o.segments[i]
			if a >= s.addr && a <= s.addr+s.mem && i < len(m.n.segments) {
				if v, _, ok := m.learnt.get(keyShift | 1<<40 | uint64(i)); ok {
					return a + v, guessed
				}
				n := &m.n.segments[i]
				return a - (s.addr + s.size) + n.addr + n.size, guessed
			}
		}
		return a, unknown
	}
	k := m.find(int64(off))
	if k < 0 {
		return a, unknown
	}
	r := m.ranges[k]
	trust := uint8(covered)
	if int64(off) >= r.Old+r.Len {
		trust = guessed
		if v, _, ok := m.learnt.get(keyShift | uint64(k)); ok {
			return a + v, trust
		}
	}
	v, ok := m.n.addr(uint64(int64(off) - r.Old + r.New))
	if !ok {
		return a, unknown
	}
	return v, trust
}

// learn records the new address v of what was at the old address a.
func (m *mapping) learn(a, v uint64) {
	if m.learnt.set(keyAddr|a, v) {
		return // nothing new about its surroundings either
	}
	off, ok := m.o.offset(a)
	if !ok {
		for i := range m.o.segments {
			s := &m.o.segments[i]
			if a >= s.addr && a <= s.addr+s.mem {
				m.learnt.set(keyShift|1<<40|uint64(i), v-a)
				return
			}
		}
		return
	}
	if k := m.find(int64(off)); k >= 0 {
		if r := m.ranges[k]; int64(off) >= r.Old+r.Len {
			m.learnt.set(keyShift|uint64(k), v-a)
		}
	}
}

// learnt is a table of observed results, of fixed size: new entries displace old
// ones.
type learnt struct {
	slots []slot
	shift uint
}

// slot has a part of a key, how often its value was confirmed, and 32 bits of the
// value: few values need more.
type slot struct {
	key uint32 // the low two bits are the count
	val int32
}

const learntBits = 17

// make gives the table about as many slots as a file of the size may need. Twice as many
// did not make deltas smaller.
func (l *learnt) make(space *Space, size int64) {
	bits := uint(8)
	for bits < learntBits && size>>(bits+5) > 0 {
		bits++
	}
	if len(space.slots) < 1<<bits {
		space.slots = make([]slot, 1<<bits)
	}
	l.slots, l.shift = space.slots[:1<<bits], 64-bits
	clear(l.slots)
}

// at returns a key's slot, and the part of the key that is stored there, which is
// never 0.
func (l *learnt) at(key uint64) (*slot, uint32) {
	h := (key + 1) * 0x9e3779b97f4a7c15
	return &l.slots[h>>l.shift], uint32(h>>8)&^3 | 4
}

func (l *learnt) get(key uint64) (uint64, uint32, bool) {
	s, k := l.at(key)
	return uint64(s.val), s.key & 3, s.key&^3 == k
}

// set records a result, and reports whether it confirms what is known.
func (l *learnt) set(key, val uint64) bool {
	s, k := l.at(key)
	v := int32(val)
	if uint64(v) != val {
		*s = slot{}
		return false
	}
	if s.key&^3 == k && s.val == v {
		s.key = k | min(s.key&3+1, 3)
		return true
	}
	*s = slot{k, v}
	return false
}
