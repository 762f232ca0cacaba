package elf

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// Where build has the unwind tables of a sample.
const tableAt, frameAt = 0x400, 0x800

// A cie is a CIE with these letters and what belongs to them.
func cie(letters string, data ...byte) []byte {
	b := append([]byte{1, 'z'}, letters...)
	b = append(b, 0, 4, 0x78, 30, byte(len(data)))
	b = append(b, data...)
	b = append(b, make([]byte, -len(b)&3)...)
	return append(words(uint32(len(b)+4), 0), b...)
}

// unwindFile is a file of two kinds of CIEs, whose functions are at places of the code in
// another order than their FDEs. It returns the frames and the table too.
func unwindFile(places ...uint32) (file, frame, table []byte) {
	frame = cie("R", pcrel4)
	second := 0
	type entry struct{ pc, at uint32 }
	var entries []entry
	for i, pc := range places {
		first := 0
		if i == 2 {
			second = len(frame)
			frame = append(frame, cie("PLR", 0x9b, 1, 2, 3, 4, pcrel4, pcrel4)...)
		}
		if i >= 2 {
			first = second
		}
		at := len(frame)
		entries = append(entries, entry{codeBase + pc, codeBase + frameAt + uint32(at)})
		frame = append(frame, words(20, uint32(at+4-first), pc-uint32(frameAt+at+8), 12+4*uint32(i))...)
		if i >= 2 {
			frame = append(append(frame, 4), words(uint32(0x100+8*i)-uint32(frameAt+at+17))...)
			frame = append(frame, 0x41, 0, 0)
		} else {
			frame = append(frame, 0, 0x41, 0, 0, 0, 0, 0, 0)
		}
	}
	frame = append(frame, 0, 0, 0, 0)
	slices.SortFunc(entries, func(a, b entry) int { return int(a.pc) - int(b.pc) })
	table = words(unwindFirst, frameAt-tableAt-4, uint32(len(places)))
	for _, e := range entries {
		table = append(table, words(e.pc-codeBase-tableAt, e.at-codeBase-tableAt)...)
	}
	return build(machineArm64, codeBase, part{name: ".eh_frame_hdr", typ: progbits, flags: allocated, at: tableAt, body: table},
		part{name: ".eh_frame", typ: progbits, flags: allocated, at: frameAt, body: frame}), frame, table
}

var unwindPlaces = []uint32{0x1000, 0x1400, 0x1010, 0x1040, 0x1500, 0x1510, 0x1060, 0x1080, 0x1540, 0x10a0}

// The sorted table follows from the frames, and what the rows say is all that differs
// between the frames of functions.
func TestUnwind(t *testing.T) {
	b, frame, table := unwindFile(unwindPlaces...)
	u := ReadUnwind(bytes.NewReader(b), int64(len(b)))
	require.NotNil(t, u)
	require.Len(t, u.Rows, len(unwindPlaces))
	require.Len(t, u.CIEs, 2)
	require.Equal(t, len(unwindPlaces), u.Table)
	require.EqualValues(t, 4, u.CIEs[1].LSDA)
	was := bytes.Clone(b)
	u.Toggle(0, b)
	require.Equal(t, make([]byte, len(table)), b[tableAt:tableAt+len(table)])
	for i, r := range u.Rows {
		fde := b[frameAt+int(r.At):][:24]
		require.Equal(t, make([]byte, 16), fde[:16], i)
		require.Equal(t, i >= 2, r.LSDA != 0)
		if i >= 2 {
			require.Equal(t, append([]byte{4}, make([]byte, 4)...), fde[16:21])
		}
	}
	require.Equal(t, frame[:20], b[frameAt:frameAt+20], "a CIE stays as it is")
	u.Toggle(0, b)
	require.Equal(t, was, b)
}

// Bytes are toggled in pieces of any size as they are at once.
func TestToggleInPieces(t *testing.T) {
	was, _, _ := unwindFile(unwindPlaces...)
	u := ReadUnwind(bytes.NewReader(was), int64(len(was)))
	whole := bytes.Clone(was)
	u.Toggle(0, whole)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := bytes.Clone(was)
		for at := 0; at < len(b); {
			n := min(1+rnd.IntN(90), len(b)-at)
			u.Toggle(int64(at), b[at:at+n])
			at += n
		}
		require.Equal(t, whole, b)
	}
}

// Linkers differ: an entry for each function, or for each FDE; a table that is no
// function of the frames is left as a difference.
func TestUnwindOfOtherLinkers(t *testing.T) {
	twice := append(slices.Clone(unwindPlaces), unwindPlaces[3])
	b, _, _ := unwindFile(twice...)
	u := ReadUnwind(bytes.NewReader(b), int64(len(b)))
	require.False(t, u.Unique)
	le.PutUint32(b[tableAt+8:], uint32(len(twice)-1))
	u = ReadUnwind(bytes.NewReader(b), int64(len(b)))
	require.True(t, u.Unique)

	for _, c := range []struct {
		name string
		at   int
		v    uint32
	}{
		{"another encoding", tableAt, 0x3b021b01},
		{"no frames", frameAt, 0},
		{"a frame beyond the end", frameAt + 20, 1 << 23},
		{"a frame of 64 bits", frameAt + 20, 1<<32 - 1},
		{"an unknown CIE", frameAt + 24, 3},
	} {
		b, _, _ := unwindFile(unwindPlaces...)
		le.PutUint32(b[c.at:], c.v)
		if u := ReadUnwind(bytes.NewReader(b), int64(len(b))); u != nil {
			require.Len(t, u.Rows, len(unwindPlaces)-1, c.name)
		}
	}
}

// What linkers make is a function of the frames to the last word.
func TestUnwindOfLibraries(t *testing.T) {
	for _, dir := range []string{"elf-arm64", "elf-amd64"} {
		z, err := os.ReadFile(filepath.Join("..", "testdata", "golden", dir, "old.zst"))
		require.NoError(t, err)
		r, err := zstd.NewReader(nil)
		require.NoError(t, err)
		b, err := r.DecodeAll(z, nil)
		r.Close()
		require.NoError(t, err)
		b = b[512:]
		u := ReadUnwind(bytes.NewReader(b), int64(len(b)))
		require.NotNil(t, u)
		require.GreaterOrEqual(t, u.Table, 90)
		require.Len(t, u.Order(), u.Table)
		c := bytes.Clone(b)
		u.Toggle(0, c)
		require.Equal(t, make([]byte, 12+8*u.Table), c[u.Head:][:12+8*u.Table])
	}
}

// FuzzUnwind: whatever a file says about its frames, it is read in bounds, and what is
// toggled twice is as it was.
func FuzzUnwind(f *testing.F) {
	b, frame, table := unwindFile(unwindPlaces...)
	f.Add(frame, table)
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<31), table)
	f.Fuzz(func(t *testing.T, frame, table []byte) {
		b := bytes.Clone(b)
		copy(b[frameAt:sectionTableAt], frame)
		copy(b[tableAt:frameAt], table)
		u := ReadUnwind(onlyReader{bytes.NewReader(b)}, int64(len(b)))
		if u == nil {
			return
		}
		require.LessOrEqual(t, len(u.Rows), len(b)/16)
		require.LessOrEqual(t, len(u.Order()), len(u.Rows))
		c := bytes.Clone(b)
		for range 2 {
			for at := 0; at < len(c); at += 1000 {
				u.Toggle(int64(at), c[at:min(at+1000, len(c))])
			}
		}
		require.Equal(t, b, c)
	})
}

type onlyReader struct{ io.ReaderAt }
