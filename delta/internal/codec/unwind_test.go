package codec

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// randomUnwind is what could be known of a file: functions in several sections, of
// which each may have an LSDA.
func randomUnwind(rnd *rand.Rand, n int) *elf.Unwind {
	u := &elf.Unwind{Head: 4000, Frame: 9000, Align: uint32(rnd.IntN(64)), Spacing: uint8(rnd.IntN(6)), Scale: uint8(rnd.IntN(3)), Unique: rnd.IntN(2) == 0, Table: n}
	at, places, lsda := uint32(0), []uint32{100, 50000, 1 << 20}, uint32(1<<20)
	for i := range n {
		if i%40 == 0 {
			u.CIEs = append(u.CIEs, elf.UnwindCIE{At: at, LSDA: uint8(rnd.IntN(3)) * 4})
			at += 20
		}
		k := rnd.IntN(len(places))
		r := elf.UnwindRow{At: at, PC: places[k], Size: rnd.Uint32N(500), Len: uint16(12 + 4*rnd.IntN(9)), CIE: uint16(len(u.CIEs) - 1)}
		if u.CIEs[r.CIE].LSDA > 0 && rnd.IntN(2) == 0 {
			lsda += 8
			r.LSDA = lsda
		}
		u.Rows = append(u.Rows, r)
		places[k] += r.Size + rnd.Uint32N(20)
		at += 4 + uint32(r.Len)
	}
	u.Sort()
	return u
}

// changedUnwind is u with some functions that are gone, new, larger, or elsewhere.
func changedUnwind(rnd *rand.Rand, u *elf.Unwind) (*elf.Unwind, []int32) {
	c := *u
	c.Rows = nil
	var from []int32
	at := uint32(0)
	for i, r := range u.Rows {
		switch rnd.IntN(10) {
		case 0:
			continue
		case 1:
			r.Size += 8
			from = append(from, int32(i+1))
		case 2:
			r.Len += 4
			from = append(from, 0)
		case 3:
			r.PC += rnd.Uint32N(1 << 20)
			from = append(from, int32(1+rnd.IntN(len(u.Rows))))
		default:
			from = append(from, int32(i+1))
		}
		if i == 0 || u.Rows[i-1].CIE != r.CIE {
			at += 20
		}
		r.At = at + u.CIEs[0].At
		at += 4 + uint32(r.Len)
		c.Rows = append(c.Rows, r)
	}
	c.CIEs = nil
	for i := range c.Rows {
		if i == 0 || c.Rows[i-1].CIE != c.Rows[i].CIE {
			c.CIEs = append(c.CIEs, elf.UnwindCIE{At: c.Rows[i].At - 20, LSDA: u.CIEs[c.Rows[i].CIE].LSDA})
		}
	}
	last, k := -1, -1
	for i := range c.Rows {
		if int(c.Rows[i].CIE) != last {
			last, k = int(c.Rows[i].CIE), k+1
		}
		c.Rows[i].CIE = uint16(k)
	}
	c.Table = len(c.Rows)
	c.Sort()
	return &c, from
}

// unwindRun is a run that codes to w, or from r.
func unwindRun(t testing.TB, w io.Writer, r io.Reader) *unwindCoder {
	var f *frames
	if w != nil {
		f = newFrameWriter(w, noBulk{})
	} else {
		f = newFrameReader(bufio.NewReader(r))
	}
	c := newUnwindCoder(&run{frames: f, ctx: t.Context(), stat: func(string) {}, share: func(string) {}})
	c.on = true
	require.NoError(t, c.boundary())
	return c
}

// What is known about unwind tables comes back, with and without an old file.
func TestUnwindCoder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for k := range 40 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			old := randomUnwind(rnd, 10+rnd.IntN(6000))
			u, from := changedUnwind(rnd, old)
			was := old
			if k%3 == 0 {
				was, from = new(elf.Unwind), nil
			}
			const size = 4 << 20
			var b bytes.Buffer
			e := unwindRun(t, &b, nil)
			_, err := e.code(&content{Place: script.Place{Size: size}, plan: &script.Content{Unwind: u, UnwindFrom: from}}, was)
			require.NoError(t, err)
			require.NoError(t, e.flush())
			got, err := unwindRun(t, nil, &b).code(&content{Place: script.Place{Size: size}, plan: noPlan}, was)
			require.NoError(t, err)
			require.Equal(t, u, got)
		})
	}
}

// A row that is as predicted takes a small part of a bit.
func TestUnwindOfTheSame(t *testing.T) {
	u := randomUnwind(rand.New(rand.NewPCG(7, 8)), 10000)
	from := make([]int32, len(u.Rows))
	for i := range from {
		from[i] = int32(i + 1)
	}
	var b bytes.Buffer
	e := unwindRun(t, &b, nil)
	_, err := e.code(&content{Place: script.Place{Size: 4 << 20}, plan: &script.Content{Unwind: u, UnwindFrom: from}}, u)
	require.NoError(t, err)
	require.NoError(t, e.flush())
	require.Less(t, b.Len(), 900)
}

// A hostile delta cannot say more than the content has room for.
func TestUnwindRefuses(t *testing.T) {
	u := randomUnwind(rand.New(rand.NewPCG(9, 10)), 100)
	for _, c := range []struct {
		name   string
		change func(u *elf.Unwind)
	}{
		{"more rows than the content has room for", func(u *elf.Unwind) { u.Rows = slices.Repeat(u.Rows, 10) }},
		{"a table outside of the content", func(u *elf.Unwind) { u.Head = 1 << 20 }},
		{"frames outside of the content", func(u *elf.Unwind) { u.Frame = -5 }},
		{"more entries than there can be", func(u *elf.Unwind) { u.Table = 1 << 20 }},
		{"an FDE outside of the content", func(u *elf.Unwind) { u.Rows[99].At = 1 << 14 }},
		{"an FDE that is too short", func(u *elf.Unwind) { u.Rows[5].Len = 8 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := *u
			bad.Rows = slices.Clone(u.Rows)
			c.change(&bad)
			e := unwindRun(t, io.Discard, nil)
			_, err := e.code(&content{Place: script.Place{Size: 16 << 10}, plan: &script.Content{Unwind: &bad}}, new(elf.Unwind))
			require.ErrorContains(t, err, "out of bounds")
		})
	}
}
