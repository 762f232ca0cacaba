package parse

import (
	"encoding/binary"
	"math"

	"github.com/mender-app/mender-app/delta/internal/lz"
)

// ahead finds the matches of the pieces of one Flush, some pieces ahead of the coder and
// in a goroutine of its own: it takes more than half of the time. It alone uses the finder
// until the last piece is taken.
type ahead struct {
	out, free chan *matches
	now       *matches // of the piece that is coded
}

// matches are what the finder found for one piece.
type matches struct {
	stored bool // the piece is best stored; there are no matches then
	begin  int  // the place of its first byte in Encoder.bytes
	list   []found
	ends   []int // for each byte of the piece, the end of its matches in list
}

// piecesAhead is how many pieces are found at most before they are coded.
const piecesAhead = 4

// start begins with the pieces that were added.
func (a *ahead) start(e *Encoder) {
	if a.free == nil {
		a.out, a.free = make(chan *matches, piecesAhead), make(chan *matches, piecesAhead+1)
		for range piecesAhead {
			a.free <- new(matches)
		}
	}
	f := finding{Encoder: e, at: e.coded, place: e.model.Pos - uint32(e.coded)}
	pieces := e.pieces
	go func() {
		for _, p := range pieces {
			f.at += p.shown
			if p.length == 0 {
				continue
			}
			m := <-a.free
			f.piece(m, p.length)
			a.out <- m
		}
	}()
}

// next goes on to the next piece.
func (a *ahead) next() {
	if a.now != nil {
		a.free <- a.now
	}
	a.now = <-a.out
}

// at returns the matches at a place of the piece.
func (a *ahead) at(i int) []found {
	m := a.now
	begin := 0
	if i -= m.begin; i > 0 {
		begin = m.ends[i-1]
	}
	return m.list[begin:m.ends[i]]
}

// finding is the side of an Encoder that finds matches. Of what the other side changes, it
// has its own copies.
type finding struct {
	*Encoder
	at    int    // the place of the next piece in bytes
	place uint32 // of bytes[0]
}

func (f *finding) piece(m *matches, n int) {
	end := f.at + n
	m.begin, m.list, m.ends = f.at, m.list[:0], m.ends[:0]
	if m.stored = f.effort.none || f.dense(end); !m.stored {
		for i := f.at; i < end; i++ {
			list := f.find(i)
			m.list = append(m.list, list...)
			m.ends = append(m.ends, len(m.list))
			if f.effort.jump {
				i = f.over(m, list, i, end)
			}
		}
	}
	f.at = end
}

// over goes to the last byte of a long match at i, which best takes as a whole: none of its
// bytes is asked for, and the bytes that it copies are known from where they were first.
func (f *finding) over(m *matches, list []found, i, end int) int {
	if len(list) == 0 || int(list[len(list)-1].length) < f.effort.long {
		return i
	}
	last := min(i+int(list[len(list)-1].length), end) - 1
	for range last - i {
		m.ends = append(m.ends, len(m.list))
	}
	f.known = max(f.known, last+1)
	return last
}

func (f *finding) pos(i int) uint32 { return f.place + uint32(i) }

// learn tells the finder of the places before i.
func (f *finding) learn(i int) {
	for ; f.known < min(i, len(f.bytes)-lz.MaxMatch); f.known++ {
		f.finder.at(f.bytes, f.known, f.pos(f.known), true)
	}
}

// find returns the matches at i.
func (f *finding) find(i int) []found {
	f.learn(i)
	if f.known == i && i < len(f.bytes)-lz.MaxMatch {
		f.known++
		return f.finder.at(f.bytes, i, f.pos(i), true)
	}
	return f.finder.at(f.bytes, i, f.pos(i), false)
}

// dense reports whether the bytes up to end are best stored: all values are about
// as frequent, and the finder finds next to nothing.
func (f *finding) dense(end int) bool {
	n := end - f.at
	if n < 256 {
		return false
	}
	var count [256]int
	for _, v := range f.bytes[f.at:end] {
		count[v]++
	}
	sum := 0.0
	for _, c := range count {
		if c > 0 {
			sum -= float64(c) * math.Log2(float64(c)/float64(n))
		}
	}
	if sum < float64(n)*7.8*(1-128/float64(n)) {
		return false
	}
	f.learn(f.at)
	matched := 0
	var seen [1 << 12]int // where a hash was in the piece, plus one
	for i := f.at; i+8 <= end; {
		h := binary.LittleEndian.Uint32(f.bytes[i:]) * 0x9e3779b1 >> 20
		l := f.finder.peek(f.bytes[:end], i, f.pos(i))
		if j := seen[h]; j > 0 {
			l = max(l, same(f.bytes, j-1, i, end-i))
		}
		seen[h] = i + 1
		if l >= 6 {
			matched += l
			i += l
		} else {
			i++
		}
	}
	return matched*64 < n
}
