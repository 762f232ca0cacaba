package elf

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFindTable: a bucket's numbers lead to the function that each step of the
// code begins in.
func TestFindTable(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		entries := []uint32{0}
		for range 300 {
			entries = append(entries, entries[len(entries)-1]+16+rnd.Uint32N(400))
		}
		code := entries[len(entries)-1]
		b := make([]byte, findTableLen(code))
		findTable(b, 0, entries)
		for k := range int(code+bucketCode-1) / bucketCode {
			want := 0
			for i, e := range entries[:len(entries)-1] {
				if e <= uint32(k)*bucketCode {
					want = i
				}
			}
			bucket := b[k/buckets*bucketLen:]
			require.Equal(t, want, int(le.Uint32(bucket))+int(bucket[4+k%buckets]), "step %d", k)
		}
		at := rnd.IntN(len(b))
		part := make([]byte, rnd.IntN(len(b)-at))
		findTable(part, uint64(at), entries)
		require.Equal(t, b[at:at+len(part)], part)
	}
}

// TestPredictFindTable: findfunctab of a real program is made again from the table
// of functions of the new file, whatever old bytes stand for it.
func TestPredictFindTable(t *testing.T) {
	b, f := ownProgram(t)
	require.NotZero(t, f.findSize)
	size := int64(len(b))
	whole := []Range{{0, 0, size}}
	scan := func(p *Predictor) (bytes int) {
		pred := make([]byte, MaxField)
		for at := int64(f.findOff) - 1000; at < int64(f.findOff+f.findSize)+100; {
			n := min(1<<16-at&15, size-at)
			for _, fd := range p.Scan(nil, make([]byte, n), at, at, at, at+n) {
				if fd.Kind == kindGo+goFind {
					p.Predict(&fd, make([]byte, fd.Len), pred)
					require.Equal(t, b[at+int64(fd.Off):][:fd.Len], pred[:fd.Len])
					bytes += int(fd.Len)
				}
			}
			at += n
		}
		return bytes
	}
	p, err := New(f, b[:headSize], slices.Clone(whole), Plain, Shift{}, nil)
	require.NoError(t, err)
	require.Zero(t, scan(p), "nothing is known of the new file")
	for at := 0; at < int(f.findOff); {
		n := min(1+at%9973, len(b)-at)
		p.See(int64(at), b[at:at+n])
		at += n
	}
	require.Equal(t, int(f.findSize), scan(p))

	p, err = New(f, b[:headSize], whole, Plain, Shift{}, nil)
	require.NoError(t, err)
	p.See(0, b[:f.gotab.off])
	p.See(int64(f.gotab.off)+1, b[f.gotab.off+1:f.findOff])
	require.Zero(t, scan(p), "a byte of the new file is missing")
}

// TestSeeHostile: a new table of functions whose header says anything, and whose
// functions are in any order, is taken within bounds or not at all.
func TestSeeHostile(t *testing.T) {
	_, f := ownProgram(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	numbers := []uint64{0, 1, 2, 100, maxFuncs, maxFuncs + 1, 1 << 31, 1 << 62, ^uint64(0)}
	for range 300 {
		p := &Predictor{o: f, n: f, space: new(Space), tables: newTables{tab: 100, find: 5000}}
		b := make([]byte, 1<<15)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		le.PutUint64(b[108:], numbers[rnd.IntN(len(numbers))])
		le.PutUint64(b[164:], numbers[rnd.IntN(len(numbers))]+uint64(rnd.IntN(200)))
		for at := 0; at < len(b); {
			n := min(1+rnd.IntN(3000), len(b)-at)
			p.See(int64(at), b[at:at+n])
			at += n
			require.LessOrEqual(t, cap(p.space.entries), maxFuncs+1)
			fields, _ := p.scanFind(nil, make([]byte, 500), 0, uint64(4000+rnd.IntN(3000)))
			for _, fd := range fields {
				p.Predict(&fd, nil, make([]byte, fd.Len))
			}
		}
	}
}
