// Package parse finds how bytes are best coded for package lz: as matches, and as
// bytes between them. It is for the build host.
package parse

import (
	"github.com/mender-app/mender-app/delta/internal/lz"
)

// An Encoder codes the pieces of one delta. Its memory is about nine times the window,
// or what is added if that is less, and twice what was added since the last Flush. A
// second goroutine looks for matches during a Flush; it does not change the result.
type Encoder struct {
	effort Effort
	window int
	size   int64 // about that many bytes will be added
	model  *lz.Model
	sums   bool
	coder  coder
	finder finder
	ahead  ahead
	bytes  []byte // the window, then what is not coded
	next   uint32 // the place behind them
	coded  int    // bytes that are coded
	known  int    // bytes that the finder knows
	pieces []piece
	prices prices
	priced uint32 // the place of the last update of the prices
	nodes  []node
	path   []symbol
}

type piece struct {
	length int
	class  uint32
	shown  int // bytes before it that are not coded
}

// An Effort is how much is tried for each byte.
type Effort struct {
	ways  int  // that are kept for each byte
	depth int  // how many places of a search tree are compared; 0: those of rows
	long  int  // a match that is taken without looking for anything better
	skip  bool // literals are not tried where a match goes on
	jump  bool // nothing is looked for inside a match that is taken, and it is not entered again
	none  bool // everything is stored
}

// Quick takes about half the time of Thorough, and gives 1 to 2 % more bytes. Swift takes
// about half the time of Quick, and gives about 4 % more bytes. None makes no byte smaller.
var (
	None     = Effort{none: true}
	Thorough = Effort{ways: maxWays, depth: 64, long: 160}
	Quick    = Effort{ways: 1, depth: 32, long: 64, skip: true}
	Swift    = Effort{ways: 1, long: 24, skip: true, jump: true}
)

// A finder finds earlier places of the same bytes.
type finder interface {
	// at returns matches for the bytes at b[i], which is at pos: longer ones farther back. It
	// enters the place if insert is set; then at least lz.MaxMatch bytes follow.
	at(b []byte, i int, pos uint32, insert bool) []found
	// peek returns the length of the match with the last place of the same hash. At least
	// four bytes follow.
	peek(b []byte, i int, pos uint32) int
}

// New makes an Encoder whose matches lie at most window bytes back: lz.Window or
// lz.FarWindow. About size bytes will be added. The Encoder needs its memory only once
// something is added.
func New(effort Effort, window int, size int64) *Encoder {
	return &Encoder{effort: effort, window: window, size: size}
}

// Sums makes lz.Sums predict bytes, and not lz.Literals. It is called before anything is
// added.
func (e *Encoder) Sums() { e.sums = true }

// Add adds a piece: bytes of a class, at most lz.MaxPiece.
func (e *Encoder) Add(b []byte, class uint32) {
	e.bytes = append(e.bytes, b...)
	e.next += uint32(len(b))
	e.pieces = append(e.pieces, piece{length: len(b), class: class})
}

// Align says that a file begins.
func (e *Encoder) Align() {
	e.show(make([]byte, -e.next&(lz.Alignment-1)))
}

// Show adds bytes that are not coded, at a place that is phase modulo 4: the decoder has them.
func (e *Encoder) Show(b []byte, phase uint32) {
	e.show(make([]byte, (phase-e.next)&3))
	e.show(b)
}

func (e *Encoder) show(b []byte) {
	e.bytes = append(e.bytes, b...)
	e.next += uint32(len(b))
	e.pieces = append(e.pieces, piece{shown: len(b)})
}

// Len returns how many bytes were added since the last Flush.
func (e *Encoder) Len() int { return len(e.bytes) - e.coded }

// Literals returns how many bytes were coded outside of matches so far: those that
// lz.Literals predict, and those that lz.Sums do.
func (e *Encoder) Literals() (mixed, summed int64) {
	if e.sums {
		return 0, e.coder.literals
	}
	return e.coder.literals, 0
}

// Flush codes what was added. The result is valid until the next call.
func (e *Encoder) Flush() []byte {
	if e.Len() == 0 {
		return nil
	}
	if e.model == nil {
		e.model = new(lz.Model)
		e.model.Init(e.sums)
		if !e.effort.none {
			e.nodes = make([]node, span+1)
			if e.effort.depth > 0 {
				e.finder = newTrees(e.effort.depth, uint32(e.window), e.size)
			} else {
				e.finder = newRows(uint32(e.window))
			}
		}
		if n := int(min(e.size, int64(e.window))) + e.window/8; cap(e.bytes) < n {
			e.bytes = append(make([]byte, 0, n), e.bytes...)
		}
	}
	e.coder.begin()
	e.ahead.start(e)
	for _, p := range e.pieces {
		e.coded += p.shown
		e.model.Pos += uint32(p.shown)
		if p.length > 0 {
			e.piece(p.length, p.class)
		}
	}
	e.pieces = e.pieces[:0]
	if n := e.coded - e.window; n > 0 {
		e.bytes = append(e.bytes[:0], e.bytes[n:]...)
		e.coded -= n
		e.known -= n
	}
	return e.coder.end()
}

func (e *Encoder) pos(i int) uint32 { return e.model.Pos + uint32(i-e.coded) }

// piece codes n bytes.
func (e *Encoder) piece(n int, class uint32) {
	end := e.coded + n
	e.ahead.next()
	if e.ahead.now.stored {
		e.coder.bit(&e.model.Stored, 1)
		for _, v := range e.bytes[e.coded:end] {
			e.coder.direct(8, uint32(v))
		}
		e.coded = end
		e.model.Pos += uint32(n)
		return
	}
	e.coder.bit(&e.model.Stored, 0)
	for e.coded < end {
		e.best(end, class)
	}
}

// symbol is a literal (length 0), or a match.
type symbol struct {
	length uint16
	kind   uint8 // of a match: 0 to 3 is a last distance, isNew a new one, isShort one byte at the last distance
	dist   uint32
}

const (
	isNew   = 4
	isShort = 5
)

// code codes one symbol.
func (e *Encoder) code(s symbol, class uint32) {
	m, c := e.model, &e.coder
	st, at := m.State, m.Pos&3
	if s.length == 0 {
		c.bit(&m.Match[st][at], 0)
		context := e.context(e.coded, m.Rep[0], st, class)
		if m.Sums != nil {
			c.sum(m.Sums, context, e.bytes[e.coded])
		} else {
			var x lz.Mixing
			x.Begin(m.Literal, context)
			c.literal(&x, e.bytes[e.coded])
		}
		m.State = lz.AfterLiteral[st]
		m.Pos++
		e.coded++
		return
	}
	c.bit(&m.Match[st][at], 1)
	n := uint32(s.length)
	switch s.kind {
	case isNew:
		c.bit(&m.AnyRep[st], 0)
		c.length(&m.New, at, n)
		c.distance(m, n, s.dist)
		m.State = lz.AfterMatch[st]
	case isShort:
		c.bit(&m.AnyRep[st], 1)
		c.bit(&m.Rep0[st], 0)
		c.bit(&m.ShortRep[st][at], 0)
		m.State = lz.AfterShortRep[st]
	case 0:
		c.bit(&m.AnyRep[st], 1)
		c.bit(&m.Rep0[st], 0)
		c.bit(&m.ShortRep[st][at], 1)
		c.length(&m.Old, at, n)
		m.State = lz.AfterRep[st]
	default:
		c.bit(&m.AnyRep[st], 1)
		c.bit(&m.Rep0[st], 1)
		c.bit(&m.Rep1[st], uint32(min(s.kind-1, 1)))
		if s.kind > 1 {
			c.bit(&m.Rep2[st], uint32(s.kind-2))
		}
		c.length(&m.Old, at, n)
		m.State = lz.AfterRep[st]
	}
	m.Rep = after(m.Rep, s)
	m.Pos += n
	e.coded += int(n)
}

// after returns the last distances after a match.
func after(rep [4]uint32, s symbol) [4]uint32 {
	switch s.kind {
	case isNew:
		return [4]uint32{s.dist, rep[0], rep[1], rep[2]}
	case 1:
		return [4]uint32{rep[1], rep[0], rep[2], rep[3]}
	case 2:
		return [4]uint32{rep[2], rep[0], rep[1], rep[3]}
	case 3:
		return [4]uint32{rep[3], rep[0], rep[1], rep[2]}
	}
	return rep
}

func (e *Encoder) back(i int, n uint32) byte {
	if n > uint32(i) {
		return 0
	}
	return e.bytes[i-int(n)]
}

func (e *Encoder) context(i int, rep0, state, class uint32) *lz.Context {
	return &lz.Context{Last: e.back(i, 1), Expected: e.back(i, rep0), Class: class, State: state, Pos: e.pos(i)}
}
