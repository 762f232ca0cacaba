package elf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The code of these tests is at 0x3c0 of a file at 0x10000, in a range that stays;
// what is at 0x3e8 and on moves by 16 bytes. Instructions are as the Arm
// Architecture Reference Manual and Intel's manual have them.
const (
	codeBase = 0x10000
	codeAt   = 0x3c0
	codePC   = codeBase + codeAt
	target   = codeBase + 0x400 // goes to 0x10410
)

func codeRanges() []Range { return []Range{{0, 0, 0x3e8}, {0x3e8, 0x3f8, 0x1800 - 0x3e8}} }

func codePredictor(t *testing.T, machine uint16, base uint64, mode Mode, at int, code []byte) (*Predictor, []byte) {
	t.Helper()
	body := make([]byte, 0x200)
	for i := 0; machine == machineArm && mode == Plain && i < len(body); i += 2 {
		le.PutUint16(body[i:], 0xbf00) // NOP
	}
	copy(body[at-0x300:], code)
	old := build(machine, base, part{name: ".text", typ: progbits, flags: executable, at: 0x300, body: body})
	p, err := New(parse(t, old), old[:headSize], codeRanges(), mode, Shift{}, nil)
	require.NoError(t, err)
	return p, old[:at+len(code)]
}

// TestPredictCode: an instruction that refers to what moved is predicted to refer
// to where it is now.
func TestPredictCode(t *testing.T) {
	const arm, a64, x86 = machineArm, machineArm64, machineX86
	short := func(n uint8, kind Kind, sub uint8) Field {
		return Field{Len: n, Kind: kind, sub: sub, pc: codePC, key: target}
	}
	for _, c := range []struct {
		name     string
		machine  uint16
		mode     Mode
		old, new []byte
		field    Field
	}{
		{"A32 BL", arm, A32, words(0xeb00000e), words(0xeb000012), Field{Len: 4, Kind: kindArm, sub: 1, pc: codePC, key: target}},
		{"A32 B", arm, A32, words(0xea00000e), words(0xea000012), Field{Len: 4, Kind: kindArm, pc: codePC, key: target}},
		{"A32 BNE", arm, A32, words(0x1a00000e), words(0x1a000012), Field{Len: 4, Kind: kindArm, pc: codePC, key: target}},
		{"A32 LDR", arm, A32, words(0xe59f0038), words(0xe59f0048), short(4, kindShort, a32Load)},
		{"A32 VLDR double", arm, A32, words(0xed9f0b0e), words(0xed9f0b12), short(4, kindShort, a32Float)},
		{"A32 VLDR single", arm, A32, words(0xed9f0a0e), words(0xed9f0a12), short(4, kindShort, a32Float)},
		{"A32 address", arm, A32, words(target), words(target + 16), Field{Len: 4, Kind: kindAbs32, key: target}},

		{"Thumb BL", arm, Plain, halves(0xf000, 0xf81e), halves(0xf000, 0xf826), Field{Len: 4, Kind: kindThumb, sub: 5, pc: codePC, key: target}},
		{"Thumb BLX", arm, Plain, halves(0xf000, 0xe81e), halves(0xf000, 0xe826), Field{Len: 4, Kind: kindThumb, sub: 4, pc: codePC, key: target}},
		{"Thumb B.W", arm, Plain, halves(0xf000, 0xb81e), halves(0xf000, 0xb826), Field{Len: 4, Kind: kindThumb, sub: 1, pc: codePC, key: target}},
		{"Thumb BEQ.W", arm, Plain, halves(0xf000, 0x801e), halves(0xf000, 0x8026), short(4, kindShort, t32Cond)},
		{"Thumb BNE.W", arm, Plain, halves(0xf040, 0x801e), halves(0xf040, 0x8026), short(4, kindShort, t32Cond)},
		{"Thumb LDR.W", arm, Plain, halves(0xf8df, 0x103c), halves(0xf8df, 0x104c), short(4, kindShort, t32Load)},
		{"Thumb LDRB.W", arm, Plain, halves(0xf89f, 0x103c), halves(0xf89f, 0x104c), short(4, kindShort, t32Load)},
		{"Thumb VLDR", arm, Plain, halves(0xed9f, 0x0a0f), halves(0xed9f, 0x0a13), short(4, kindShort, t32Float)},
		{"Thumb BEQ", arm, Plain, halves(0xd01e, 0xbf00), halves(0xd026), short(2, kindShort16, t16Cond)},
		{"Thumb B", arm, Plain, halves(0xe01e, 0xbf00), halves(0xe026), short(2, kindShort16, t16Jump)},
		{"Thumb CBZ", arm, Plain, halves(0xb1f0, 0xbf00), halves(0xb330), short(2, kindShort16, t16Zero)},
		{"Thumb CBNZ", arm, Plain, halves(0xb9f5, 0xbf00), halves(0xbb35), short(2, kindShort16, t16Zero)},
		{"Thumb LDR", arm, Plain, halves(0x480f, 0xbf00), halves(0x4813), short(2, kindShort16, t16Load)},
		{"Thumb ADR", arm, Plain, halves(0xa00f, 0xbf00), halves(0xa013), short(2, kindShort16, t16Adr)},
		{"Thumb address", arm, Plain, words(target), words(target + 16), Field{Len: 4, Kind: kindAbs32, key: target}},

		{"A64 B", a64, Plain, words(0x14000010), words(0x14000014), Field{Len: 4, Kind: kindA64, pc: codePC, key: target}},
		{"A64 BL", a64, Plain, words(0x94000010), words(0x94000014), Field{Len: 4, Kind: kindA64, pc: codePC, key: target}},
		{"A64 B.EQ", a64, Plain, words(0x54000200), words(0x54000280), short(4, kindShort, a64Cond)},
		{"A64 CBZ", a64, Plain, words(0xb4000201), words(0xb4000281), short(4, kindShort, a64Cond)},
		{"A64 CBNZ", a64, Plain, words(0x35000201), words(0x35000281), short(4, kindShort, a64Cond)},
		{"A64 LDR literal", a64, Plain, words(0x58000201), words(0x58000281), short(4, kindShort, a64Cond)},
		{"A64 TBZ", a64, Plain, words(0x36000201), words(0x36000281), short(4, kindShort, a64Test)},
		{"A64 TBNZ", a64, Plain, words(0xb7f80201), words(0xb7f80281), short(4, kindShort, a64Test)},
		{"A64 ADR", a64, Plain, words(0x10000201), words(0x10000281), short(4, kindShort, a64Adr)},
		{"A64 ADRP, ADD", a64, Plain, words(0x90000000, 0x91100000), words(0x90000000, 0x91104000), Field{Len: 8, Kind: kindPage, pc: codePC, key: target}},
		{"A64 ADRP, ADD into the next page", a64, Plain, words(0x90000000, 0x913fe000), words(0xb0000000, 0x91002000), Field{Len: 8, Kind: kindPage, pc: codePC, key: 0x10ff8}},
		{"A64 ADRP, LDRB", a64, Plain, words(0x90000000, 0x39500001), words(0x90000000, 0x39504001), Field{Len: 8, Kind: kindPage, pc: codePC, key: target}},
		{"A64 ADRP, LDR of 8 bytes", a64, Plain, words(0x90000000, 0xf9420001), words(0x90000000, 0xf9420801), Field{Len: 8, Kind: kindPage, sub: 3, pc: codePC, key: target}},
		{"A64 ADRP, LDR of 16 bytes", a64, Plain, words(0x90000000, 0x3dc10001), words(0x90000000, 0x3dc10401), Field{Len: 8, Kind: kindPage, sub: 4, pc: codePC, key: target}},
		{"A64 ADRP alone", a64, Plain, words(0xb0000000, 0xd503201f), words(0xb0000000), Field{Len: 4, Kind: kindPageAlone, pc: codePC, key: 0x11000}},
		{"A64 ADRP, ADD of another register", a64, Plain, words(0xb0000000, 0x91100021), words(0xb0000000), Field{Len: 4, Kind: kindPageAlone, pc: codePC, key: 0x11000}},

		{"x86 CALL", x86, Plain, []byte{0xe8, 0x3b, 0, 0, 0}, []byte{0x4b, 0, 0, 0}, Field{Off: 1, Len: 4, Kind: kindX86, sub: 1, pc: codePC + 5, key: target}},
		{"x86 JMP", x86, Plain, []byte{0xe9, 0x3b, 0, 0, 0}, []byte{0x4b, 0, 0, 0}, Field{Off: 1, Len: 4, Kind: kindX86, sub: 1, pc: codePC + 5, key: target}},
		{"x86 JE", x86, Plain, []byte{0x0f, 0x84, 0x3a, 0, 0, 0}, []byte{0x4a, 0, 0, 0}, Field{Off: 2, Len: 4, Kind: kindX86, sub: 2, pc: codePC + 6, key: target}},
		{"x86 LEA", x86, Plain, []byte{0x48, 0x8d, 0x05, 0x39, 0, 0, 0}, []byte{0x49, 0, 0, 0}, Field{Off: 3, Len: 4, Kind: kindX86, sub: 2, pc: codePC + 7, key: target}},
		{"x86 CALL back", x86, Plain, []byte{0xe8, 0x3b, 0xfc, 0xff, 0xff}, nil, Field{}}, // to the file's start, in the range
	} {
		t.Run(c.name, func(t *testing.T) {
			p, old := codePredictor(t, c.machine, codeBase, c.mode, codeAt, c.old)
			got := predict(t, p, old, codeAt)
			if c.new == nil {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []predicted{{c.field, c.new, covered}}, got)
			require.Equal(t, []predicted{{c.field, c.new, learned}}, predict(t, p, old, codeAt), "the second time")
		})
	}
}

// TestPredictBack: code that moved refers to what stayed, before it.
func TestPredictBack(t *testing.T) {
	const at, pc = 0x410, codeBase + 0x420 // the new address
	for _, c := range []struct {
		name     string
		machine  uint16
		mode     Mode
		old, new []byte
		field    Field
	}{
		{"A32 BL", machineArm, A32, words(0xebffffea), words(0xebffffe6), Field{Len: 4, Kind: kindArm, sub: 1, pc: pc, key: codePC}},
		{"A32 LDR", machineArm, A32, words(0xe51f0058), words(0xe51f0068), Field{Len: 4, Kind: kindShort, sub: a32Load, pc: pc, key: codePC}},
		{"A32 VLDR", machineArm, A32, words(0xed1f0b16), words(0xed1f0b1a), Field{Len: 4, Kind: kindShort, sub: a32Float, pc: pc, key: codePC}},
		{"Thumb BL", machineArm, Plain, halves(0xf7ff, 0xffd6), halves(0xf7ff, 0xffce), Field{Len: 4, Kind: kindThumb, sub: 5, pc: pc, key: codePC}},
		{"Thumb BEQ.W", machineArm, Plain, halves(0xf43f, 0xafd6), halves(0xf43f, 0xafce), Field{Len: 4, Kind: kindShort, sub: t32Cond, pc: pc, key: codePC}},
		{"Thumb LDR.W", machineArm, Plain, halves(0xf85f, 0x1054), halves(0xf85f, 0x1064), Field{Len: 4, Kind: kindShort, sub: t32Load, pc: pc, key: codePC}},
		{"Thumb VLDR", machineArm, Plain, halves(0xed1f, 0x0a15), halves(0xed1f, 0x0a19), Field{Len: 4, Kind: kindShort, sub: t32Float, pc: pc, key: codePC}},
		{"Thumb BEQ", machineArm, Plain, halves(0xd0d6, 0xbf00), halves(0xd0ce), Field{Len: 2, Kind: kindShort16, sub: t16Cond, pc: pc, key: codePC}},
		{"Thumb B", machineArm, Plain, halves(0xe7d6, 0xbf00), halves(0xe7ce), Field{Len: 2, Kind: kindShort16, sub: t16Jump, pc: pc, key: codePC}},
		{"A64 BL", machineArm64, Plain, words(0x97ffffec), words(0x97ffffe8), Field{Len: 4, Kind: kindA64, pc: pc, key: codePC}},
		{"A64 B.EQ", machineArm64, Plain, words(0x54fffd80), words(0x54fffd00), Field{Len: 4, Kind: kindShort, sub: a64Cond, pc: pc, key: codePC}},
		{"A64 TBZ", machineArm64, Plain, words(0x3607fd80), words(0x3607fd00), Field{Len: 4, Kind: kindShort, sub: a64Test, pc: pc, key: codePC}},
		{"A64 ADR", machineArm64, Plain, words(0x10fffd80), words(0x10fffd00), Field{Len: 4, Kind: kindShort, sub: a64Adr, pc: pc, key: codePC}},
		{"x86 CALL", machineX86, Plain, []byte{0xe8, 0xab, 0xff, 0xff, 0xff}, []byte{0x9b, 0xff, 0xff, 0xff}, Field{Off: 1, Len: 4, Kind: kindX86, sub: 1, pc: pc + 5, key: codePC}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, old := codePredictor(t, c.machine, codeBase, c.mode, at, c.old)
			require.Equal(t, []predicted{{c.field, c.new, covered}}, predict(t, p, old, at))
		})
	}
}

// TestNotPredicted: what refers to its own range stays as it is, and what is no
// reference is none.
func TestNotPredicted(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine uint16
		mode    Mode
		code    []byte
	}{
		{"A32 BL within", machineArm, A32, words(0xeb000000)},
		{"A32 LDR within", machineArm, A32, words(0xe59f0004)},
		{"A32 LDRB", machineArm, A32, words(0xe5df0038)},
		{"A32 BLX", machineArm, A32, words(0xfa00000e)},
		{"A32 number", machineArm, A32, words(0x00000400)},
		{"Thumb BL within", machineArm, Plain, halves(0xf000, 0xf802)},
		{"Thumb BEQ within", machineArm, Plain, halves(0xd002, 0xbf00)},
		{"Thumb UDF, SVC", machineArm, Plain, halves(0xde1e, 0xdf1e)},
		{"A64 BL within", machineArm64, Plain, words(0x94000002)},
		{"A64 TBZ within", machineArm64, Plain, words(0x36000040)},
		{"A64 MOV", machineArm64, Plain, words(0xaa0103e0)},
		{"x86 CALL within", machineX86, Plain, []byte{0xe8, 0, 0, 0, 0}},
		{"x86 CALL out of the file", machineX86, Plain, []byte{0xe8, 0, 0, 0, 0x7f}},
		{"x86 cut", machineX86, Plain, []byte{0x90, 0x0f, 0x84, 0x3a, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, old := codePredictor(t, c.machine, codeBase, c.mode, codeAt, c.code)
			require.Empty(t, predict(t, p, old, codeAt))
		})
	}
}

// TestPredictPool: in a file without a place of its own, words in code may be
// distances to data.
func TestPredictPool(t *testing.T) {
	for _, mode := range []Mode{Plain, A32} {
		p, old := codePredictor(t, machineArm, 0, mode, codeAt, words(0x40))
		want := []predicted{{Field{Len: 4, Kind: kindPool, pc: codeAt, key: 0x400}, words(0x50), covered}}
		require.Equal(t, want, predict(t, p, old, codeAt))
		require.Equal(t, want, predict(t, p, old, codeAt), "not learnt")
	}
}

// TestOtherForm: new bytes that are another instruction have no step.
func TestOtherForm(t *testing.T) {
	for _, c := range []struct {
		machine  uint16
		mode     Mode
		old, new []byte
	}{
		{machineArm, A32, words(0xeb00000e), words(0x1b00000e)},
		{machineArm, A32, words(0xe59f0038), words(0xe59f1038)},
		{machineArm, Plain, halves(0xf000, 0xf81e), halves(0xf000, 0xe81e)},
		{machineArm, Plain, halves(0xd01e, 0xbf00), halves(0xd11e)},
		{machineArm64, Plain, words(0x94000010), words(0x14000010)},
		{machineArm64, Plain, words(0x90000000, 0x91100000), words(0x90000001, 0x91100000)},
		{machineArm64, Plain, words(0x90000000, 0x91100000), words(0x90000000, 0xb9400000)},
	} {
		p, old := codePredictor(t, c.machine, codeBase, c.mode, codeAt, c.old)
		fields := p.Scan(nil, old[codeAt:], codeAt, codeAt, 0, 0x3e8)
		require.Len(t, fields, 1)
		pred := make([]byte, fields[0].Len)
		p.Predict(&fields[0], old[codeAt:], pred)
		_, ok := p.Step(&fields[0], old[codeAt:], pred, c.new)
		require.False(t, ok, "%x", c.old)
	}
}
