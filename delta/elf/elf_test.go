package elf

import (
	"bytes"
	"hash/fnv"
	"io"
	"math/rand"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is a small executable of a machine, with noise for code and data, and
// a section table if sections is set.
func sample(machine uint16, sections bool) []byte {
	b := make([]byte, 8192)
	rand.New(rand.NewSource(int64(machine))).Read(b[256:])
	copy(b, "\x7fELF\x01\x01\x01")
	wide := machine != machineArm
	le.PutUint16(b[16:], 3)
	le.PutUint16(b[18:], machine)
	shoff := 6144
	if wide {
		b[4] = 2
		le.PutUint64(b[32:], 64)
		le.PutUint16(b[54:], 56)
		le.PutUint16(b[56:], 1)
		p := b[64:]
		le.PutUint32(p, 1)
		le.PutUint32(p[4:], 7)
		for i, v := range []uint64{0, 0x10000, 0x10000, 6144, 8192, 0x1000} {
			le.PutUint64(p[8+8*i:], v)
		}
	} else {
		le.PutUint32(b[28:], 52)
		le.PutUint16(b[42:], 32)
		le.PutUint16(b[44:], 1)
		for i, v := range []uint32{1, 0, 0x10000, 0x10000, 6144, 8192, 7, 0x1000} {
			le.PutUint32(b[52+4*i:], v)
		}
	}
	if !sections {
		return b
	}
	names := "\x00.text\x00.plt\x00.ARM.exidx\x00.eh_frame_hdr\x00.rel.dyn\x00.dynsym\x00.got\x00.data\x00"
	copy(b[5900:], names)
	type sec struct {
		name       string
		typ, flags uint32
	}
	secs := []sec{{".text", 1, 6}, {".plt", 1, 6}, {".ARM.exidx", 0x70000001, 2}, {".eh_frame_hdr", 1, 2}, {".rel.dyn", 9, 2}, {".dynsym", 11, 2}, {".got", 1, 3}, {".data", 1, 3}}
	ent := 40
	if wide {
		ent = 64
	}
	put := func(i int, name, typ, flags uint32, off, size uint64) {
		h := b[shoff+i*ent:]
		le.PutUint32(h, name)
		le.PutUint32(h[4:], typ)
		if wide {
			le.PutUint64(h[8:], uint64(flags))
			le.PutUint64(h[16:], 0x10000+off)
			le.PutUint64(h[24:], off)
			le.PutUint64(h[32:], size)
			return
		}
		for k, v := range []uint32{flags, 0x10000 + uint32(off), uint32(off), uint32(size)} {
			le.PutUint32(h[8+4*k:], v)
		}
	}
	for i, s := range secs {
		put(i+1, uint32(bytes.Index([]byte(names), []byte(s.name+"\x00"))), s.typ, s.flags, uint64(512+i*600), 600)
	}
	n := len(secs) + 1
	put(n, 0, 3, 0, 5900, uint64(len(names)))
	at := 32
	if wide {
		le.PutUint64(b[40:], uint64(shoff))
		at = 58
	} else {
		le.PutUint32(b[32:], uint32(shoff))
		at = 46
	}
	le.PutUint16(b[at:], uint16(ent))
	le.PutUint16(b[at+2:], uint16(n+1))
	le.PutUint16(b[at+4:], uint16(n))
	return b
}

// walk runs a predictor over a file as the codec does and checks what the codec
// relies on: fields in order and within what was scanned, steps that undo.
func walk(t *testing.T, old, new []byte, ranges []Range, mode Mode) {
	for _, apart := range []bool{false, true} {
		walkAs(t, old, new, ranges, mode, apart)
	}
}

func walkAs(t *testing.T, old, new []byte, ranges []Range, mode Mode, apart bool) {
	f, err := Parse(bytes.NewReader(old), int64(len(old)))
	if err != nil {
		require.ErrorIs(t, err, ErrFormat)
		return
	}
	if len(new) < Need(new) {
		return
	}
	p, err := New(f, new[:min(len(new), headSize)], append([]Range(nil), ranges...), mode, Shift{}, nil)
	if err != nil {
		return
	}
	if apart {
		p.Apart()
	}
	seen := int64(0)
	for _, r := range ranges {
		if r.New > seen {
			p.See(seen, new[seen:r.New])
			seen = r.New
		}
		o := old[r.Old : r.Old+r.Len]
		n := new[r.New : r.New+r.Len]
		end := 0
		for _, f := range p.Scan(nil, o, r.Old, r.New, r.Old, r.Old+r.Len) {
			at := int(f.Off)
			require.GreaterOrEqual(t, at, end)
			end = at + int(f.Len)
			require.LessOrEqual(t, end, len(o))
			require.Less(t, f.Kind, NumKinds)
			pred := make([]byte, f.Len)
			require.LessOrEqual(t, p.Predict(&f, o[at:], pred), uint8(6))
			if step, ok := p.Step(&f, o[at:], pred, n[at:end]); ok {
				got := make([]byte, f.Len)
				p.Apply(&f, o[at:], pred, got, step)
				require.Equal(t, n[at:end], got)
			}
			p.Learn(&f, o[at:], n[at:])
		}
	}
}

func ranges(n int) []Range {
	return []Range{{0, 0, 700}, {700, 704, int64(n) - 1024}, {int64(n) - 300, int64(n) - 200, 128}}
}

func TestWalk(t *testing.T) {
	for _, m := range []uint16{machineArm, machineArm64, machineX86} {
		for _, s := range []bool{false, true} {
			old := sample(m, s)
			new := append([]byte{}, old...)
			for i := 600; i < len(new); i += 37 {
				new[i]++
			}
			for _, mode := range []Mode{Plain, A32} {
				walk(t, old, new, ranges(len(old)), mode)
				Mask(old, mode)
			}
		}
	}
	_, f := ownProgram(t)
	require.True(t, f.Go())
}

// A word that was taken for an address may be anything in the new file; what
// Step calls a number is one that can be coded, and Apply takes it back.
func TestStepOfAnyWord(t *testing.T) {
	f, err := Parse(bytes.NewReader(sample(machineArm64, true)), 8192)
	require.NoError(t, err)
	p, err := New(f, sample(machineArm64, false), []Range{{0, 0, 8192}}, Plain, Shift{}, nil)
	require.NoError(t, err)
	fd := Field{Len: 8, Kind: kindAbs64, key: 0x10400}
	pred := make([]byte, 8)
	le.PutUint64(pred, 0x10400)
	for _, v := range []uint64{0, 0x10410, 1 << 61, 1<<62 + 0x103ff, 1<<62 + 0x10400, 1<<63 + 5, 1<<64 - 1, 3 << 62} {
		word := make([]byte, 8)
		le.PutUint64(word, v)
		step, ok := p.Step(&fd, pred, pred, word)
		far := v-0x10400 >= 1<<62 && 0x10400-v >= 1<<62
		require.Equal(t, !far, ok, "%x", v)
		if ok {
			got := make([]byte, 8)
			p.Apply(&fd, pred, pred, got, step)
			require.Equal(t, word, got)
		}
	}
}

// FuzzWalk gives both files and the ranges anything.
func FuzzWalk(f *testing.F) {
	for _, m := range []uint16{machineArm, machineArm64, machineX86} {
		f.Add(sample(m, true), sample(m, false), uint16(700), uint16(704), uint16(6000), uint8(1))
	}
	old, _ := linesProgram(0, 0)
	new, _ := linesProgram(3, 200)
	f.Add(old, new, uint16(goText), uint16(goText), uint16(4000), uint8(1))
	f.Fuzz(func(t *testing.T, old, new []byte, a, b, n uint16, mode uint8) {
		r := Range{int64(a), int64(b), int64(n)}
		var rs []Range
		if m := min(len(old), len(new)); m > 0 {
			rs = append(rs, Range{0, 0, int64(min(m, 300))})
		}
		if r.Old+r.Len <= int64(len(old)) && r.New+r.Len <= int64(len(new)) && r.Len > 0 {
			rs = append(rs, r)
		}
		walk(t, old, new, rs, Mode(mode%3))
		Mask(old, Mode(mode%3))
		ModeOf(old)
	})
}

// ownProgram is this test's, made by Go.
func ownProgram(t *testing.T) ([]byte, *File) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(exe)
	require.NoError(t, err)
	f, err := Parse(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Skipf("this machine's own executables are unknown: %v", err)
	}
	return b, f
}

// Where the layout does not matter, Go's functions are known by their names, and
// types by their hashes.
func TestMaskGo(t *testing.T) {
	b, f := ownProgram(t)
	m := &masker{f: f, b: b}
	entry := uint64(reflect.ValueOf(TestMaskGo).Pointer())
	if !f.within(entry) {
		t.Skip("this executable is not where it was linked to")
	}
	name := fnv.New32a()
	_, err := io.WriteString(name, runtime.FuncForPC(uintptr(entry)).Name())
	require.NoError(t, err)
	const other = uint32(0xfffffff0)
	require.Equal(t, other, m.function(entry+1))
	require.Equal(t, other, m.function(0))
	require.Equal(t, name.Sum32(), m.function(entry))

	// A type's hash is behind two words of the machine (internal/abi.Type).
	typ := uint64(reflect.ValueOf(reflect.TypeFor[[]*masker]()).Pointer())
	at, ok := f.offset(typ)
	require.True(t, ok)
	hash := b[at+2*strconv.IntSize/8:][:4]
	links := f.find(classTypelink)
	require.NotNil(t, links)
	masked := Mask(b, Plain)
	for p := links.off; p < links.off+links.size; p += 4 {
		if f.goBases.Types+uint64(le.Uint32(b[p:])) == typ {
			require.Equal(t, hash, masked[p:p+4])
			return
		}
	}
	t.Fatal("the table of types does not have one of this test's")
}

// A Go program with damaged tables is masked as well as it goes.
func TestMaskDamaged(t *testing.T) {
	b, f := ownProgram(t)
	g := f.gotab
	require.NotNil(t, g)
	rnd := rand.New(rand.NewSource(1))
	masked := 0
	rounds := 24
	if testing.Short() {
		rounds = 12 // each count of damages once
	}
	for i := range rounds {
		bad := slices.Clone(b)
		for range 1 << (i % 12) {
			// The head of Go's table, its functions, their records, anything.
			at := []uint64{g.off, g.off + g.funcs, g.off + g.funcs + uint64(len(g.entry))*8, 0}[rnd.Intn(4)]
			room := []int{64, len(g.entry) * 8, len(g.entry) * recordLen, len(b)}[rnd.Intn(4)]
			if at += uint64(rnd.Intn(room)); at < uint64(len(bad)) {
				bad[at] = byte(rnd.Intn(256))
			}
		}
		if m := Mask(bad, Plain); m != nil {
			require.Len(t, m, len(b))
			masked++
		}
	}
	require.NotZero(t, masked)
}

// What is learnt is told by key, the more surely the more often it was right; a
// value that has no room displaces what was there.
func TestLearnt(t *testing.T) {
	var l learnt
	l.make(&Space{}, 1<<20)
	values := []uint64{0, 1, 0x7fffffff, 1<<64 - 1, 0xffffffff80000000}
	for i, v := range values {
		key := keyAddr | uint64(i)
		for n := range 6 {
			l.set(key, v)
			got, count, ok := l.get(key)
			require.True(t, ok)
			require.Equal(t, v, got)
			require.EqualValues(t, min(n, 3), count)
		}
		l.set(key, v^1)
		got, count, ok := l.get(key)
		require.True(t, ok)
		require.Equal(t, v^1, got)
		require.Zero(t, count)
		for _, far := range []uint64{1 << 31, 1 << 40, 1 << 63} {
			l.set(key, v)
			l.set(key, far)
			_, _, ok = l.get(key)
			require.False(t, ok, "%#x", far)
		}
	}
}
