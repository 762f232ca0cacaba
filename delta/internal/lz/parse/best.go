package parse

import (
	"math"

	"github.com/mender-app/mender-app/delta/internal/lz"
)

const (
	span    = 4096 // bytes whose best way is looked for at once
	maxWays = 3    // that are kept for each byte
)

// A way leads to a byte: the last symbol, and where it came from.
type way struct {
	cost  uint32
	state uint32
	rep   [4]uint32
	from  uint8 // the way before
	symbol
}

// node has the cheapest ways to a byte, with different last distances.
type node struct {
	n    int
	ways [maxWays]way
}

// add adds a way, if it is among the most cheapest.
func (n *node) add(most int, cost uint32, prev *way, from uint8, s symbol, state uint32) {
	k := n.n
	if k == most {
		if cost >= n.ways[most-1].cost {
			return
		}
		k--
	}
	rep := prev.rep
	if s.length > 0 && s.kind != 0 && s.kind != isShort {
		rep = after(rep, s)
	}
	for i := range n.n {
		if n.ways[i].rep[0] == rep[0] {
			if n.ways[i].cost <= cost {
				return
			}
			k = i
			break
		}
	}
	if k == n.n {
		n.n++
	}
	for k > 0 && n.ways[k-1].cost > cost {
		n.ways[k] = n.ways[k-1]
		k--
	}
	n.ways[k] = way{cost, state, rep, from, s}
}

// best codes the next bytes, at most span, in the cheapest way.
func (e *Encoder) best(end int, class uint32) {
	begin := e.coded
	n := min(end-begin, span)
	m := e.model
	if e.priced == 0 || e.model.Pos-e.priced >= 1024 {
		e.prices.update(m)
		e.priced = e.model.Pos
	}
	nodes := e.nodes[:n+1]
	empty := 0 // nodes that are prepared
	for i := range n {
		for ; empty <= min(n, i+lz.MaxMatch); empty++ {
			nodes[empty].n = 0
		}
		if i == 0 {
			nodes[0].n = 1
			nodes[0].ways[0] = way{state: m.State, rep: m.Rep}
		}
		list := e.ahead.at(begin + i)
		if len(list) > 0 {
			if l := int(list[len(list)-1].length); l >= e.effort.long {
				e.emit(i, class)
				e.long(list, end, class)
				return
			}
		}
		e.extend(nodes, i, begin, list, class)
	}
	e.emit(n, class)
}

// long codes a long match.
func (e *Encoder) long(list []found, end int, class uint32) {
	most := min(end-e.coded, lz.MaxMatch)
	f := list[len(list)-1]
	s := symbol{uint16(min(int(f.length), most)), isNew, f.dist}
	for k, d := range e.model.Rep {
		if d <= uint32(min(e.coded, e.window)) && same(e.bytes, e.coded-int(d), e.coded, most) >= int(s.length) {
			s.kind, s.dist = uint8(k), d
			break
		}
	}
	if s.length < lz.MinMatch {
		s = symbol{}
	}
	e.code(s, class)
}

// emit codes the cheapest way to node i.
func (e *Encoder) emit(i int, class uint32) {
	e.path = e.path[:0]
	for k := uint8(0); i > 0; {
		w := &e.nodes[i].ways[k]
		e.path = append(e.path, w.symbol)
		i -= max(1, int(w.length))
		k = w.from
	}
	for k := len(e.path) - 1; k >= 0; k-- {
		e.code(e.path[k], class)
	}
}

// leastLiteral is less than most literals cost. Inside a match, which costs less, they
// are hardly ever worth it.
const leastLiteral = 256

// extend adds the ways that go on from node i.
func (e *Encoder) extend(nodes []node, i, begin int, list []found, class uint32) {
	m, p := e.model, &e.prices
	here := begin + i
	at := e.pos(here) & 3
	left := len(nodes) - 1 - i
	most := e.effort.ways
	reach := uint32(min(here, e.window))
	var lastPrice uint32
	lastKey := uint32(math.MaxUint32)
	for k := range nodes[i].n {
		w := &nodes[i].ways[k]
		st := w.state
		// A literal.
		cost := w.cost + zero(&m.Match[st][at])
		if !e.effort.skip || nodes[i+1].n == 0 || cost+leastLiteral < nodes[i+1].ways[0].cost {
			key := uint32(e.back(here, w.rep[0])) | kindOf[st]<<8
			if key != lastKey {
				lastKey = key
				lastPrice = e.literalPrice(here, w.rep[0], st, class)
			}
			nodes[i+1].add(most, cost+lastPrice, w, uint8(k), symbol{}, lz.AfterLiteral[st])
		}
		cost = w.cost + one(&m.Match[st][at])
		repCost := cost + one(&m.AnyRep[st])
		for r, d := range w.rep {
			if d > reach || r > 0 && d == w.rep[0] {
				continue
			}
			l := same(e.bytes, here-int(d), here, min(left, lz.MaxMatch))
			if l == 0 {
				continue
			}
			c := repCost
			switch r {
			case 0:
				c += zero(&m.Rep0[st])
				nodes[i+1].add(most, c+zero(&m.ShortRep[st][at]), w, uint8(k), symbol{1, isShort, d}, lz.AfterShortRep[st])
				c += one(&m.ShortRep[st][at])
			case 1:
				c += one(&m.Rep0[st]) + zero(&m.Rep1[st])
			case 2:
				c += one(&m.Rep0[st]) + one(&m.Rep1[st]) + zero(&m.Rep2[st])
			case 3:
				c += one(&m.Rep0[st]) + one(&m.Rep1[st]) + one(&m.Rep2[st])
			}
			for n := l; n >= lz.MinMatch; n-- {
				nodes[i+n].add(most, c+p.old[at][n], w, uint8(k), symbol{uint16(n), uint8(r), d}, lz.AfterRep[st])
			}
		}
		if k > 0 {
			continue
		}
		cost += zero(&m.AnyRep[st])
		n := lz.MinMatch
		for _, f := range list {
			for ; n <= min(int(f.length), left); n++ {
				c := cost + p.new[at][n] + p.distance(uint32(n), f.dist)
				nodes[i+n].add(most, c, w, uint8(k), symbol{uint16(n), isNew, f.dist}, lz.AfterMatch[st])
			}
		}
	}
}

// kindOf is what the price of a literal depends on in a state.
var kindOf = [12]uint32{7: 1, 8: 1, 9: 1, 10: 2, 11: 2}

func (e *Encoder) literalPrice(i int, rep0, state, class uint32) uint32 {
	c, v := e.context(i, rep0, state, class), e.bytes[i]
	if e.model.Sums != nil {
		return e.model.Sums.Cost(c, v, &costs)
	}
	var x lz.Mixing
	x.Begin(e.model.Literal, c)
	node, cost := uint32(1), uint32(0)
	for done := range uint32(8) {
		one := x.One(node, done)
		b := uint32(v>>(7-done)) & 1
		if b == 0 {
			one = 65536 - one
		}
		cost += costs[one>>4]
		node = node<<1 | b
	}
	return cost
}

// costs has the price of a probability out of 4096, in 1/256 bits.
var costs = func() (t [4096]uint32) {
	for i := range t {
		t[i] = uint32(-math.Log2((float64(i)+0.5)/4096) * 256)
	}
	return t
}()

func zero(p *lz.Prob) uint32 { return costs[p.Zero()>>4] }
func one(p *lz.Prob) uint32  { return costs[(65536-p.Zero())>>4] }

// prices has what lengths and distances cost, as of the last update.
type prices struct {
	new, old [4][lz.MaxMatch + 1]uint32 // lengths
	slot     [4][64]uint32
	near     [4][1 << (lz.FirstFar / 2)]uint32
	align    [16]uint32
}

func tree(p []lz.Prob, n, v uint32) (cost uint32) {
	node := uint32(1)
	for i := n; i > 0; i-- {
		b := v >> (i - 1) & 1
		if b == 0 {
			cost += zero(&p[node])
		} else {
			cost += one(&p[node])
		}
		node = node<<1 | b
	}
	return cost
}

func reverse(p []lz.Prob, n, v uint32) (cost uint32) {
	node := uint32(1)
	for i := range n {
		b := v >> i & 1
		if b == 0 {
			cost += zero(&p[node])
		} else {
			cost += one(&p[node])
		}
		node = node<<1 | b
	}
	return cost
}

func (p *prices) update(m *lz.Model) {
	lengths := func(l *lz.Lengths, t *[4][lz.MaxMatch + 1]uint32) {
		for at := range t {
			for n := range uint32(lz.MaxMatch - lz.MinMatch + 1) {
				var c uint32
				switch {
				case n < 8:
					c = zero(&l.Choice[0]) + tree(l.Low[at][:], 3, n)
				case n < 16:
					c = one(&l.Choice[0]) + zero(&l.Choice[1]) + tree(l.Mid[at][:], 3, n-8)
				case at > 0:
					c = t[0][n+lz.MinMatch]
				default:
					c = one(&l.Choice[0]) + one(&l.Choice[1]) + tree(l.High[:], 8, n-16)
				}
				t[at][n+lz.MinMatch] = c
			}
		}
	}
	lengths(&m.New, &p.new)
	lengths(&m.Old, &p.old)
	for k := range p.slot {
		for s := range uint32(64) {
			p.slot[k][s] = tree(m.Slot[k][:], 6, s)
		}
		for d := range uint32(len(p.near[k])) {
			s := lz.SlotOf(d)
			p.near[k][d] = p.slot[k][s]
			if s >= 4 {
				n := s>>1 - 1
				p.near[k][d] += reverse(m.Middle[s][:], n, d&(1<<n-1))
			}
		}
	}
	for d := range uint32(16) {
		p.align[d] = reverse(m.Align[:], 4, d)
	}
}

func (p *prices) distance(length, dist uint32) uint32 {
	k := min(length-lz.MinMatch, 3)
	d := dist - 1
	if d < uint32(len(p.near[k])) {
		return p.near[k][d]
	}
	s := lz.SlotOf(d)
	return p.slot[k][s] + (s>>1-5)<<8 + p.align[d&15]
}
