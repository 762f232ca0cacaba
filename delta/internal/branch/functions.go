package branch

import "math"

// functions converts Go's table of functions and the records behind it, as the linker
// of Go 1.20 and later lays them out (cmd/link/internal/ld/pcln.go): pairs of 32-bit
// words, of which the second says where the function's record begins, from the
// beginning of the table on; then the records. A record has eleven words, then as many
// as the eighth says, then as many as the highest byte of the eleventh says.
//
// Words of one kind resemble each other more than the words of one record do. So the
// records that lie within a piece are put in the order of their words: the first words
// of all, the second of all, and so on.
type functions struct {
	size    int64 // of the part
	pos     int64 // in the part, of the next byte
	records int64 // where the records begin, as the first pair says; 0: nothing is converted
	table   []pair
	next    int // the first record that begins at pos or behind it
	rows    []row
	order   []int  // of the words of rows: by kind
	raw     []byte // the rows, one after the other

	// What the words of the next record are coded relative to.
	name, line, sequence, tree uint32
}

type pair struct{ entry, record uint32 }

// row is a record: where it begins among those of a piece, and its size, in words; and
// how many of its words are of the two kinds of which it may have any number.
type row struct{ at, words, tables, data int }

const (
	maxFunctions = 1 << 18
	recordWords  = 11
	maxWords     = recordWords + 256 + 256

	wordEntry  = 0
	wordName   = 1
	wordTable  = 4 // where a table of the function begins, as the next two words
	wordTables = 7 // how many more such places the record has
	wordLine   = 9
	wordData   = 10 // its highest byte: how many words of other data there are
	dataTree   = 3  // which of these is the place of a tree of inlined calls
)

// convert converts the next bytes of the part, or the other way if back is set.
func (f *functions) convert(b []byte, back bool) {
	begin := f.pos
	f.pos += int64(len(b))
	if begin == 0 {
		f.begin(b)
	}
	if n := min(f.records-begin, int64(len(b))); n > 0 {
		f.pairs(b[:n], begin, back)
	}
	if first, at, end := f.within(begin); end > at {
		f.convertRows(b[at-begin:end-begin], first, back)
	}
}

// begin learns from the first pair where the records begin.
func (f *functions) begin(b []byte) {
	if len(b) < 8 {
		return
	}
	n := int64(le.Uint32(b[4:]))
	if n >= 8 && n%4 == 0 && n < f.size && n/8 <= maxFunctions {
		f.records, f.table = n, make([]pair, n/8)
	}
}

// pairs converts a piece of the table: each word becomes the difference to that of the
// pair before. What is not a whole pair stays as it is.
func (f *functions) pairs(b []byte, at int64, back bool) {
	skip := -at & 7
	for i := int((at + skip) / 8); i < len(f.table) && skip+8 <= int64(len(b)); i++ {
		w := b[skip : skip+8]
		skip += 8
		var before pair
		if i > 0 {
			before = f.table[i-1]
		}
		step(w, &before.entry, back)
		step(w[4:], &before.record, back)
		f.table[i] = before
	}
}

// within finds the records that lie within the piece from begin to f.pos, one after the
// other. It returns the first of them, where it begins, and where the last one ends.
func (f *functions) within(begin int64) (first int, at, end int64) {
	start := func(i int) int64 { return int64(f.table[i].record) }
	for f.next < len(f.table) && start(f.next) < begin {
		f.next++
	}
	f.rows = f.rows[:0]
	if f.next == len(f.table) || start(f.next) < f.records {
		return 0, 0, 0
	}
	first, at = f.next, start(f.next)
	end = at
	for ; f.next < len(f.table) && start(f.next) == end; f.next++ {
		to := f.size
		if f.next+1 < len(f.table) && start(f.next+1) > end {
			to = start(f.next + 1)
		}
		n := to - end
		if to > f.pos || n%4 != 0 || n < 4*recordWords || n > 4*maxWords {
			break
		}
		f.rows = append(f.rows, row{at: int(end-at) / 4, words: int(n) / 4})
		end = to
	}
	return first, at, end
}

// convertRows converts records, of which the first is that of the pair first.
func (f *functions) convertRows(b []byte, first int, back bool) {
	n := len(f.rows)
	f.raw = append(f.raw[:0], b...)
	for i := range f.rows {
		r := &f.rows[i]
		tables, data := r.at+wordTables, r.at+wordData
		if back {
			tables, data = wordTables*n+i, wordData*n+i
		}
		free := r.words - recordWords
		r.tables = int(min(le.Uint32(b[4*tables:]), uint32(free)))
		r.data = min(int(b[4*data+3]), free-r.tables)
	}
	f.sort()
	if back {
		for i, k := range f.order {
			copy(f.raw[4*k:4*k+4], b[4*i:])
		}
	}
	for i := range f.rows {
		r := &f.rows[i]
		f.values(f.raw[4*r.at:4*(r.at+r.words)], r, f.table[first+i].entry, back)
	}
	if back {
		copy(b, f.raw)
		return
	}
	for i, k := range f.order {
		copy(b[4*i:4*i+4], f.raw[4*k:])
	}
}

// sort puts the words of all rows in order.
func (f *functions) sort() {
	f.order = f.order[:0]
	tables, data := 0, 0
	for _, r := range f.rows {
		tables, data = max(tables, r.tables), max(data, r.data)
	}
	for k := range recordWords {
		for _, r := range f.rows {
			f.order = append(f.order, r.at+k)
		}
	}
	for k := range tables {
		for _, r := range f.rows {
			if k < r.tables {
				f.order = append(f.order, r.at+recordWords+k)
			}
		}
	}
	for k := range data {
		for _, r := range f.rows {
			if k < r.data {
				f.order = append(f.order, r.at+recordWords+r.tables+k)
			}
		}
	}
	for _, r := range f.rows {
		for k := recordWords + r.tables + r.data; k < r.words; k++ {
			f.order = append(f.order, r.at+k)
		}
	}
}

// values converts the words of a record, in their own order.
func (f *functions) values(b []byte, r *row, entry uint32, back bool) {
	step(b[4*wordEntry:], &entry, back)
	step(b[4*wordName:], &f.name, back)
	step(b[4*wordLine:], &f.line, back)
	for k := range 3 {
		farther(b[4*(wordTable+k):], &f.sequence, back)
	}
	for k := range r.tables {
		farther(b[4*(recordWords+k):], &f.sequence, back)
	}
	if r.data > dataTree {
		w := b[4*(recordWords+r.tables+dataTree):]
		if !back {
			le.PutUint32(w, le.Uint32(w)+1) // none is the highest number
		}
		farther(w, &f.tree, back)
		if back {
			le.PutUint32(w, le.Uint32(w)-1)
		}
	}
}

// step converts a word to the difference to before, which becomes the word.
func step(b []byte, before *uint32, back bool) {
	v := le.Uint32(b)
	if back {
		*before += v
		le.PutUint32(b, *before)
		return
	}
	le.PutUint32(b, v-*before)
	*before = v
}

// farther converts the place of something that is laid out as records need it, or of one
// that an earlier record needed, too: to how much farther it is than all before, or to
// the complement of the place.
func farther(b []byte, most *uint32, back bool) {
	v := le.Uint32(b)
	c := v - *most
	if v < *most {
		c = ^v
	}
	if back {
		c = v + *most
		if v > math.MaxUint32-*most {
			c = ^v
		}
		v = c
	}
	le.PutUint32(b, c)
	*most = max(*most, v)
}
