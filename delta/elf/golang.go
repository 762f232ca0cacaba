package elf

import (
	"io"
	"sort"
)

// Go's runtime tables (cmd/link/internal/ld/pcln.go and runtime/symtab.go of Go
// 1.20 and later): a table of functions by address, a record for each function, and
// byte tables that the records point into.

// GoBases are the addresses that Go's tables are relative to, from the module data
// of a file; zero if the file has none.
type GoBases struct {
	Func, Types, TypesEnd, Text, Find uint64
}

// Shift is the difference between the GoBases of a new file and the places where
// the matches put those of the old one. It travels with the delta.
type Shift struct{ Func, Types, Text, Table, Find int64 }

// words of runtime.moduledata (Go 1.20 to 1.26)
const (
	moduleFind  = 19
	moduleText  = 22
	moduleTypes = 37
	moduleFunc  = 40
	moduleWords = 41
)

// readGoBases reads the module data. It is in its own section, or where two words
// in the data point to the table of functions and to its names.
func (f *File) readGoBases(r io.ReaderAt) GoBases {
	g := f.gotab
	size := uint64(4)
	if f.wide {
		size = 8
	}
	word := func(b []byte, i uint64) uint64 {
		if f.wide {
			return le.Uint64(b[i*8:])
		}
		return uint64(le.Uint32(b[i*4:]))
	}
	var buf []byte
	for i := range f.sections {
		s := &f.sections[i]
		if s.class != classData && s.class != classPointers || s.size < moduleWords*size {
			continue
		}
		n := min(s.size, maxModuleSearch)
		if uint64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		b := buf[:n]
		if k, _ := r.ReadAt(b, int64(s.off)); k < len(b) {
			continue
		}
		for at := -s.addr & (size - 1); at+moduleWords*size <= n; at += size {
			w := b[at:]
			if word(w, 0) == g.addr && word(w, 1) == g.addr+g.names {
				return GoBases{Func: word(w, moduleFunc), Types: word(w, moduleTypes), TypesEnd: word(w, moduleTypes+1), Text: word(w, moduleText), Find: word(w, moduleFind)}
			}
		}
	}
	return GoBases{}
}

// maxModuleSearch is how much of a section is searched for the module data, in
// bytes.
const maxModuleSearch = 1 << 20

const (
	goEntry = iota // functab: offset of the code
	goRecord
	goFirst // fields of a function's record
	goName
	goTable1 // into pctab
	goUnit
	goFunc // relative to go:func.*
	goWord // other numbers
	goType // offsets in type data
	goLink // of a type
	goTreeName
	goFind     // a part of findfunctab
	goLine     // a difference between lines, see lines.go
	goStart    // the line that a function begins at
	goTreeLine // the same in an inline tree
	numGo
)

const (
	maxFuncs  = 1 << 18
	recordLen = 44

	goMagic20 = 0xfffffff1 // Go 1.20 and later
	goMagic18 = 0xfffffff0
)

// Offsets in a function's record.
const (
	recordName  = 4
	recordFiles = 20
	recordLines = 24
	recordUnit  = 32
	recordStart = 36
)

// goTable is an old file's table of functions.
type goTable struct {
	off, size, addr                 uint64 // of the section
	names, units, files, pcs, funcs uint64 // offsets within it
	text                            uint64 // address that the entries are relative to
	entry, record                   []uint32
	byRecord                        []int32  // indexes by record offset
	tail                            uint64   // from funcs on: what follows the last record
	starts                          []uint64 // bits: a name starts there
	version                         uint32
	lines                           []lineTable // by their offsets
	byName                          []uint32    // their indexes, by the functions' names
}

func readGoTable(r io.ReaderAt, s section, f *File) *goTable {
	h := make([]byte, 8+8*8)
	if n, _ := r.ReadAt(h, int64(s.off)); n < len(h) {
		return nil
	}

	m := le.Uint32(h)
	if m != goMagic20 && m != goMagic18 {
		return nil
	}
	word := func(i int) uint64 {
		if h[7] == 8 {
			return le.Uint64(h[8+8*i:])
		}
		return uint64(le.Uint32(h[8+4*i:]))
	}
	n := word(0)
	g := &goTable{version: m, off: s.off, size: s.size, addr: s.addr, text: word(2), names: word(3), units: word(4), files: word(5), pcs: word(6), funcs: word(7)}
	if g.text == 0 {
		g.text = f.text.addr
	}
	for _, v := range []uint64{g.names, g.units, g.files, g.pcs, g.funcs} {
		if v > s.size {
			return nil
		}
	}
	if n == 0 || n > maxFuncs || n*8 > s.size-g.funcs {
		return nil
	}
	b := make([]byte, n*8)
	if k, _ := r.ReadAt(b, int64(s.off+g.funcs)); k < len(b) {
		return nil
	}
	g.entry, g.record = make([]uint32, n, n+1), make([]uint32, n) // one more entry for the end of the code
	g.byRecord = make([]int32, n)
	for i := range g.entry {
		g.entry[i], g.record[i] = le.Uint32(b[8*i:]), le.Uint32(b[8*i+4:])
		g.byRecord[i] = int32(i)
	}
	if !sort.SliceIsSorted(g.record, func(i, j int) bool { return g.record[i] < g.record[j] }) {
		sort.SliceStable(g.byRecord, func(i, j int) bool { return g.record[g.byRecord[i]] < g.record[g.byRecord[j]] })
	}
	if last := g.funcs + uint64(g.record[g.byRecord[n-1]]); last+recordLen <= s.size {
		b := make([]byte, recordLen)
		if k, _ := r.ReadAt(b, int64(s.off+last)); k == len(b) {
			g.tail = last - g.funcs + recordLen + 4*(uint64(le.Uint32(b[28:]))+uint64(b[43]))
		}
	}
	if g.tail == 0 || g.units < g.names {
		return g
	}
	n = min(g.units-g.names, maxNameTable)
	g.starts = make([]uint64, n/64+1)
	var c [4096]byte
	for at := uint64(0); at < n; at += uint64(len(c)) {
		k, _ := r.ReadAt(c[:min(uint64(len(c)), n-at)], int64(s.off+g.names+at))
		for i, x := range c[:k] {
			if i := at + uint64(i) + 1; x == 0 && i < n {
				g.starts[i/64] |= 1 << (i % 64)
			}
		}
	}
	return g
}

// name reports whether a function's name begins at an offset.
func (g *goTable) name(w uint32) bool {
	return uint64(w/64) < uint64(len(g.starts)) && g.starts[w/64]>>(w%64)&1 != 0
}

// maxNameTable is how much of the names is read, in bytes.
const maxNameTable = 8 << 20

// goState is the state of the prediction of a Go file.
type goState struct {
	types, etypes, funcs        uint64 // old
	newTypes, newFuncs, newText uint64
	next                        uint64 // the last record that was seen: its index, and its new offset
	lastRecord                  uint64
	chained                     bool
	direct, chain               int32  // how well each way of predicting records works
	last                        uint64 // the error of the last word
	score                       [4][4]int32
	guess                       [4]uint64 // what a word of type data is in each class
	class                       int       // the likely one
}

func (p *Predictor) goInit(shift Shift) {
	if p.o.gotab.lines == nil {
		p.o.gotab.readLines(p.o)
	}
	n := p.o.goBases
	p.g.types, p.g.etypes, p.g.funcs = n.Types, n.TypesEnd, n.Func
	e := p.movedBases()
	p.g.newTypes = e.Types + uint64(shift.Types)
	p.g.newFuncs = e.Func + uint64(shift.Func)
	p.g.newText = e.Text + uint64(shift.Text)
	if p.o.findSize == 0 {
		return
	}
	tab, _ := p.m.plain(p.o.gotab.addr)
	tab, ok1 := p.n.offset(tab + uint64(shift.Table))
	find, ok2 := p.n.offset(e.Find + uint64(shift.Find))
	if ok1 && ok2 && tab < find {
		p.tables = newTables{tab: tab, find: find}
	}
}

// movedBases returns where the matches put the old file's GoBases.
func (p *Predictor) movedBases() (n GoBases) {
	n.Types, _ = p.m.plain(p.g.types)
	n.Func, _ = p.m.plain(p.g.funcs)
	n.Text, _ = p.m.plain(p.o.gotab.text)
	n.Find, _ = p.m.plain(p.o.goBases.Find)
	return n
}

// ShiftTo returns the Shift for a new file. p must have been made without one.
func (p *Predictor) ShiftTo(n *File) (s Shift) {
	if p.o.gotab == nil || n.gotab == nil {
		return s
	}
	e := p.movedBases()
	if n.goBases.Types != 0 {
		s.Types = int64(n.goBases.Types - e.Types)
	}
	if n.goBases.Func != 0 {
		s.Func = int64(n.goBases.Func - e.Func)
	}
	s.Text = int64(n.gotab.text - e.Text)
	if p.o.findSize > 0 && n.findSize > 0 {
		s.Find = int64(n.goBases.Find - e.Find)
		tab, _ := p.m.plain(p.o.gotab.addr)
		s.Table = int64(n.gotab.addr - tab)
	}
	for _, v := range []*int64{&s.Types, &s.Func, &s.Text, &s.Table, &s.Find} {
		if *v <= -maxStep || *v >= maxStep {
			*v = 0
		}
	}
	return s
}

// scanGo finds what can be predicted in the section of the table of functions.
func (p *Predictor) scanGo(fields []Field, old []byte, at int, s, q uint64) []Field {
	fields, n := p.scanFind(fields, old, at, q)
	at, s, q = at+n, s+uint64(n), q+uint64(n)
	if at == len(old) {
		return fields
	}
	if t := &p.tables; t.find > q && t.find-q < uint64(len(old)-at) {
		// The table begins within.
		k := at + int(t.find-q)
		fields = p.scanFuncs(fields, old[:k], at, s)
		fields, n = p.scanFind(fields, old, k, t.find)
		s, at = s+uint64(k+n-at), k+n
	}
	return p.scanFuncs(fields, old, at, s)
}

// scanFuncs finds the numbers of the table of functions and of their records.
func (p *Predictor) scanFuncs(fields []Field, old []byte, at int, s uint64) []Field {
	fields = p.scanLines(fields, old, at, s)
	g := p.o.gotab
	start := g.off + g.funcs
	i := at
	if s < start {
		if start-s >= uint64(len(old)-at) {
			return fields
		}
		i += int(start - s)
	}
	so := s + uint64(i-at)
	if k := (so - start) & 3; k != 0 {
		i += int(4 - k)
		so += 4 - k
	}
	end := start + uint64(len(g.entry))*8
	for ; so < end && i+4 <= len(old); i, so = i+4, so+4 {
		k := goEntry
		if (so-start)&4 != 0 {
			k = goRecord
		}
		fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindGo + Kind(k), key: (so - start) / 8})
	}
	if i+4 > len(old) {
		return fields
	}
	rel := so - start
	tree, named := -8, uint32(0) // the last name in an inline tree
	n := sort.Search(len(g.byRecord), func(k int) bool { return uint64(g.record[g.byRecord[k]]) > rel }) - 1
	for ; i+4 <= len(old); i, rel = i+4, rel+4 {
		for n+1 < len(g.byRecord) && uint64(g.record[g.byRecord[n+1]]) <= rel {
			n++
		}
		if n < 0 {
			continue
		}
		w := le.Uint32(old[i:])
		if g.tail != 0 && rel >= g.tail {
			// What functions refer to; their inline trees name functions.
			if w >= 64 && g.name(w) {
				fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindGo + goTreeName, key: uint64(w)})
				tree, named = i, w
			} else if i == tree+8 && w != 0 {
				fields = append(fields, p.treeLine(i, named, w))
			}
			continue
		}
		k := (rel - uint64(g.record[g.byRecord[n]])) / 4
		f := Field{Off: int32(i), Len: 4, key: uint64(w), sub: uint8(min(k, 255))}
		switch {
		case k == 0:
			f.Kind = kindGo + goFirst
		case k == 1:
			f.Kind = kindGo + goName
		case k >= 4 && k <= 6:
			f.Kind = kindGo + goTable1
		case k == 8:
			f.Kind = kindGo + goUnit
		case k == recordStart/4 && len(g.lines) > 0 && i >= recordStart:
			r := old[i-recordStart:]
			t := lineTable{files: le.Uint32(r[recordFiles:]), unit: le.Uint32(r[recordUnit:])}
			if t.files == 0 || t.unit == noUnit {
				continue
			}
			f.Kind, f.key = kindGo+goStart, uint64(lineOf(p.o.firstFile(t), w))
		case k >= 11 && w != 0 && w != 0xffffffff:
			// The record holds the number of its tables, if it is in the range.
			b := i - int(4*k)
			if b < 0 {
				f.Kind = kindGo + goWord
				break
			}
			tabs, funcs := uint64(le.Uint32(old[b+28:])), uint64(old[b+43])
			switch {
			case k < 11+tabs:
				f.Kind = kindGo + goTable1
				f.sub = uint8(min(k, 20))
			case k < 11+tabs+funcs:
				f.Kind = kindGo + goFunc
				f.sub = uint8(min(k-11-tabs, 15))
			default:
				f.Kind = kindGo + goWord
			}
		default:
			continue
		}
		if w == 0 && k > 0 {
			continue
		}
		fields = append(fields, f)
	}
	return fields
}

// pcln maps an offset in a part of the old table to one in the new.
func (p *Predictor) pcln(rel, part uint64) (uint64, uint8) {
	return p.moved(p.o.gotab.off+part, rel)
}

func (p *Predictor) goTarget(f *Field, old []byte) (uint64, uint8) {
	g := p.o.gotab
	kind := f.Kind - kindGo
	switch kind {
	case goLine, goStart:
		return p.lineTarget(f, old)
	case goTreeName:
		kind = goName
		fallthrough
	case goName, goTable1, goUnit, goFunc, goWord, goTreeLine:
		if v, c, ok := p.m.learnt.get(keyGo + uint64(kind)<<56 | f.key); ok {
			return v, uint8(min(c, 1)) ^ 1
		}
	}
	switch kind {
	case goEntry:
		v, t := p.m.addr(g.text + uint64(g.entry[f.key]))
		return uint64(uint32(v - p.g.newText)), t
	case goRecord:
		v, t := p.pcln(uint64(g.record[f.key]), g.funcs)
		if p.g.chained && f.key == p.g.next+1 && p.g.chain >= p.g.direct {
			return p.g.lastRecord + uint64(g.record[f.key]-g.record[p.g.next]), learned
		}
		return v, t
	case goFirst:
		v, t := p.m.addr(g.text + f.key)
		return uint64(uint32(v - p.g.newText)), t
	case goName:
		v, t := p.pcln(f.key, g.names)
		return uint64(uint32(v)), t
	case goTable1:
		v, t := p.pcln(f.key, g.pcs)
		return uint64(uint32(v)), t
	case goFunc:
		if p.g.funcs != 0 {
			v, t := p.m.plain(p.g.funcs + f.key)
			return uint64(uint32(v - p.g.newFuncs)), t
		}
	case goWord:
		return uint64(uint32(f.key + p.g.last)), unknown
	case goLink:
		v, t := p.m.plain(p.g.types + f.key)
		return uint64(uint32(v - p.g.newTypes)), t
	case goType:
		return p.typeWord(f)
	case goTreeLine:
		by, trust := p.shifts.of(line(f.pc))
		return uint64(uint32(by) + le.Uint32(old)), trust
	}
	return f.key, unknown
}

func (p *Predictor) goLearn(f *Field, old []byte, v uint64) {
	g := p.o.gotab
	kind := f.Kind - kindGo
	switch kind {
	case goEntry:
		p.m.learn(g.text+uint64(g.entry[f.key]), v+p.g.newText)
	case goRecord:
		rate := func(s *int32, hit bool) {
			*s -= *s >> 3
			if hit {
				*s += 64
			}
		}
		w, _ := p.pcln(uint64(g.record[f.key]), g.funcs)
		rate(&p.g.direct, w == v)
		if p.g.chained && f.key == p.g.next+1 {
			rate(&p.g.chain, p.g.lastRecord+uint64(g.record[f.key]-g.record[p.g.next]) == v)
		}
		p.g.next, p.g.lastRecord, p.g.chained = f.key, v, true
	case goFirst:
		p.m.learn(g.text+f.key, v+p.g.newText)
	case goLine, goStart:
		p.lineLearn(f, old, v)
	case goName, goTreeName, goTable1, goUnit, goFunc, goTreeLine:
		if kind == goTreeName {
			kind = goName
		}
		p.m.learnt.set(keyGo+uint64(kind)<<56|f.key, v)
	case goWord:
		p.g.last = v - f.key
		p.m.learnt.set(keyGo+uint64(kind)<<56|f.key, v)
	case goType:
		p.learnType(f, v)
	}
}
