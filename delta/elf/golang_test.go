package elf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The Go program of these tests has its code at 0x300, its table of functions at
// 0x7a0, its module data at 0xa00, its types at 0xc00 and what functions refer to
// at 0xe00. By tableRanges, what is at 0x3e8 and on moves by 16 bytes, what is at
// 0x800 and on by 32: a place amid the names of functions.
const (
	goText, goTab, goData, goLinks, goTypes, goTypesEnd, goFuncs = 0x300, 0x7a0, 0xa00, 0xb80, 0xc00, 0xd00, 0xe00

	goNames, goUnits, goFiles, goPcs, goFuncTab = 72, 156, 160, 164, 176 // in the table
	nameA, nameB                                = 1, 74
)

// goTabBody has the functions main.a, at 0x3c0, and main.b, at 0x404.
func goTabBody(text uint64) []byte {
	b := append(words(0xfffffff1, 8<<24), longs(2, 1, text, goNames, goUnits, goFiles, goPcs, goFuncTab)...)
	b = append(b, "\x00main.a\x00main.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\x00main.b\x00\x00\x00\x00"...)
	b = append(b, make([]byte, goFuncTab-len(b))...)
	return append(b, words(
		0xc0, 16, 0x104, 68, // the table
		0xc0, nameA, 0, 0, 1, 2, 3, 1, 0, 10, 1<<24, 2, 0x10, // main.a, with a table of positions and one thing it refers to
		0x104, nameB, 0, 0, 4, 5, 6, 0, 1, 20, 0, // main.b
		nameB, 3, nameB+1, // inline trees
	)...)
}

func goProgram(text uint64, types, typesEnd, funcs uint64) []byte {
	module := make([]byte, moduleWords*8)
	for i, v := range map[int]uint64{0: codeBase + goTab, 1: codeBase + goTab + goNames, moduleText: text,
		moduleTypes: types, moduleTypes + 1: typesEnd, moduleFunc: funcs} {
		le.PutUint64(module[8*i:], v)
	}
	typeData := append(longs(codeBase+0x900), words(0x444, 0x10, 0x448, 0, 0x44c, 0, 0x450, 0)...)
	return build(machineArm64, codeBase,
		part{name: ".text", typ: progbits, flags: executable, at: goText, body: make([]byte, goTab-goText)},
		part{name: ".gopclntab", typ: progbits, flags: allocated, at: goTab, body: goTabBody(text)},
		part{name: ".data", typ: progbits, flags: allocated, at: goData, body: module},
		part{name: ".typelink", typ: progbits, flags: allocated, at: goLinks, body: words(0x10, 0x40)},
		part{name: ".rodata", typ: progbits, flags: allocated, at: goTypes, body: typeData},
	)
}

func goPredictor(t *testing.T, shift Shift) (*Predictor, []byte) {
	t.Helper()
	old := goProgram(codeBase+goText, codeBase+goTypes, codeBase+goTypesEnd, codeBase+goFuncs)
	f := parse(t, old)
	require.True(t, f.Go())
	require.Equal(t, GoBases{Func: codeBase + goFuncs, Types: codeBase + goTypes, TypesEnd: codeBase + goTypesEnd, Text: codeBase + goText}, f.goBases)
	p, err := New(f, old[:headSize], tableRanges(), Plain, shift, nil)
	require.NoError(t, err)
	return p, old
}

// TestPredictGoTable: the table of functions and their records.
func TestPredictGoTable(t *testing.T) {
	p, old := goPredictor(t, Shift{})
	end := goTab + len(goTabBody(0))
	require.Empty(t, predict(t, p, old[:goTab+goUnits], goTab), "nothing is in the names")
	word := func(at int32, kind Kind, sub uint8, key uint64, value uint32, trust uint8) predicted {
		return predicted{Field{Off: at, Len: 4, Kind: kindGo + kind, sub: sub, key: key}, words(value), trust}
	}
	const a, b = 16, 68 // the records
	require.Equal(t, []predicted{
		word(0, goEntry, 0, 0, 0xc0, covered), word(4, goRecord, 0, 0, a, covered),
		word(8, goEntry, 0, 1, 0x114, covered), word(12, goRecord, 0, 1, b, covered),

		word(a, goFirst, 0, 0xc0, 0xc0, learned),
		word(a+4, goName, 1, nameA, nameA, covered),
		word(a+16, goTable1, 4, 1, 1, covered), word(a+20, goTable1, 5, 2, 2, covered), word(a+24, goTable1, 6, 3, 3, covered),
		word(a+36, goStart, 9, 10, 10, guessed),
		word(a+44, goTable1, 11, 2, 2, learned), word(a+48, goFunc, 0, 0x10, 0x10, covered),

		word(b, goFirst, 0, 0x104, 0x114, learned),
		word(b+4, goName, 1, nameB, nameB+16, covered), // across the place where names were put in
		word(b+16, goTable1, 4, 4, 4, covered), word(b+20, goTable1, 5, 5, 5, covered), word(b+24, goTable1, 6, 6, 6, covered),
		word(b+32, goUnit, 8, 1, 1, unknown), word(b+36, goStart, 9, 20, 20, guessed),

		word(b+44, goTreeName, 0, nameB, nameB+16, learned),
		{Field{Off: b + 52, Len: 4, Kind: kindGo + goTreeLine, pc: nameB + 1, key: nameB<<32 | (nameB + 1)}, words(nameB + 1), guessed},
	}, predict(t, p, old[:end], goTab+goFuncTab))
}

// TestPredictGoShift: the numbers of the table are relative to addresses that a
// delta names where they went elsewhere.
func TestPredictGoShift(t *testing.T) {
	p, old := goPredictor(t, Shift{})
	new := parse(t, goProgram(codeBase+goText+0x10, codeBase+goTypes+0x40, codeBase+goTypesEnd+0x40, codeBase+goFuncs+0x18))
	shift := p.ShiftTo(new)
	require.Equal(t, Shift{Func: -8, Types: 0x20, Text: 0x10}, shift)
	require.Equal(t, Shift{}, p.ShiftTo(parse(t, build(machineArm64, codeBase))), "no program of Go's")

	p, _ = goPredictor(t, shift)
	got := predict(t, p, old[:goTab+goFuncTab+16+52], goTab+goFuncTab)
	require.Equal(t, words(0xb0), got[0].bytes) // less 0x10, by which the code's start moved
	require.Equal(t, words(0x104), got[2].bytes)
	last := got[len(got)-1]
	require.Equal(t, predicted{Field{Off: 64, Len: 4, Kind: kindGo + goFunc, key: 0x10}, words(0x18), covered}, last)

	links := predict(t, p, old[:goLinks+8], goLinks)
	require.Equal(t, []predicted{
		{Field{Off: 0, Len: 4, Kind: kindGo + goLink, key: 0x10}, words(0xfffffff0), covered},
		{Field{Off: 4, Len: 4, Kind: kindGo + goLink, key: 0x40}, words(0x40 - 0x20), covered},
	}, links)
}

// TestPredictGoTypes: which words of type data are offsets into the code is learnt
// by their place.
func TestPredictGoTypes(t *testing.T) {
	p, old := goPredictor(t, Shift{})
	const size = 40
	fields := p.Scan(nil, old[goTypes:goTypes+size], goTypes, goTypes+32, 0x800, 0x1800)
	field := func(at int32, sub uint8, key uint64) Field {
		return Field{Off: at, Len: 4, Kind: kindGo + goType, sub: sub, key: key}
	}
	require.Equal(t, []Field{
		{Off: 0, Len: 8, Kind: kindAbs64, key: codeBase + 0x900},
		field(8, 2, 0x444), field(16, 0, 0x448), field(24, 2, 0x44c), field(32, 0, 0x450),
	}, fields)
	pred := make([]byte, 8)
	for i, want := range []struct {
		old, new uint32 // as predicted, and as it is
		trust    uint8
	}{
		{0x444, 0x454, covered},     // nothing is known of this place
		{0x448, 0x448, covered},     // nor of this
		{0x45c, 0x45c, covered + 2}, // an offset into the code, as the last one was
		{0x450, 0x450, covered},     // a number, as the last one was
	} {
		f := fields[i+1]
		was := old[goTypes+f.Off:]
		require.Equal(t, want.trust, p.Predict(&f, was, pred))
		require.Equal(t, words(want.old), pred[:4])
		p.Learn(&f, was, words(want.new))
	}
}

// TestGoTypePointers: a word of type data that leads into code is an address where
// a function begins, and nowhere else.
func TestGoTypePointers(t *testing.T) {
	p, _ := goPredictor(t, Shift{})
	for addr, pointer := range map[uint64]bool{
		codeBase + 0x3c0:   true,  // main.a
		codeBase + 0x404:   true,  // main.b
		codeBase + 0x3c4:   false, // within main.a
		codeBase + goText:  false, // no function
		codeBase + goTypes: true,  // no code
		codeBase - 8:       false, // outside of the file
	} {
		fields := p.Scan(nil, longs(addr), goTypes, goTypes, 0x800, 0x1800)
		require.Equal(t, pointer, len(fields) == 1 && fields[0].Kind == kindAbs64, "%#x", addr)
	}
}

// TestGoTypeClass: a word that was a number is taken for one again, though words at
// such places are mostly offsets.
func TestGoTypeClass(t *testing.T) {
	p, _ := goPredictor(t, Shift{})
	const number, offset = 0x448, 0x44c // both could be offsets into code that moved by 16
	learn := func(w, v uint32) {
		f := Field{Len: 4, Kind: kindGo + goType, key: uint64(w)}
		p.Learn(&f, words(w), words(v))
	}
	predict := func(w uint32) []byte {
		f := Field{Len: 4, Kind: kindGo + goType, key: uint64(w)}
		pred := make([]byte, 4)
		p.Predict(&f, words(w), pred)
		return pred
	}
	learn(number, number)
	for w := uint32(0x460); w < 0x480; w += 4 {
		learn(w, w+16)
	}
	require.Equal(t, words(offset+16), predict(offset))
	require.Equal(t, words(number), predict(number))
}

// TestPredictGoProgram: a real program whose new file is the old one is predicted
// to be as it is, every word of its tables.
func TestPredictGoProgram(t *testing.T) {
	b, f := ownProgram(t)
	p, err := New(f, b[:headSize], []Range{{0, 0, int64(len(b))}}, Plain, Shift{}, nil)
	require.NoError(t, err)
	require.Zero(t, p.ShiftTo(f))
	seen := map[Kind]int{}
	pred := make([]byte, MaxField)
	for _, c := range []class{classPcln, classTypelink} {
		s := f.find(c)
		require.NotNil(t, s)
		const most = 1 << 20
		for at := s.off; at < s.off+s.size; at += most {
			part := b[at:min(at+most, s.off+s.size)]
			for _, fd := range p.Scan(nil, part, int64(at), int64(at), int64(at), int64(at)+int64(len(part))) {
				was := part[fd.Off:][:fd.Len]
				p.Predict(&fd, was, pred)
				require.Equal(t, was, pred[:fd.Len], "%+v", fd)
				p.Learn(&fd, was, was)
				seen[fd.Kind-kindGo]++
			}
		}
	}
	for _, kind := range []Kind{goEntry, goRecord, goFirst, goName, goTable1, goUnit, goFunc, goLink, goTreeName, goLine, goStart, goTreeLine} {
		require.NotZero(t, seen[kind], "kind %d", kind)
	}
}
