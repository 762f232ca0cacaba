package elf

import (
	"bytes"
	"math"
	"math/rand"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParseRefuses: what is not a file of a known machine, or has segments that
// cannot be.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(b []byte)
	}{
		{"another magic", func(b []byte) { b[0] = 0 }},
		{"big endian", func(b []byte) { b[5] = 2 }},
		{"another machine", func(b []byte) { le.PutUint16(b[18:], 8) }},
		{"a machine of 32 bits in a file of 64", func(b []byte) { le.PutUint16(b[18:], machineArm) }},
		{"program headers of another size", func(b []byte) { le.PutUint16(b[54:], 32) }},
		{"no program headers", func(b []byte) { le.PutUint16(b[56:], 0) }},
		{"too many program headers", func(b []byte) { le.PutUint16(b[56:], maxSegments+1) }},
		{"program headers behind the first bytes", func(b []byte) { le.PutUint64(b[32:], headSize-55) }},
		{"program headers at the end of all numbers", func(b []byte) { le.PutUint64(b[32:], math.MaxUint64-10) }},
		{"no segment that is loaded", func(b []byte) { le.PutUint32(b[64:], 6) }},
		{"a segment far away in the file", func(b []byte) { le.PutUint64(b[72:], 1<<47+1) }},
		{"a segment far away in memory", func(b []byte) { le.PutUint64(b[80:], math.MaxUint64) }},
		{"a segment too large in the file", func(b []byte) { le.PutUint64(b[96:], 1<<47+1) }},
		{"a segment too large in memory", func(b []byte) { le.PutUint64(b[104:], 1<<47+1) }},
		{"a segment smaller in memory than in the file", func(b []byte) { le.PutUint64(b[104:], builtSize-1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := goProgram(codeBase+goText, 0, 0, 0)
			c.damage(b)
			_, err := Parse(bytes.NewReader(b), int64(len(b)))
			require.ErrorIs(t, err, ErrFormat)
			require.Nil(t, Mask(b, Plain))
		})
	}
	for n := range 120 {
		_, err := Parse(bytes.NewReader(make([]byte, n)), int64(n))
		require.ErrorIs(t, err, ErrFormat)
	}
	b := build(machineArm64, codeBase)
	_, err := Parse(bytes.NewReader(b[:100]), int64(len(b)))
	require.ErrorIs(t, err, ErrFormat, "the file ends before its size")
}

// TestParseTakes: a file whose table of sections or Go table cannot be is read
// without them.
func TestParseTakes(t *testing.T) {
	segments := []section{{size: builtSize, addr: codeBase, class: classCode}}
	sections := parse(t, goProgram(codeBase+goText, 0, 0, 0)).sections
	header := func(b []byte, i int) []byte { return b[sectionTableAt+64*i:] }
	for _, c := range []struct {
		name   string
		damage func(b []byte)
		want   []section
		isGo   bool
	}{
		{"nothing", func([]byte) {}, sections, true},
		{"sections of another size", func(b []byte) { le.PutUint16(b[58:], 40) }, segments, false},
		{"too many sections", func(b []byte) { le.PutUint16(b[60:], maxSections+1) }, segments, false},
		{"sections behind the end", func(b []byte) { le.PutUint64(b[40:], builtSize-100) }, segments, false},
		{"sections at the end of all numbers", func(b []byte) { le.PutUint64(b[40:], math.MaxUint64-100) }, segments, false},
		{"names in no section", func(b []byte) { le.PutUint16(b[62:], 7) }, segments, false},
		{"names too large", func(b []byte) { le.PutUint64(header(b, 6)[32:], maxNames+1) }, segments, false},
		{"names behind the end", func(b []byte) { le.PutUint64(header(b, 6)[24:], builtSize) }, segments, false},
		{"a section behind the end", func(b []byte) { le.PutUint64(header(b, 2)[24:], builtSize-8) }, slices.Delete(slices.Clone(sections), 1, 2), false},
		{"a section as large as all numbers", func(b []byte) { le.PutUint64(header(b, 2)[32:], math.MaxUint64) }, slices.Delete(slices.Clone(sections), 1, 2), false},
		{"a section without content", func(b []byte) { le.PutUint32(header(b, 2)[4:], nobits) }, slices.Delete(slices.Clone(sections), 1, 2), false},
		{"a section without a name", func(b []byte) { le.PutUint32(header(b, 2), maxNames) }, slices.Delete(slices.Clone(sections), 1, 2), false},
		{"another Go", func(b []byte) { b[goTab] = 0xfb }, sections, false},
		{"no functions", func(b []byte) { le.PutUint64(b[goTab+8:], 0) }, sections, false},
		{"more functions than room", func(b []byte) { le.PutUint64(b[goTab+8:], 100) }, sections, false},
		{"functions without number", func(b []byte) { le.PutUint64(b[goTab+8:], math.MaxUint64/8+2) }, sections, false},
		{"names behind the table", func(b []byte) { le.PutUint64(b[goTab+32:], 1<<20) }, sections, false},
		{"functions behind the table", func(b []byte) { le.PutUint64(b[goTab+64:], math.MaxUint64) }, sections, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := goProgram(codeBase+goText, 0, 0, 0)
			c.damage(b)
			f := parse(t, b)
			require.Equal(t, c.want, f.sections)
			require.Equal(t, c.isGo, f.Go())
			for _, mode := range []Mode{Plain, A32} {
				walk(t, b, b, ranges(len(b)), mode)
				require.Len(t, Mask(b, mode), len(b))
			}
		})
	}
}

// TestDamagedTables: files that are cut anywhere, and whose tables hold any
// numbers, are walked and masked without a panic.
func TestDamagedTables(t *testing.T) {
	rnd := rand.New(rand.NewSource(2))
	lines, _ := linesProgram(0, 0)
	good := [][]byte{goProgram(codeBase+goText, codeBase+goTypes, codeBase+goTypesEnd, codeBase+goFuncs), lines,
		sample(machineArm, true), sample(machineArm64, true), sample(machineX86, true)}
	rounds := 4000
	if testing.Short() {
		rounds = 200
	}
	numbers := []uint64{0, 1, 7, 0x7ff, 0x1fff, 0x2000, 1 << 31, math.MaxUint32, 1 << 47, math.MaxUint64}
	for i := range rounds {
		b := slices.Clone(good[i%len(good)])
		for range 1 + rnd.Intn(6) {
			at := []int{0x20, 0x40, goTab, goTab + 128, goTab + goFuncTab, goData, 6144, sectionTableAt, namesAt - 0x100}[rnd.Intn(9)] + 4*rnd.Intn(64)
			if v := numbers[rnd.Intn(len(numbers))]; rnd.Intn(2) == 0 {
				le.PutUint32(b[at:], uint32(v))
			} else {
				le.PutUint64(b[at:], v)
			}
		}
		walk(t, b, good[i%len(good)], ranges(len(b)), Mode(i%3))
		if m := Mask(b, Mode(i%3)); m != nil {
			require.Len(t, m, len(b))
		}
		ModeOf(b)
		cut := b[:rnd.Intn(len(b))]
		walk(t, cut, b, nil, Plain)
		Mask(cut, Plain)
	}
}

// TestParseMemory: whatever a file's tables announce, reading them takes a few
// MiB.
func TestParseMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the largest tables that there may be: not short")
	}
	// 510 sections that each are the whole file, and Go's table as large as may be.
	b := make([]byte, 4<<20)
	copy(b, goProgram(codeBase+goText, 0, 0, 0))
	le.PutUint64(b[96:], uint64(len(b)))
	le.PutUint64(b[104:], uint64(len(b)))
	const table, names, gotab = 0x10000, 0x30000, 0x40000
	copy(b[names:], "\x00.data\x00.gopclntab\x00")
	for i := range maxSections {
		h := b[table+64*i:]
		at, size, name := uint64(0), uint64(len(b)), uint32(1)
		switch i {
		case 0:
			at, size = names, 64
		case 1:
			at, size, name = gotab, uint64(len(b))-gotab, 7
		}
		le.PutUint32(h, name)
		le.PutUint32(h[4:], progbits)
		le.PutUint64(h[8:], allocated)
		le.PutUint64(h[16:], codeBase+at)
		le.PutUint64(h[24:], at)
		le.PutUint64(h[32:], size)
	}
	le.PutUint64(b[40:], table)
	le.PutUint16(b[60:], maxSections)
	le.PutUint16(b[62:], 0)
	copy(b[gotab:], append(words(0xfffffff1, 8<<24), longs(maxFuncs, 1, codeBase, goNames, 0x300000, 0x300000, 0x300000, goNames)...))

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := parse(t, b)
	runtime.ReadMemStats(&after)
	require.True(t, f.Go())
	require.Len(t, f.gotab.entry, maxFuncs)
	require.Len(t, f.sections, maxSections)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// TestMaskOverlapping: no byte is masked for several sections, whatever the table
// of sections says, so that masking takes time for the file's size alone.
func TestMaskOverlapping(t *testing.T) {
	var parts []part
	for range 20 {
		parts = append(parts, part{name: ".text", typ: progbits, flags: executable, at: 0x400, body: words(0x9400000e, 0x94000010)})
	}
	parts = append(parts, part{name: ".data", typ: progbits, flags: allocated, at: 0x404, body: make([]byte, 0x40)},
		part{name: ".got", typ: progbits, flags: allocated, at: 0x500, body: longs(codeBase + 0x400)})
	f := parse(t, build(machineArm64, codeBase, parts...))
	require.Len(t, f.sections, 22)
	var apart []class
	for s := range f.disjointSections() {
		apart = append(apart, s.class)
	}
	require.Equal(t, []class{classCode, classPointers}, apart)
}

// TestMaskLongNames: of a name only the first bytes count, so that names that
// overlap, each as long as the table, do not take time for all of it.
func TestMaskLongNames(t *testing.T) {
	m := &masker{b: bytes.Repeat([]byte("x"), 3*maxNameLen)}
	all := uint64(len(m.b))
	require.Equal(t, m.text(0, all), m.text(maxNameLen, all))
	require.NotEqual(t, m.text(0, maxNameLen-1), m.text(0, all))
	m.b[maxNameLen-1] = 'y'
	require.NotEqual(t, m.text(0, all), m.text(maxNameLen, all))
}
