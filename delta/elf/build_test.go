package elf

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// part is a section of a file made by build.
type part struct {
	name       string
	typ, flags uint32
	at         int // its offset
	body       []byte
	link       string // the section with its strings
}

// Types and flags of sections (System V ABI, figures 4-9 and 4-11).
const (
	progbits, symtab, strtab, rela, nobits, rel, dynsym = 1, 2, 3, 4, 8, 9, 11
	exidx                                               = 0x70000001

	allocated, executable = 2, 2 | 4
)

// sectionTableAt is where build puts the table of sections, and namesAt where
// their names are.
const sectionTableAt, namesAt, builtSize = 0x1800, 0x1f00, 0x2000

// build makes an executable of 8 KiB with one segment, which is at base, may be
// written and executed, and has 4 KiB more in memory than in the file.
func build(machine uint16, base uint64, parts ...part) []byte {
	b := make([]byte, builtSize)
	copy(b, "\x7fELF\x01\x01\x01")
	le.PutUint16(b[16:], 3)
	le.PutUint16(b[18:], machine)
	wide := machine != machineArm
	names := []byte{0}
	entry, table, count := 40, 32, 46
	if wide {
		b[4] = 2
		le.PutUint64(b[32:], 64)
		le.PutUint16(b[54:], 56)
		le.PutUint16(b[56:], 1)
		le.PutUint32(b[64:], 1)
		le.PutUint32(b[68:], 7)
		for i, v := range []uint64{0, base, base, builtSize, builtSize + 0x1000, 0x1000} {
			le.PutUint64(b[72+8*i:], v)
		}
		entry, table, count = 64, 40, 58
	} else {
		le.PutUint32(b[28:], 52)
		le.PutUint16(b[42:], 32)
		le.PutUint16(b[44:], 1)
		for i, v := range []uint32{1, 0, uint32(base), uint32(base), builtSize, builtSize + 0x1000, 7, 0x1000} {
			le.PutUint32(b[52+4*i:], v)
		}
	}
	le.PutUint32(b[table:], sectionTableAt)
	le.PutUint16(b[count:], uint16(entry))
	le.PutUint16(b[count+2:], uint16(len(parts)+2))
	le.PutUint16(b[count+4:], uint16(len(parts)+1))
	for i, p := range append(slices.Clone(parts), part{name: ".shstrtab", typ: strtab, at: namesAt}) {
		copy(b[p.at:], p.body)
		size := len(p.body)
		name := len(names)
		names = append(append(names, p.name...), 0)
		if p.at == namesAt {
			copy(b[namesAt:], names)
			size = len(names)
		}
		link := uint32(1 + slices.IndexFunc(parts, func(o part) bool { return o.name == p.link }))
		h := b[sectionTableAt+(i+1)*entry:]
		le.PutUint32(h, uint32(name))
		le.PutUint32(h[4:], p.typ)
		if wide {
			for k, v := range []uint64{uint64(p.flags), base + uint64(p.at), uint64(p.at), uint64(size)} {
				le.PutUint64(h[8+8*k:], v)
			}
			le.PutUint32(h[40:], link)
			continue
		}
		for k, v := range []uint32{p.flags, uint32(base) + uint32(p.at), uint32(p.at), uint32(size), link} {
			le.PutUint32(h[8+4*k:], v)
		}
	}
	return b
}

func words(list ...uint32) (b []byte) {
	for _, w := range list {
		b = le.AppendUint32(b, w)
	}
	return b
}

func longs(list ...uint64) (b []byte) {
	for _, w := range list {
		b = le.AppendUint64(b, w)
	}
	return b
}

func halves(list ...uint16) (b []byte) {
	for _, w := range list {
		b = le.AppendUint16(b, w)
	}
	return b
}

func parse(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Parse(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	return f
}

// predicted is a field with what is predicted for it.
type predicted struct {
	field Field
	bytes []byte
	trust uint8
}

// predict scans an old file from a place to the end of its range, as the codec
// does, and predicts the fields there. The predictor learns that each is as
// predicted.
func predict(t *testing.T, p *Predictor, old []byte, at int) []predicted {
	t.Helper()
	r := p.m.ranges[p.m.find(int64(at))]
	require.LessOrEqual(t, int64(at), r.Old+r.Len)
	var list []predicted
	for _, f := range p.Scan(nil, old[at:min(len(old), int(r.Old+r.Len))], int64(at), int64(at)-r.Old+r.New, r.Old, r.Old+r.Len) {
		was := old[at+int(f.Off):]
		pred := make([]byte, f.Len)
		trust := p.Predict(&f, was, pred)
		p.Learn(&f, was, pred)
		list = append(list, predicted{f, pred, trust})
		step, ok := p.Step(&f, was, pred, pred)
		require.Equal(t, !f.Random() && f.Kind != kindIDText, ok)
		require.Zero(t, step)
	}
	return list
}
