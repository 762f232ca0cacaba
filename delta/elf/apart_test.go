package elf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPredictApart: both parts of an address are predicted, though other instructions stand
// between them, and not without the feature.
func TestPredictApart(t *testing.T) {
	const nop64, nop32, page = 0xd503201f, 0xe1a00000, codeBase
	type half struct {
		field Field
		new   []byte
	}
	low := func(off int32, z uint8, key uint64) Field {
		return Field{Off: off, Len: 4, Kind: kindLow, sub: z << 5, pc: key &^ 0xfff, key: key}
	}
	literal := func(off int32, pc uint64) Field {
		return Field{Off: off, Len: 4, Kind: kindLiteral, pc: pc, key: target}
	}
	adrp := Field{Len: 4, Kind: kindPageLow, pc: codePC, key: target}
	for _, c := range []struct {
		name    string
		machine uint16
		mode    Mode
		code    []byte
		parts   []half
	}{
		{"A64 ADD", machineArm64, Plain, words(0x90000000, nop64, 0x91100001),
			[]half{{adrp, words(0x90000000)}, {low(8, 0, target), words(0x91104001)}}},
		{"A64 LDR of 4 bytes, STR of 8", machineArm64, Plain, words(0x90000000, nop64, 0xb9440001, 0xf9020002),
			[]half{{adrp, words(0x90000000)}, {low(8, 2, target), words(0xb9441001)}, {low(12, 3, target), words(0xf9020802)}}},
		{"A64 ADD into the next page", machineArm64, Plain, words(0x90000000, nop64, 0x913fe001),
			[]half{{Field{Len: 4, Kind: kindPageLow, pc: codePC, key: page + 0xff8}, words(0xb0000000)}, {Field{Off: 8, Len: 4, Kind: kindLow, pc: page + 0x1000, key: page + 0xff8}, words(0x91002001)}}},
		{"A64 pair, then another ADD", machineArm64, Plain, words(0x90000000, 0x91100001, 0x91100002),
			[]half{{Field{Len: 8, Kind: kindPage, pc: codePC, key: target}, words(0x90000000, 0x91104001)}, {low(8, 0, target), words(0x91104002)}}},
		{"A32 ADD", machineArm, A32, words(0xe59f0008, nop32, 0xe08f0000, nop32, 0x30),
			[]half{{literal(16, codePC+16), words(0x40)}}},
		{"A32 LDRB", machineArm, A32, words(0xe59f2008, nop32, 0xe7df1002, nop32, 0x30),
			[]half{{literal(16, codePC+16), words(0x40)}}},
		{"A32 ADD, the other way", machineArm, A32, words(0xe59f0008, nop32, 0xe080100f, nop32, 0x30),
			[]half{{literal(16, codePC+16), words(0x40)}}},
		{"Thumb ADD", machineArm, Plain, halves(0x4802, 0x4478, 0xbf00, 0xbf00, 0xbf00, 0xbf00, 0x3a, 0),
			[]half{{literal(12, codePC+6), words(0x4a)}}},
		{"Thumb ADD of a high register", machineArm, Plain, halves(0xf8df, 0x8008, 0x44f8, 0xbf00, 0xbf00, 0xbf00, 0x38, 0),
			[]half{{literal(12, codePC+8), words(0x48)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, old := codePredictor(t, c.machine, codeBase, c.mode, codeAt, c.code)
			p.Apart()
			got := predict(t, p, old, codeAt)
			require.Len(t, got, len(c.parts))
			for i, g := range got {
				require.Equal(t, c.parts[i], half{g.field, g.bytes})
			}
			p, old = codePredictor(t, c.machine, codeBase, c.mode, codeAt, c.code)
			for _, f := range predict(t, p, old, codeAt) {
				require.Contains(t, []Kind{kindPage, kindPageAlone}, f.field.Kind)
			}
		})
	}
}

// TestApartElsewhere: the instruction that adds PC did not move with the word.
func TestApartElsewhere(t *testing.T) {
	// The word at 0x3e8 is that of the second range; both parts of the code are in the first.
	p, old := codePredictor(t, machineArm, codeBase, A32, codeAt, append(words(0xe59f0020, 0xe08f0000), append(make([]byte, 32), words(0x34)...)...))
	p.Apart()
	require.Len(t, predict(t, p, old, codeAt), 1, "the load")
	got := predict(t, p, old, 0x3e8)
	require.Len(t, got, 1)
	require.Equal(t, Field{Len: 4, Kind: kindLiteral, pc: codePC + 12, key: target}, got[0].field)
	require.Equal(t, words(0x44), got[0].bytes)
}

// TestApartOtherPage: low bits are those of an address on the page that the register got, and
// teach it.
func TestApartOtherPage(t *testing.T) {
	p, old := codePredictor(t, machineArm64, codeBase, Plain, codeAt, words(0x90000000, 0xd503201f, 0x91100001))
	p.Apart()
	code := old[codeAt:]
	fields := p.Scan(nil, code, codeAt, codeAt, 0, 0x3e8)
	require.Len(t, fields, 2)
	pred := make([]byte, 4)
	p.Predict(&fields[0], code, pred)
	p.Learn(&fields[0], code, words(0xb0000000)) // the next page
	require.EqualValues(t, unknown, p.Predict(&fields[1], code[8:], pred))
	p.Learn(&fields[1], code[8:], words(0x91008001))
	v, trust := p.m.addr(target)
	require.Equal(t, uint64(codeBase+0x1020), v)
	require.EqualValues(t, learned, trust)
}

// TestApartForgets: after an instruction that writes the register, nothing is known about it.
func TestApartForgets(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  uint32
		reg   uint32
		known bool
	}{
		{"NOP", 0xd503201f, 1, true},
		{"MOV", 0xaa0203e1, 1, false},
		{"MOV from it", 0xaa0103e2, 1, true},
		{"MOVZ", 0x52800001, 1, false},
		{"CMP", 0xeb02003f, 1, true},
		{"LDR", 0xf9400041, 1, false},
		{"LDR literal", 0x58000041, 1, false},
		{"LDP", 0xa9400440, 1, false},
		{"STR", 0xf9000041, 1, true},
		{"STP", 0xa9000440, 1, true},
		{"LDR of a vector", 0x3dc00041, 1, true},
		{"B", 0x14000001, 1, true},
		{"CBZ", 0xb4000041, 1, true},
		{"BL", 0x94000001, 1, false},
		{"BLR", 0xd63f0040, 1, false},
		{"BL, a register that calls keep", 0x94000001, 19, true},
		{"a function begins", 0xa9be7bfd, 19, false},
	} {
		var r pages
		r[c.reg] = 1 << 12
		r.written(c.code)
		_, _, known := r.low(0x91000000 | c.reg<<5)
		require.Equal(t, c.known, known, c.name)
	}

	var a apart
	a.follow(codeBase, 64)
	a.pages[1], a.loads[1] = 1<<12, 4
	a.follow(codeBase+64+maxSkip-4, 64)
	require.NotZero(t, a.pages[1])
	require.NotZero(t, a.loads[1])
	a.follow(codeBase, 64)
	require.Zero(t, a.pages)
	require.Zero(t, a.loads)
}
