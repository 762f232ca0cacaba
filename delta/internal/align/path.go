package align

import (
	"context"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/mender-app/mender-app/delta/internal/script"
)

// The cost of a path through the new file, in sixteenths of a bit. An equal byte
// of a match costs nothing. Of all values tried, these made the sum of the deltas
// of five pairs of images (p03, p06, p07, go-armv7, debian-nginx-arm64) smallest.
const (
	costNew    = 48  // a byte outside of matches
	costMiss   = 64  // a byte of a match that differs, after one that is equal
	costMisses = 80  // each further one
	costMatch  = 280 // a match on the diagonal of the last one, and the gap before it
	costReturn = 160 // in addition: on another diagonal that is followed
	costBit    = 16  // or on a diagonal that is not, for each bit of its distance
)

const (
	maxTracks = 16      // diagonals followed at a time; the codec remembers as many ends
	lookBack  = 128     // how far before an exact match its diagonal may be entered
	sureEqual = 32      // bytes: no other diagonal is followed beside a run of this length
	places    = 16      // candidates on each side, to find one near the last match
	nearest   = 18      // bytes: being near is worth no more than this
	maxEqual  = 4 << 10 // an exact match is not measured further
	minEqual  = 4
	never     = 1 << 60
)

// A segment is a finished match of a path, with those before it.
type segment struct {
	start, end, diagonal int
	before               *segment
}

// A path is the cheapest of those that lead to a place in the new file and end on
// the same diagonal. It has a last match, which begins at start and is open while
// end is negative, and the matches before it. A diagonal is the distance from a
// place in the new file to its place in the old one.
type path struct {
	cost                 int64
	start, end, diagonal int // start is negative: there is no match yet
	before               *segment
}

// matches returns the path's matches; an open one ends at the place.
func (p path) matches(at int) *segment {
	if p.start < 0 {
		return nil
	}
	if p.end < 0 {
		p.end = at
	}
	return &segment{p.start, p.end, p.diagonal, p.before}
}

// enter returns the path that continues on a diagonal from a place on.
func (p path) enter(at, diagonal int, cost int64) path {
	return path{p.cost + cost, at, -1, diagonal, p.matches(at)}
}

// left returns the path that leaves its diagonal at a place.
func (p path) left(at int) path {
	p.end = at
	return p
}

// jump returns the cost of moving from the path to a diagonal.
func (p path) jump(at, diagonal int) int64 {
	if p.start < 0 {
		return costMatch + costBit*int64(bits.Len(uint(at+diagonal)))
	}
	if p.diagonal == diagonal {
		return costMatch
	}
	if p.end < 0 {
		p.end = at
	}
	far := at + diagonal - p.end - p.diagonal
	return costMatch + costBit*int64(bits.Len(uint(max(far, -far))))
}

// A track is a diagonal that is followed, with two paths: one on it, and one that
// left it and may return.
type track struct {
	diagonal int
	on, off  path
	equal    bool // the byte before was equal
}

// An aligner finds the cheapest path with Viterbi's algorithm. The states are the
// diagonals that exact matches have suggested recently.
type aligner struct {
	*order
	new    []byte
	tracks []track
	best   path
	last   [lookBack]path // the best paths to the places before
}

// cheapest returns the matches of the cheapest path that it finds.
func cheapest(ctx context.Context, x *order, new []byte) ([]script.Match, error) {
	r := &aligner{order: x, new: new, best: path{start: -1, end: -1}}
	search := 0 // not before this place
	for i, steps := 0, 0; i < len(new); steps++ {
		if steps&0xfff == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		r.last[i%lookBack] = r.best
		run := r.run(i)
		switch {
		case run >= sureEqual:
			r.skip(i, run)
			i += run
			search = max(search, i)
			continue
		case run > 0:
			search = max(search, i+run)
		case i >= search:
			search = i + 1
			r.allow(i, len(new))
			if pos, n := r.longest(i); n >= minEqual && r.follow(i, pos-i, n) && n > 16 {
				search = i + n - 8
			}
		}
		r.step(i)
		i++
	}
	var out []script.Match
	for s := r.best.matches(len(new)); s != nil; s = s.before {
		if s.end > s.start {
			out = append(out, script.Match{New: int64(s.start), Old: int64(s.start + s.diagonal), Length: int64(s.end - s.start)})
		}
	}
	slices.Reverse(out)
	return out, ctx.Err()
}

// run returns how many bytes are equal from a place on, along the best diagonal.
func (r *aligner) run(at int) int {
	o := at + r.best.diagonal
	if r.best.start < 0 || r.best.end >= 0 || o < 0 || o >= len(r.old) {
		return 0
	}
	return equalLen(r.old[o:], r.new[at:])
}

// skip passes a long run on the best diagonal, and leaves all others.
func (r *aligner) skip(at, run int) {
	for k := range r.tracks {
		l := &r.tracks[k]
		l.equal = false
		if l.diagonal == r.best.diagonal {
			l.on = r.best
			l.off = r.best.left(at + run)
			continue
		}
		if l.on.cost < l.off.cost {
			l.off = l.on.left(at)
		}
		l.off.cost += costNew * int64(run)
		l.on.cost = never
	}
	for j := max(at, at+run-lookBack); j < at+run; j++ {
		r.last[j%lookBack] = r.best
	}
}

// step moves one byte forward, on every diagonal.
func (r *aligner) step(at int) {
	none := path{cost: never}
	if r.best.start < 0 {
		none = r.best
		none.cost += costNew
	}
	best := &none
	for k := range r.tracks {
		l := &r.tracks[k]
		o := at + l.diagonal
		inside := o >= 0 && o < len(r.old)
		match := inside && r.old[o] == r.new[at]
		if match && !l.equal && at+minEqual <= len(r.new) && o+minEqual <= len(r.old) &&
			binary.LittleEndian.Uint32(r.old[o:]) == binary.LittleEndian.Uint32(r.new[at:]) {
			// A run begins: the diagonal may be entered.
			from, cost := l.off, int64(costMatch)
			if other := r.best.cost + costReturn; other < from.cost {
				from, cost = r.best, costMatch+costReturn
			}
			if from.cost+cost < l.on.cost {
				l.on = from.enter(at, l.diagonal, cost)
			}
		}
		if l.on.cost < l.off.cost {
			l.off = l.on.left(at)
		}
		l.off.cost += costNew
		switch {
		case !inside:
			l.on.cost = never
		case match:
		case l.equal:
			l.on.cost += costMiss
		default:
			l.on.cost += costMisses
		}
		l.equal = match
		if l.on.cost <= best.cost {
			best = &l.on
		}
		if l.off.cost < best.cost {
			best = &l.off
		}
	}
	r.best = *best
}

// follow adds a diagonal on which n bytes are equal from a place on. It replaces
// the most expensive one, and is entered where that is cheapest, at that place or
// before. follow reports whether the diagonal is followed: it is not if the n bytes
// are cheaper without a match.
func (r *aligner) follow(at, to, n int) bool {
	for k := range r.tracks {
		if r.tracks[k].diagonal == to {
			return true
		}
	}
	var enter int
	var cost, misses int64
	least := int64(never)
	for j := at; j >= 0 && j > at-lookBack && j+to >= 0; j-- {
		if j < at && r.old[j+to] != r.new[j] {
			misses += costMisses
			if r.old[j+to+1] == r.new[j+1] {
				misses += costMiss - costMisses
			}
		}
		p := &r.last[j%lookBack]
		if p.cost+costMatch+misses >= least {
			continue // a jump costs at least that
		}
		if c := p.jump(j, to) + misses; p.cost+c < least {
			least, enter, cost = p.cost+c, j, c
		}
	}
	if least >= r.best.cost+costNew*int64(n) {
		return false
	}
	l := track{diagonal: to, on: r.last[enter%lookBack].enter(enter, to, cost), off: path{cost: never}, equal: true}
	if len(r.tracks) < maxTracks {
		r.tracks = append(r.tracks, l)
		return true
	}
	worst := 0
	for k := range r.tracks {
		if min(r.tracks[k].on.cost, r.tracks[k].off.cost) > min(r.tracks[worst].on.cost, r.tracks[worst].off.cost) {
			worst = k
		}
	}
	r.tracks[worst] = l
	return true
}

// longest returns where old has the longest exact match with new at a place, and
// its length. A shorter match wins if it is cheaper because it is nearer to the
// best diagonal.
func (r *aligner) longest(at int) (pos, n int) {
	s := r.new[at:min(len(r.new), at+maxEqual)]
	want := at + r.best.diagonal
	lo, hi := r.around(s)
	saves := int64(-never)
	try := func(k int) bool {
		p := r.at(k)
		m := equalLen(r.old[p:], s)
		// The distance counts twice: near matches are also predicted better.
		if v := costNew*int64(m) - 2*costBit*int64(bits.Len(uint(max(p-want, want-p)))); v > saves {
			pos, n, saves = p, m, v
		}
		return m >= minEqual && m > n-nearest
	}
	for k := lo; k >= 0 && k > lo-places && try(k); k-- {
	}
	for k := hi; k < len(r.sa) && k < hi+places && try(k); k++ {
	}
	return pos, n
}
