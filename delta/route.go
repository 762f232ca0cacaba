package delta

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
)

// What a way through the new file costs, in sixteenths of a bit. Where bytes
// match it costs nothing. Of what was tried, these made five pairs of images (p03,
// p06, p07, go-armv7, debian-nginx-arm64) smallest together.
const (
	costNew    = 48  // a byte that no cover covers
	costMiss   = 64  // one of a cover that does not match, after one that does
	costMisses = 80  // and each after that
	costCover  = 280 // a cover on the line of the last one, and the gap before it
	costReturn = 160 // more: on another line that is known
	costBit    = 16  // or on a line this far off, for each bit of the distance
)

const (
	maxLines  = 16      // lines followed at a time; the decoder knows as many ends
	lookBack  = 128     // how far before a match its line may be entered
	sureMatch = 32      // bytes: no other line is followed beside these
	places    = 16      // looked at, each side, for one near the last
	nearest   = 18      // bytes: being near is worth no more
	maxMatch  = 4 << 10 // more need not be known of a match at once
	minMatch  = 4
	never     = 1 << 60
)

// A segment is a cover that a way has behind it, with those before.
type segment struct {
	start, end, line int
	before           *segment
}

// A way is the cheapest of those that lead to a place in the new file and end in
// one manner. It is made of a last cover, from start on along a line, which has
// ended, or goes on where end is negative, and of the covers before. A line is
// how far a place in the old file is behind that in the new.
type way struct {
	cost             int64
	start, end, line int // start is negative: there is no cover yet
	before           *segment
}

// covers are those of the way, at a place where none goes on.
func (w way) covers(at int) *segment {
	if w.start < 0 {
		return nil
	}
	if w.end < 0 {
		w.end = at
	}
	return &segment{w.start, w.end, w.line, w.before}
}

// enter is the way that goes on along a line from a place on.
func (w way) enter(at, line int, cost int64) way {
	return way{w.cost + cost, at, -1, line, w.covers(at)}
}

// left is the way that leaves its line at a place.
func (w way) left(at int) way {
	w.end = at
	return w
}

// jump is what it costs to go from there to a line.
func (w way) jump(at, line int) int64 {
	if w.start < 0 {
		return costCover + costBit*int64(bits.Len(uint(at+line)))
	}
	if w.line == line {
		return costCover
	}
	if w.end < 0 {
		w.end = at
	}
	far := at + line - w.end - w.line
	return costCover + costBit*int64(bits.Len(uint(max(far, -far))))
}

// A line has two ways: that on it, and that which has left it and may return.
type line struct {
	line    int
	on, off way
	matched bool // the byte before
}

// router finds the cheapest way: Viterbi's algorithm, where the states are the
// lines that some match suggested lately.
type router struct {
	old, new []byte
	sa       []int32
	lines    []line
	best     way
	last     [lookBack]way // the best at the places before
}

// route returns the covers of the cheapest way that was found.
func route(ctx context.Context, sa []int32, old, new []byte) ([]cover, error) {
	r := &router{old: old, new: new, sa: sa, best: way{start: -1, end: -1}}
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
		case run >= sureMatch:
			r.skip(i, run)
			i += run
			search = max(search, i)
			continue
		case run > 0:
			search = max(search, i+run)
		case i >= search:
			search = i + 1
			if pos, n := r.match(i); n >= minMatch && r.follow(i, pos-i, n) && n > 16 {
				search = i + n - 8
			}
		}
		r.step(i)
		i++
	}
	var out []cover
	for s := r.best.covers(len(new)); s != nil; s = s.before {
		if s.end > s.start {
			out = append(out, cover{int64(s.start), int64(s.start + s.line), int64(s.end - s.start)})
		}
	}
	slices.Reverse(out)
	return out, nil
}

// run is how many bytes match from a place on, on the line that is best there.
func (r *router) run(at int) int {
	o := at + r.best.line
	if r.best.start < 0 || r.best.end >= 0 || o < 0 || o >= len(r.old) {
		return 0
	}
	return matchLen(r.old[o:], r.new[at:])
}

// skip goes over a long run on the best line; all other lines are left.
func (r *router) skip(at, run int) {
	for k := range r.lines {
		l := &r.lines[k]
		l.matched = false
		if l.line == r.best.line {
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

// step goes on by a byte, on every line.
func (r *router) step(at int) {
	best := way{cost: never}
	if r.best.start < 0 {
		best = r.best
		best.cost += costNew
	}
	for k := range r.lines {
		l := &r.lines[k]
		o := at + l.line
		inside := o >= 0 && o < len(r.old)
		match := inside && r.old[o] == r.new[at]
		if match && !l.matched && at+minMatch <= len(r.new) && o+minMatch <= len(r.old) &&
			binary.LittleEndian.Uint32(r.old[o:]) == binary.LittleEndian.Uint32(r.new[at:]) {
			// A run begins: the line may be entered.
			from, cost := l.off, int64(costCover)
			if other := r.best.cost + costReturn; other < from.cost {
				from, cost = r.best, costCover+costReturn
			}
			if from.cost+cost < l.on.cost {
				l.on = from.enter(at, l.line, cost)
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
		case l.matched:
			l.on.cost += costMiss
		default:
			l.on.cost += costMisses
		}
		l.matched = match
		if l.on.cost <= best.cost {
			best = l.on
		}
		if l.off.cost < best.cost {
			best = l.off
		}
	}
	r.best = best
}

// follow adds a line, on which n bytes from a place on match, in place of the
// one that costs most. It is entered where that is cheapest, up to there. It
// reports whether the line is followed: not if leaving the n bytes uncovered
// would be cheaper.
func (r *router) follow(at, to, n int) bool {
	for k := range r.lines {
		if r.lines[k].line == to {
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
		w := &r.last[j%lookBack]
		if c := w.jump(j, to) + misses; w.cost+c < least {
			least, enter, cost = w.cost+c, j, c
		}
	}
	if least >= r.best.cost+costNew*int64(n) {
		return false
	}
	l := line{line: to, on: r.last[enter%lookBack].enter(enter, to, cost), off: way{cost: never}, matched: true}
	if len(r.lines) < maxLines {
		r.lines = append(r.lines, l)
		return true
	}
	worst := 0
	for k := range r.lines {
		if min(r.lines[k].on.cost, r.lines[k].off.cost) > min(r.lines[worst].on.cost, r.lines[worst].off.cost) {
			worst = k
		}
	}
	r.lines[worst] = l
	return true
}

// match returns where old has the longest match with what is in new at a place,
// and how long it is; a shorter one, if it is nearer to the best line by more
// than that costs.
func (r *router) match(at int) (pos, n int) {
	s := r.new[at:min(len(r.new), at+maxMatch)]
	want := at + r.best.line
	lo, hi := 0, len(r.sa)-1
	for hi-lo >= 2 {
		x := lo + (hi-lo)/2
		a := r.old[r.sa[x]:]
		k := min(len(a), len(s))
		if bytes.Compare(a[:k], s[:k]) < 0 {
			lo = x
		} else {
			hi = x
		}
	}
	saves := int64(-never)
	try := func(k int) bool {
		p := int(r.sa[k])
		m := matchLen(r.old[p:], s)
		// The distance counts twice: what is near is also predicted better.
		if v := costNew*int64(m) - 2*costBit*int64(bits.Len(uint(max(p-want, want-p)))); v > saves {
			pos, n, saves = p, m, v
		}
		return m >= minMatch && m > n-nearest
	}
	for k := lo; k >= 0 && k > lo-places && try(k); k-- {
	}
	for k := hi; k < len(r.sa) && k < hi+places && try(k); k++ {
	}
	return pos, n
}
