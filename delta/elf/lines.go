package elf

import (
	"cmp"
	"slices"
)

// Go's table of functions has for each function a table from code to lines, and one
// from code to source files (cmd/internal/obj/pcln.go, funcpctab; runtime/symtab.go,
// step). Each entry is the difference of the value, folded to a non-negative number,
// and the length of the code that has it, both as varints. The value is -1 before
// the first entry; a difference of 0 that is not the first ends the table.
//
// An edit of a source file shifts all lines below it. So what is learnt is by how
// much the lines of a file are shifted. With inlined functions, a line of another
// file follows, so that a difference may change without an edit nearby.

// lineTable is where a function's tables begin: offsets in pctab, the index of its
// compilation unit's first file, and the offset of the function's name.
type lineTable struct{ lines, files, unit, name uint32 }

// A line is a source file, by its offset in the table of files, and the number of
// one of its lines.
type line uint64

// noLine is before the first line of a function.
const noLine = ^line(0)

func lineOf(file, number uint32) line { return line(file)<<32 | line(number) }

func (l line) file() uint32 { return uint32(l >> 32) }

func (t lineTable) compare(o lineTable) int {
	return cmp.Or(cmp.Compare(t.lines, o.lines), cmp.Compare(t.files, o.files), cmp.Compare(t.unit, o.unit), cmp.Compare(t.name, o.name))
}

// maxPcTables is how large pctab may be, in bytes.
const maxPcTables = 1 << 30

// readLines reads where the functions' tables of lines are. Only a predictor needs that.
func (g *goTable) readLines(f *File) {
	if g.version != goMagic20 || g.pcs > g.funcs || g.funcs-g.pcs > maxPcTables {
		return
	}
	g.lines = make([]lineTable, 0, len(g.record))
	for _, r := range g.record {
		at := g.off + g.funcs + uint64(r)
		t := lineTable{lines: f.word(at + recordLines), files: f.word(at + recordFiles), unit: f.word(at + recordUnit)}
		if t.lines != 0 && t.files != 0 && t.unit != noUnit {
			t.name = f.word(at + recordName)
			g.lines = append(g.lines, t)
		}
	}
	slices.SortFunc(g.lines, lineTable.compare)
	g.byName = make([]uint32, len(g.lines))
	for k := range g.byName {
		g.byName[k] = uint32(k)
	}
	slices.SortFunc(g.byName, func(a, b uint32) int { return cmp.Or(cmp.Compare(g.lines[a].name, g.lines[b].name), cmp.Compare(a, b)) })
}

// noUnit takes the place of a unit in the record of a function without one.
const noUnit = 0xffffffff

// fileOf returns the source file with a number in a compilation unit.
func (f *File) fileOf(unit, number uint32) uint32 {
	return f.word(f.gotab.off + f.gotab.units + 4*(uint64(unit)+uint64(number)))
}

// firstFile returns the source file that a function begins in.
func (f *File) firstFile(t lineTable) uint32 {
	w := lineWalk{f: f}
	w.begin(t)
	return w.fileAt(0)
}

// lineWalk walks through the old file's tables of lines.
type lineWalk struct {
	f      *File
	at     uint32 // where it is, in pctab
	inside bool   // of a table
	first  bool   // before its first entry
	table  lineTable
	number uint32 // of the line
	code   uint32
	last   line

	fileAtByte uint32 // the next entry of the table of files
	fileNumber uint32
	fileEnd    uint32 // where the code ends that belongs to it
	fileDone   bool
	file       uint32
}

// maxFileSteps is how many entries of a table of files are read for one of lines.
const maxFileSteps = 16

func (w *lineWalk) begin(t lineTable) {
	*w = lineWalk{f: w.f, at: t.lines, inside: true, first: true, table: t, number: 0xffffffff, last: noLine, fileAtByte: t.files, fileNumber: 0xffffffff, file: 0xffffffff}
}

// seek goes to a place in pctab, or to the end of the entry that it lies in.
func (w *lineWalk) seek(at uint32) {
	tables := w.f.gotab.lines
	k, found := slices.BinarySearchFunc(tables, at, func(t lineTable, at uint32) int { return cmp.Compare(t.lines, at) })
	if !found {
		k--
	}
	w.inside, w.at = false, at
	if k < 0 || at-tables[k].lines > maxLineSeek {
		return
	}
	w.begin(tables[k])
	for w.inside && w.at < at {
		v, n := w.f.varint(w.at)
		d, m := w.f.varint(w.at + n)
		if n == 0 || m == 0 {
			w.inside, w.at = false, at
			return
		}
		w.step(v, d, n+m)
	}
	w.at = max(w.at, at)
}

// maxLineSeek is how far before a place a table may begin, in bytes.
const maxLineSeek = 2048

// step goes over an entry of size bytes and returns its line.
func (w *lineWalk) step(v, code, size uint32) line {
	if v == 0 && !w.first {
		w.inside = false
		w.at++
		return noLine
	}
	w.first = false
	w.number += unfold(v)
	w.last = lineOf(w.fileAt(w.code), w.number)
	w.code += code
	w.at += size
	return w.last
}

// fileAt returns the source file of a piece of code; code does not go back.
func (w *lineWalk) fileAt(code uint32) uint32 {
	changed := false
	for n := 0; w.fileEnd <= code && !w.fileDone && n < maxFileSteps; n++ {
		v, a := w.f.varint(w.fileAtByte)
		d, b := w.f.varint(w.fileAtByte + a)
		if a == 0 || b == 0 || v == 0 && w.fileEnd > 0 {
			w.fileDone = true
			break
		}
		w.fileNumber += unfold(v)
		w.fileEnd += d
		w.fileAtByte += a + b
		changed = true
	}
	if changed {
		w.file = w.f.fileOf(w.table.unit, w.fileNumber)
	}
	return w.file
}

// unfold is the inverse of the folding to non-negative numbers.
func unfold(v uint32) uint32 { return v>>1 ^ -(v & 1) }

func fold(v uint32) uint32 { return v<<1 ^ uint32(int32(v)>>31) }

// varint reads a number of at most 32 bits in pctab, and returns its length, which
// is 0 if there is none.
func (f *File) varint(at uint32) (v, n uint32) {
	g := f.gotab
	for n < maxVarint && g.pcs+uint64(at)+uint64(n) < g.funcs {
		b := f.peek(g.off + g.pcs + uint64(at) + uint64(n))
		v |= uint32(b&127) << (7 * n)
		n++
		if b < 128 {
			return v, n
		}
	}
	return 0, 0
}

const maxVarint = 5

// varint reads a number at the beginning of b. It returns its length; 0 if there is
// none.
func varint(b []byte) (v, n uint32) {
	for i, x := range b[:min(len(b), maxVarint)] {
		v |= uint32(x&127) << (7 * i)
		if x < 128 {
			return v, uint32(i) + 1
		}
	}
	return 0, 0
}

// putVarint fills b with v, and reports whether that takes all of b.
func putVarint(b []byte, v uint32) bool {
	for i := range b {
		b[i] = byte(v)&127 | 128
		v >>= 7
	}
	b[len(b)-1] &= 127
	return v == 0 && (len(b) == 1 || b[len(b)-1] != 0)
}

// scanLines finds the differences between lines.
func (p *Predictor) scanLines(fields []Field, old []byte, at int, s uint64) []Field {
	g := p.o.gotab
	start, end := g.off+g.pcs, g.off+g.funcs
	if len(g.lines) == 0 || s >= end {
		return fields
	}
	if s < start {
		if start-s >= uint64(len(old)-at) {
			return fields
		}
		at += int(start - s)
		s = start
	}
	old = old[:at+int(min(uint64(len(old)-at), end-s))]
	w := &p.walk
	w.f = p.o
	if rel := uint32(s - start); w.at != rel || !w.inside {
		w.seek(rel)
		at += int(w.at - rel)
	}
	for at < len(old) {
		if !w.inside {
			k, _ := slices.BinarySearchFunc(g.lines, w.at, func(t lineTable, at uint32) int { return cmp.Compare(t.lines, at) })
			if k == len(g.lines) || uint64(g.lines[k].lines-w.at) >= uint64(len(old)-at) {
				break
			}
			at += int(g.lines[k].lines - w.at)
			w.begin(g.lines[k])
		}
		before := w.last
		v, n := varint(old[at:])
		if n == 0 {
			w.inside, w.at = false, 0xffffffff // the next scan seeks
			break
		}
		d, m := varint(old[at+int(n):])
		if m == 0 && (v != 0 || w.first) {
			w.inside, w.at = false, 0xffffffff
			break
		}
		l := w.step(v, d, n+m)
		if !w.inside {
			at++
			continue
		}
		if !p.shifts.together(before, l) {
			fields = append(fields, Field{Off: int32(at), Len: uint8(n), Kind: kindGo + goLine, pc: uint64(before), key: uint64(l)})
		}
		at += int(n + m)
	}
	return fields
}

// run is a row of lines of a file that are shifted alike.
type shiftedRun struct {
	from, to line
	by       int32
}

// lineShifts has what is known about the shifts of lines, in order. Lines before a
// file's first run are not shifted; those after a run are shifted as it is.
type lineShifts struct {
	runs []shiftedRun
	near int // where the last one was found
}

const maxShiftedRuns = 1 << 13

// find returns the last run that begins at or before a line, or -1.
func (s *lineShifts) find(l line) int {
	if k := s.near; k < len(s.runs) && s.runs[k].from <= l && (k+1 == len(s.runs) || s.runs[k+1].from > l) {
		return k
	}
	lo, hi := 0, len(s.runs)
	for lo < hi {
		k := (lo + hi) / 2
		if s.runs[k].from <= l {
			lo = k + 1
		} else {
			hi = k
		}
	}
	s.near = max(lo-1, 0)
	return lo - 1
}

// of returns by how much a line is shifted, and how much that can be trusted.
func (s *lineShifts) of(l line) (int32, uint8) {
	if l == noLine {
		return 0, sure
	}
	k := s.find(l)
	if k < 0 || s.runs[k].to.file() != l.file() {
		return 0, guessed
	}
	if l > s.runs[k].to {
		return s.runs[k].by, covered
	}
	return s.runs[k].by, sure
}

// together reports whether two lines are shifted alike, as far as is known. With
// fields for such pairs, too, decoding the pair p03 took a tenth longer, and its
// delta was 1.4 % smaller.
func (s *lineShifts) together(a, b line) bool {
	return a != noLine && a.file() == b.file() && s.find(a) == s.find(b)
}

// learn records by how much a line is shifted.
func (s *lineShifts) learn(l line, by int32) {
	k := s.find(l)
	if k >= 0 && s.runs[k].to.file() == l.file() {
		r := &s.runs[k]
		if r.by == by {
			r.to = max(r.to, l)
			return
		}
		if l <= r.to {
			// It parts the run.
			if len(s.runs)+2 > maxShiftedRuns {
				return
			}
			end := *r
			r.to, end.from = l-1, l+1
			add := []shiftedRun{{l, l, by}, end}
			if l == end.to {
				add = add[:1]
			}
			if l == r.from {
				*r, add = add[0], add[1:]
			}
			s.runs = slices.Insert(s.runs, k+1, add...)
			return
		}
	} else if by == 0 {
		return
	}
	if k++; k < len(s.runs) && s.runs[k].from.file() == l.file() && s.runs[k].by == by {
		s.runs[k].from = l
		return
	}
	if len(s.runs) < maxShiftedRuns {
		s.runs = slices.Insert(s.runs, k, shiftedRun{l, l, by})
	}
}

// lineTarget predicts the difference between two lines, or a line, of the new file.
func (p *Predictor) lineTarget(f *Field, old []byte) (uint64, uint8) {
	by, trust := p.shifts.of(line(f.key))
	if f.Kind == kindGo+goLine {
		v, _ := varint(old)
		before, t := p.shifts.of(line(f.pc))
		return uint64(by - before + int32(unfold(v))), max(trust, t)
	}
	return uint64(uint32(by) + le.Uint32(old)), trust
}

func (p *Predictor) lineLearn(f *Field, old []byte, v uint64) {
	by := uint32(v)
	if f.Kind == kindGo+goLine {
		o, _ := varint(old)
		before, _ := p.shifts.of(line(f.pc))
		by += uint32(before) - unfold(o)
	} else {
		by -= le.Uint32(old)
	}
	p.shifts.learn(line(f.key), int32(by))
}

// treeLine is the field of the line that a function begins at, in an inline tree
// that names it before (runtime/symtabinl.go, inlinedCall).
func (p *Predictor) treeLine(at int, name, number uint32) Field {
	f := Field{Off: int32(at), Len: 4, Kind: kindGo + goTreeLine, pc: uint64(noLine), key: uint64(name)<<32 | uint64(number)}
	g := p.o.gotab
	if k, ok := slices.BinarySearchFunc(g.byName, name, func(k, name uint32) int { return cmp.Compare(g.lines[k].name, name) }); ok {
		f.pc = uint64(lineOf(p.o.firstFile(g.lines[g.byName[k]]), number))
	}
	return f
}
