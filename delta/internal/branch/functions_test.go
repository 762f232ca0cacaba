package branch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// goTable is a table of functions and their records, for a machine of 64 bits.
func goTable(n int) []byte {
	tables, b := bytes.Buffer{}, []byte{}
	word := func(to *bytes.Buffer, v int) { to.Write(le.AppendUint32(nil, uint32(v))) }
	records, begin := bytes.Buffer{}, 8*n+8
	entry, name, place, tree := 0, 0, 1, 0
	for i := range n {
		word(&tables, entry)
		word(&tables, begin+records.Len())
		more, data := i%4, i%6
		words := []int{entry, name, 8, 0, place, place + 10, place + 25, more, 3, 100 + i%50, data<<24 | 1}
		place += 40
		for k := range more {
			if k%2 == 0 {
				words = append(words, 0) // none
				continue
			}
			words = append(words, place/2)
		}
		for k := range data {
			if k == dataTree && i%5 == 0 {
				tree += 16
				words = append(words, tree)
				continue
			}
			words = append(words, -1)
		}
		if len(words)%2 != 0 {
			words = append(words, 0)
		}
		for _, w := range words {
			word(&records, w)
		}
		entry += 64 + i%3*16
		name += 20
	}
	word(&tables, entry)
	word(&tables, 0)
	return append(append(b, tables.Bytes()...), records.Bytes()...)
}

// pieces converts a part in pieces of the sizes, over and over.
func pieces(k Kind, b []byte, sizes []int, back bool) {
	var c Converter
	c.Begin(k, int64(len(b)))
	for i, at := 0, 0; at < len(b); i++ {
		n := min(sizes[i%len(sizes)], len(b)-at)
		c.Convert(b[at:at+n], uint32(at), back)
		at += n
	}
}

// Whatever the pieces are, and whatever a damaged table says, the bytes come back.
func TestFunctionsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := goTable(rapid.IntRange(1, 200).Draw(t, "functions"))
		b = b[:len(b)-rapid.SampledFrom([]int{0, 0, 1, 4, 50}).Draw(t, "cut")]
		for range rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(t, "damages") {
			at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			b[at] = rapid.Byte().Draw(t, "byte")
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 4).Draw(t, "sizes")
		got := bytes.Clone(b)
		pieces(GoFunctions, got, sizes, false)
		pieces(GoFunctions, got, sizes, true)
		require.Equal(t, b, got)
	})
}

// Any bytes can be converted back, in any pieces.
func TestFunctionsHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := goTable(rapid.IntRange(1, 50).Draw(t, "functions"))
		for range rapid.IntRange(0, 40).Draw(t, "words") {
			at := rapid.IntRange(0, len(b)/4-1).Draw(t, "at")
			le.PutUint32(b[4*at:], rapid.SampledFrom([]uint32{0, 1, 8, 44, 400, 1 << 31, 1<<32 - 1, rapid.Uint32().Draw(t, "any")}).Draw(t, "word"))
		}
		pieces(GoFunctions, b, rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 4).Draw(t, "sizes"), true)
	})
}

// The words of one kind are together, and small.
func TestFunctionsTogether(t *testing.T) {
	const n = 100
	b := goTable(n)
	pieces(GoFunctions, b, []int{len(b)}, false)
	word := func(i int) uint32 { return le.Uint32(b[4*i:]) }
	require.EqualValues(t, 8*n+8, word(1))
	for i := 1; i < n; i++ {
		require.LessOrEqual(t, word(2*i), uint32(96))
		require.LessOrEqual(t, word(2*i+1), uint32(4*(recordWords+3+5+1)))
	}
	at := 2*n + 2
	for i := range n {
		require.Zero(t, word(at+i), "an entry is that of the table")
		if i > 0 {
			require.EqualValues(t, 20, word(at+n*wordName+i), "a name follows the one before")
			require.EqualValues(t, 15, word(at+n*wordTable+i), "a table of a function follows those before")
			require.EqualValues(t, 10, word(at+n*(wordTable+1)+i))
			require.EqualValues(t, 15, word(at+n*(wordTable+2)+i))
		}
		require.EqualValues(t, i%4, word(at+n*wordTables+i))
	}
}

func FuzzFunctions(f *testing.F) {
	b := goTable(30)
	f.Add(b, uint16(7))
	f.Add(b[:300], uint16(64))
	f.Fuzz(func(t *testing.T, b []byte, size uint16) {
		r := rand.New(rand.NewPCG(uint64(size), 1))
		sizes := []int{1 + int(size)%4096, 1 + r.IntN(500)}
		got := bytes.Clone(b)
		pieces(GoFunctions, got, sizes, false)
		pieces(GoFunctions, got, sizes, true)
		require.Equal(t, b, got)
		pieces(GoFunctions, got, sizes, true)
	})
}
