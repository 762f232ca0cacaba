package elf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of these tests are at 0x400 of a file at 0x10000, and move by 16
// bytes; what is before stays, and what is at 0x800 and on moves by 32.
func tableRanges() []Range {
	return []Range{{0, 0, 0x3e8}, {0x3e8, 0x3f8, 0x800 - 0x3e8}, {0x800, 0x820, 0x1000}}
}

func tablePredictor(t *testing.T, machine uint16, parts ...part) (*Predictor, []byte) {
	t.Helper()
	old := build(machine, codeBase, parts...)
	p, err := New(parse(t, old), old[:headSize], tableRanges(), Plain, Shift{}, nil)
	require.NoError(t, err)
	return p, old
}

func TestPredictTables(t *testing.T) {
	const arm, a64 = machineArm, machineArm64
	stays, moves, farther := uint32(codeBase+0x3c0), uint32(codeBase+0x404), uint32(codeBase+0x900)
	names := part{name: ".dynstr", typ: strtab, flags: allocated, at: 0x7f0, body: make([]byte, 0x40)}
	for _, c := range []struct {
		name    string
		machine uint16
		table   part
		want    []predicted
	}{
		{"pointers of 4 bytes", arm, part{name: ".got", typ: progbits, flags: allocated, body: words(stays, 0x400, moves, farther, 1<<31)}, []predicted{
			{Field{Off: 0, Len: 4, Kind: kindAbs32, key: uint64(stays)}, words(stays), covered},
			{Field{Off: 8, Len: 4, Kind: kindAbs32, key: uint64(moves)}, words(moves + 16), covered},
			{Field{Off: 12, Len: 4, Kind: kindAbs32, key: uint64(farther)}, words(farther + 32), covered},
		}},
		{"pointers of 8 bytes in data", a64, part{name: ".data", typ: progbits, flags: allocated, body: longs(uint64(stays), 1<<40|uint64(moves), uint64(moves), uint64(farther))}, []predicted{
			{Field{Off: 0, Len: 8, Kind: kindAbs64, key: uint64(stays)}, longs(uint64(stays)), covered},
			{Field{Off: 16, Len: 8, Kind: kindAbs64, key: uint64(moves)}, longs(uint64(moves) + 16), covered},
			{Field{Off: 24, Len: 8, Kind: kindAbs64, key: uint64(farther)}, longs(uint64(farther) + 32), covered},
		}},
		{"arm's exception index", arm, part{name: ".ARM.exidx", typ: exidx, flags: allocated,
			body: words(0x7fffffc0, 1, 0x7ffffffc, 0x80b0b0b0, 0x80000000-0x50, 0x4ec)}, []predicted{
			// From 0x10410 to 0x103c0; cannot unwind; to 0x10404, which moves as well;
			// unwound as the word says; to 0x103c0, unwound by a table farther on.
			{Field{Off: 0, Len: 4, Kind: kindPrel31, pc: codeBase + 0x410, key: uint64(stays)}, words(0x7fffffb0), covered},
			{Field{Off: 8, Len: 4, Kind: kindPrel31, pc: codeBase + 0x418, key: uint64(moves)}, words(0x7ffffffc), covered},
			{Field{Off: 16, Len: 4, Kind: kindPrel31, pc: codeBase + 0x420, key: uint64(stays)}, words(0x7fffffa0), learned},
			{Field{Off: 20, Len: 4, Kind: kindPrel31, pc: codeBase + 0x424, key: uint64(farther)}, words(0x4fc), covered},
		}},
		{"table of exception frames", a64, part{name: ".eh_frame_hdr", typ: progbits, flags: allocated,
			body: words(0x3b031b01, 0x500, 1, 0xffffffc0, 0x500)}, []predicted{
			{Field{Off: 12, Len: 4, Kind: kindRel32, pc: codeBase + 0x410, key: uint64(stays)}, words(0xffffffb0), covered},
			{Field{Off: 16, Len: 4, Kind: kindRel32, pc: codeBase + 0x410, key: uint64(farther)}, words(0x510), covered},
		}},
		{"relocations of 8 bytes", arm, part{name: ".rel.dyn", typ: rel, flags: allocated, body: words(moves, 23, farther, 2<<8|21)}, []predicted{
			{Field{Off: 0, Len: 4, Kind: kindRelOff, key: uint64(moves)}, words(moves + 16), covered},
			{Field{Off: 8, Len: 4, Kind: kindRelOff, key: uint64(farther)}, words(farther + 32), covered},
			{Field{Off: 12, Len: 4, Kind: kindSym, key: 2<<8 | 21}, words(2<<8 | 21), sure}, // there is no table of symbols
		}},
		{"relocations of 24 bytes", a64, part{name: ".rela.dyn", typ: rela, flags: allocated, body: longs(uint64(moves), 1027, uint64(farther), uint64(farther)+8, 1027, 0)}, []predicted{
			{Field{Off: 0, Len: 8, Kind: kindRelOff, key: uint64(moves)}, longs(uint64(moves) + 16), covered},
			{Field{Off: 16, Len: 8, Kind: kindAbs64, key: uint64(farther)}, longs(uint64(farther) + 32), covered},
			{Field{Off: 24, Len: 8, Kind: kindRelOff, key: uint64(farther) + 8}, longs(uint64(farther) + 40), covered},
		}},
		{"symbols of 16 bytes", arm, part{name: ".dynsym", typ: dynsym, flags: allocated, link: ".dynstr",
			body: words(0, 0, 0, 0, 4, moves, 8, 0x12, 0x30, farther, 8, 0x12)}, []predicted{
			{Field{Off: 16, Len: 4, Kind: kindName, pc: 0x7f0, key: 4}, words(4), covered},
			{Field{Off: 20, Len: 4, Kind: kindAbs32, sub: 1, key: uint64(moves)}, words(moves + 16), covered},
			{Field{Off: 32, Len: 4, Kind: kindName, pc: 0x7f0, key: 0x30}, words(0x40), covered}, // its text is at 0x820
			{Field{Off: 36, Len: 4, Kind: kindAbs32, sub: 1, key: uint64(farther)}, words(farther + 32), covered},
		}},
		{"symbols of 24 bytes", a64, part{name: ".dynsym", typ: dynsym, flags: allocated, link: ".dynstr",
			body: append(append(words(0x30, 0x12), longs(uint64(moves), 8)...), append(words(0, 0), longs(0, 0)...)...)}, []predicted{
			{Field{Off: 0, Len: 4, Kind: kindName, pc: 0x7f0, key: 0x30}, words(0x40), covered},
			{Field{Off: 8, Len: 8, Kind: kindAbs64, sub: 1, key: uint64(moves)}, longs(uint64(moves) + 16), covered},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.table.at = 0x400
			p, old := tablePredictor(t, c.machine, c.table, names)
			got := predict(t, p, old[:0x400+len(c.table.body)], 0x400)
			require.Equal(t, c.want, got)
		})
	}
}

// TestPredictSymbol: the index of a symbol behind a place where the table grew by
// one is one more.
func TestPredictSymbol(t *testing.T) {
	body := make([]byte, 16*48) // the symbols from 32 on, at 0x800, move by 16 more
	old := build(machineArm, codeBase,
		part{name: ".dynsym", typ: dynsym, flags: allocated, at: 0x600, body: body},
		part{name: ".rel.dyn", typ: rel, flags: allocated, at: 0x400, body: words(0x10900, 31<<8|21, 0x10904, 32<<8|22, 0x10908, 32<<8|22)})
	p, err := New(parse(t, old), old[:headSize], tableRanges(), Plain, Shift{}, nil)
	require.NoError(t, err)
	got := predict(t, p, old[:0x418], 0x400)
	require.Len(t, got, 6)
	require.Equal(t, []predicted{
		{Field{Off: 4, Len: 4, Kind: kindSym, key: 31<<8 | 21}, words(31<<8 | 21), covered},
		{Field{Off: 12, Len: 4, Kind: kindSym, key: 32<<8 | 22}, words(33<<8 | 22), covered},
		{Field{Off: 20, Len: 4, Kind: kindSym, key: 32<<8 | 22}, words(33<<8 | 22), learned},
	}, []predicted{got[1], got[3], got[5]})
}

// TestPredictPlt: an entry of arm's procedure linkage table holds the distance to
// its slot; the slots of entries in a row are in a row.
func TestPredictPlt(t *testing.T) {
	// Slots at 0x10900 and on, which move by 16 more than the entries at 0x10400.
	entry := func(d uint32) []byte { return words(0xe28fc600, 0xe28cca00, 0xe5bcf000|d) }
	body := append(append([]byte{}, entry(0x4f8)...), entry(0x4f0)...)
	p, old := tablePredictor(t, machineArm, part{name: ".plt", typ: progbits, flags: executable, at: 0x400, body: body})
	require.Equal(t, []predicted{
		{Field{Off: 0, Len: 12, Kind: kindPlt, pc: codeBase + 0x418, key: codeBase + 0x900}, entry(0x508), covered},
		{Field{Off: 12, Len: 12, Kind: kindPlt, pc: codeBase + 0x424, key: codeBase + 0x904}, entry(0x500), learned},
	}, predict(t, p, old[:0x418], 0x400))

	// The relocations of those slots are in a row as well.
	p, old = tablePredictor(t, machineArm, part{name: ".rel.plt", typ: rel, flags: allocated, at: 0x400, body: words(0x10900, 22, 0x10904, 22)})
	require.Equal(t, []predicted{
		{Field{Off: 0, Len: 4, Kind: kindRelOff, sub: 1, key: 0x10900}, words(0x10920), covered},
		{Field{Off: 8, Len: 4, Kind: kindRelOff, sub: 1, key: 0x10904}, words(0x10924), learned},
	}, predict(t, p, old[:0x410], 0x400))
}

// TestPredictBuildID: a build ID is as good as random; the name of the debug file
// is made of it, once it is known.
func TestPredictBuildID(t *testing.T) {
	const text = "b2c3d4e5f60718293a4b5c6d7e8f9001122334"
	note := append(words(4, idLen, 3, 0x00554e47), make([]byte, idLen)...)
	link := append([]byte(text), ".debug\x00\x00\x00\x00\x01\x02\x03\x04"...)
	link = link[:len(text)+len(".debug")+1]
	for len(link)%4 != 0 {
		link = append(link, 0)
	}
	link = append(link, 1, 2, 3, 4)
	old := build(machineArm, codeBase,
		part{name: ".note.gnu.build-id", typ: 7, flags: allocated, at: 0x400, body: note},
		part{name: ".gnu_debuglink", typ: progbits, at: 0x500, body: link})
	p, err := New(parse(t, old), old[:headSize], tableRanges(), Plain, Shift{}, nil)
	require.NoError(t, err)

	scan := func(at, n int) []Field {
		return p.Scan(nil, old[at:at+n], int64(at), int64(at)+16, 0x3e8, 0x800)
	}
	sum := int32(len(link) - 4)
	require.Equal(t, []Field{{Off: 0, Len: MaxField, Kind: kindIDText}, {Off: sum, Len: 4, Kind: kindSum}}, scan(0x500, len(link)))
	name := scan(0x500, len(link))[0]
	pred := make([]byte, MaxField)
	require.EqualValues(t, unknown, p.Predict(&name, link, pred))
	require.Equal(t, text, string(pred), "nothing better is known than the old one")

	id := scan(0x400, len(note))
	require.Equal(t, []Field{{Off: idAt, Len: idLen, Kind: kindID}}, id)
	require.True(t, id[0].Random())
	fresh := []byte("\xa1\x02\x13\x24\x35\x46\x57\x68\x79\x8a\x9b\xac\xbd\xce\xdf\xe0\xf1\x02\x13\x24")
	p.Learn(&id[0], note[idAt:], fresh)
	require.EqualValues(t, covered, p.Predict(&name, link, pred))
	require.Equal(t, "02132435465768798a9bacbdcedfe0f1021324", string(pred))
	require.False(t, name.Random())
	_, ok := p.Step(&name, link, pred, pred)
	require.False(t, ok)
	got := make([]byte, MaxField)
	p.Apply(&name, link, pred, got, 0)
	require.Equal(t, pred, got)
}

// TestMapping: an address goes where its range goes; one between two ranges where
// the one before goes, until one beside it was seen; one behind the file's part of
// a segment goes with that end.
func TestMapping(t *testing.T) {
	old, new := build(machineArm, codeBase), build(machineArm, codeBase)
	const grown = 0x40
	le.PutUint32(new[52+16:], builtSize+grown) // the segment's size in the file
	le.PutUint32(new[52+20:], builtSize+grown+0x1000)
	p, err := New(parse(t, old), new[:headSize], []Range{{0x800, 0x840, 0x100}, {0x100, 0x100, 0x200}, {0x400, 0x410, 0x100}}, Plain, Shift{}, nil)
	require.NoError(t, err)
	m := p.m
	require.Equal(t, []Range{{0x100, 0x100, 0x200}, {0x400, 0x410, 0x100}, {0x800, 0x840, 0x100}}, m.ranges)
	for off, k := range map[int64]int{0: -1, 0xff: -1, 0x100: 0, 0x3ff: 0, 0x400: 1, 0x7ff: 1, 0x800: 2, 0x100000: 2} {
		require.Equal(t, k, m.find(off), "%#x", off)
	}
	type answer struct {
		addr  uint64
		trust uint8
	}
	ask := func(off uint64) answer {
		v, trust := m.addr(codeBase + off)
		return answer{v - codeBase, trust}
	}
	require.Equal(t, answer{0x80, unknown}, ask(0x80), "before all ranges")
	require.Equal(t, answer{0x100, covered}, ask(0x100))
	require.Equal(t, answer{0x2ff, covered}, ask(0x2ff))
	require.Equal(t, answer{0x300, guessed}, ask(0x300))
	require.Equal(t, answer{0x410, covered}, ask(0x400))
	require.Equal(t, answer{0x610, guessed}, ask(0x600))
	require.Equal(t, answer{0x840, covered}, ask(0x800))
	require.Equal(t, answer{builtSize + 8 + grown, guessed}, ask(builtSize+8))
	require.Equal(t, answer{0x100000, unknown}, ask(0x100000))

	m.learn(codeBase+0x600, codeBase+0x628)
	require.Equal(t, answer{0x628, learned}, ask(0x600))
	require.Equal(t, answer{0x708, guessed}, ask(0x6e0), "beside it")
	require.Equal(t, answer{0x300, guessed}, ask(0x300), "between others")
	require.Equal(t, answer{0x840, covered}, ask(0x800), "in a range")
	m.learn(codeBase+0x600, codeBase+0x628)
	require.Equal(t, answer{0x628, sure}, ask(0x600))
	m.learn(codeBase+builtSize+8, codeBase+builtSize+0x108)
	require.Equal(t, answer{builtSize + 0x200, guessed}, ask(builtSize+0x100))
}

// TestUnit: Thumb code comes in units of two bytes, all else in four.
func TestUnit(t *testing.T) {
	for _, c := range []struct {
		machine uint16
		mode    Mode
		off     int64
		want    int
	}{
		{machineArm, Plain, 0x400, 2}, {machineArm, A32, 0x400, 4}, {machineArm, Plain, 0x900, 4},
		{machineArm, Plain, 0x100000, 4}, {machineArm64, Plain, 0x400, 4}, {machineX86, Plain, 0x400, 4},
	} {
		old := build(c.machine, codeBase, part{name: ".text", typ: progbits, flags: executable, at: 0x400, body: make([]byte, 0x100)},
			part{name: ".data", typ: progbits, flags: allocated, at: 0x900, body: make([]byte, 0x100)})
		p, err := New(parse(t, old), old[:headSize], tableRanges(), c.mode, Shift{}, nil)
		require.NoError(t, err)
		require.Equal(t, c.want, p.Unit(c.off), "%+v", c)
	}
}
