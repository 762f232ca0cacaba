package elf

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLineShifts: what was learnt about a line holds until something else is learnt
// about it.
func TestLineShifts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s lineShifts
		files, lines := rapid.Uint32Range(0, 3), rapid.Uint32Range(0, 30)
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			l := lineOf(files.Draw(t, "file"), lines.Draw(t, "line"))
			by := rapid.Int32Range(-2, 2).Draw(t, "by")
			before := slices.Clone(s.runs)
			s.learn(l, by)
			got, _ := s.of(l)
			require.Equal(t, by, got)
			for i, r := range s.runs {
				require.True(t, r.from <= r.to && r.from.file() == r.to.file())
				require.True(t, i == 0 || s.runs[i-1].to < r.from)
			}
			for _, r := range before {
				for _, k := range []line{r.from, r.to} {
					if k != l {
						got, trust := s.of(k)
						require.Equal(t, r.by, got)
						require.EqualValues(t, sure, trust)
					}
				}
			}
		}
	})
}

// TestLineShiftsBound: there are never more runs than the limit.
func TestLineShiftsBound(t *testing.T) {
	var s lineShifts
	for i := range uint32(2 * maxShiftedRuns) {
		s.learn(lineOf(1, 3*i), int32(i&1)+1)
	}
	for i := range uint32(maxShiftedRuns) {
		s.learn(lineOf(1, 3*i), 7)
	}
	require.LessOrEqual(t, len(s.runs), maxShiftedRuns)
}

// entry is one entry of a pc table: the value, and the length of its code.
type entry struct{ value, code int }

func pcTable(entries ...entry) (b []byte) {
	last := -1
	for _, e := range entries {
		for _, v := range []uint32{fold(uint32(e.value - last)), uint32(e.code)} {
			for ; v > 127; v >>= 7 {
				b = append(b, byte(v)|128)
			}
			b = append(b, byte(v))
		}
		last = e.value
	}
	return append(b, 0)
}

const fileA, fileB = 0x11, 0x22 // offsets in the table of files

// linesProgram has two functions: the first one in file A, with a piece of file B
// that was inlined, the second one in file B. In the new version, 3 and 200 lines
// precede all of A and of B.
func linesProgram(a, b int) (program []byte, pcs int) {
	const units, functions = 80, 200
	tables := [][]byte{
		pcTable(entry{0, 12}, entry{1, 8}, entry{0, 4}),
		pcTable(entry{100 + a, 4}, entry{101 + a, 8}, entry{500 + b, 4}, entry{501 + b, 4}, entry{103 + a, 4}),
		pcTable(entry{1, 8}),
		pcTable(entry{510 + b, 4}, entry{511 + b, 4}),
	}
	body := append(words(goMagic20, 8<<24), longs(2, 2, codeBase+goText, 72, units, 96, 128, functions)...)
	body = append(body, make([]byte, functions-len(body))...)
	copy(body[units:], words(fileA, fileB))
	at := 1
	var offs []uint32
	for _, t := range tables {
		offs = append(offs, uint32(at))
		at += copy(body[128+at:], t)
	}
	record := func(code, files, lines, start uint32) []byte {
		return words(code, 1, 0, 0, 0, files, lines, 0, 0, start, 0)
	}
	body = append(body, words(0, 16, 24, 16+recordLen)...)
	body = append(body, record(0, offs[0], offs[1], uint32(100+a))...)
	body = append(body, record(24, offs[2], offs[3], uint32(510+b))...)
	return build(machineArm64, codeBase,
		part{name: ".text", typ: progbits, flags: executable, at: goText, body: make([]byte, goTab-goText)},
		part{name: ".gopclntab", typ: progbits, flags: allocated, at: goTab, body: body},
	), goTab + 128
}

// TestPredictLines: once an edit is known, all lines below it are predicted, also
// where they are inlined and where functions begin.
func TestPredictLines(t *testing.T) {
	old, pcs := linesProgram(0, 0)
	new, _ := linesProgram(3, 200)
	p, err := New(parse(t, old), old[:headSize], []Range{{0, 0, int64(len(old))}}, Plain, Shift{}, nil)
	require.NoError(t, err)
	var wrong []Field
	pred := make([]byte, MaxField)
	fields := p.Scan(nil, old[pcs:], int64(pcs), int64(pcs), 0, int64(len(old)))
	kinds := map[Kind]int{}
	for _, f := range fields {
		kinds[f.Kind]++
		was, is := old[pcs+int(f.Off):], new[pcs+int(f.Off):][:f.Len]
		p.Predict(&f, was, pred)
		if string(pred[:f.Len]) != string(is) {
			step, ok := p.Step(&f, was, pred[:f.Len], is)
			require.True(t, ok)
			got := make([]byte, f.Len)
			p.Apply(&f, was, pred[:f.Len], got, step)
			require.Equal(t, is, got)
			wrong = append(wrong, f)
		}
		p.Learn(&f, was, is)
	}
	require.Equal(t, 4, kinds[kindGo+goLine], "no pairs of lines that are shifted alike")
	require.Equal(t, 2, kinds[kindGo+goStart])
	require.Len(t, wrong, 2, "the first line of each file")
	require.Equal(t, lineOf(fileA, 100), line(wrong[0].key))
	require.Equal(t, lineOf(fileB, 500), line(wrong[1].key))
}

// TestScanLinesInParts: where a scan begins and ends makes no difference, but for an
// entry that it parts.
func TestScanLinesInParts(t *testing.T) {
	old, pcs := linesProgram(0, 0)
	f := parse(t, old)
	whole := predictorOf(t, f, old).Scan(nil, old[pcs:pcs+72], int64(pcs), int64(pcs), 0, int64(len(old)))
	require.Len(t, whole, 4)
	for cut := 1; cut < 72; cut++ {
		var parts []Field
		p := predictorOf(t, f, old)
		for _, r := range [][2]int{{0, cut}, {cut, 72}} {
			for _, fd := range p.Scan(nil, old[pcs+r[0]:pcs+r[1]], int64(pcs+r[0]), int64(pcs+r[0]), 0, int64(len(old))) {
				fd.Off += int32(r[0])
				parts = append(parts, fd)
			}
		}
		want := slices.DeleteFunc(slices.Clone(whole), func(fd Field) bool {
			end := int(fd.Off) + int(fd.Len)
			return int(fd.Off) < cut && cut <= end && !slices.Contains(parts, fd)
		})
		require.GreaterOrEqual(t, len(want), 3)
		require.Equal(t, want, parts, "parted at %d", cut)
	}
}

func predictorOf(t *testing.T, f *File, b []byte) *Predictor {
	t.Helper()
	p, err := New(f, b[:headSize], []Range{{0, 0, int64(len(b))}}, Plain, Shift{}, nil)
	require.NoError(t, err)
	return p
}
