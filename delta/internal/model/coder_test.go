package model

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// roundTrip codes with a fresh state in both directions: code gets a coder and
// returns what it coded. It returns the coded bytes.
func roundTrip(t require.TestingT, code func(c *Coder) any) []byte {
	enc := &Coder{Encoding: true}
	enc.Start(nil)
	want := code(enc)
	coded := slices.Clone(enc.Finish())

	dec := new(Coder)
	dec.Start(coded)
	require.Equal(t, want, code(dec))
	require.False(t, dec.Short, "the decoder reads no more than the encoder wrote")
	return coded
}

// Every kind of symbol comes back, in any order and with any probability.
func TestCoderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type symbol struct {
			kind, n int
			p       uint32
			v       uint64
		}
		symbols := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) symbol {
			return symbol{
				kind: rapid.IntRange(0, 5).Draw(t, "kind"), n: rapid.IntRange(1, 8).Draw(t, "n"),
				p: rapid.Uint32Range(1, 1<<16-1).Draw(t, "p"), v: rapid.Uint64().Draw(t, "v"),
			}
		}), 0, 200).Draw(t, "symbols")
		roundTrip(t, func(c *Coder) any {
			p, flag, tree, uints, ints := FreshProb, FreshProb, FreshProbs(1<<8), NewUintModel(), NewUintModel()
			var got []uint64
			for _, s := range symbols {
				v := s.v
				if !c.Encoding {
					v = 0 // it must come from the coded bytes
				}
				switch s.kind {
				case 0:
					got = append(got, uint64(c.Code(s.p, int(v&1))))
				case 1:
					got = append(got, uint64(c.Bit(&p, int(v&1))))
				case 2:
					got = append(got, map[bool]uint64{true: 1}[c.Flag(&flag, v&1 != 0)])
				case 3:
					got = append(got, uint64(c.Tree(tree, s.n, int(v)&(1<<s.n-1))))
				case 4:
					got = append(got, c.Uint(uints, v>>1>>(s.n*7)))
				case 5:
					got = append(got, uint64(c.Int(ints, int64(v)>>2>>(s.n*7))), c.Raw(s.n, v))
				}
			}
			return got
		})
	})
}

// Numbers come back in any contexts, up to the greatest one.
func TestNumberRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type number struct {
			v        uint64
			contexts [3]uint32
		}
		numbers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) number {
			v := rapid.Uint64Max(1<<62-1).Draw(t, "v") >> rapid.IntRange(0, 61).Draw(t, "shift")
			return number{v, [3]uint32{rapid.Uint32Max(255).Draw(t, "a"), rapid.Uint32Max(255).Draw(t, "b"), rapid.Uint32Max(255).Draw(t, "c")}}
		}), 1, 200).Draw(t, "numbers")
		roundTrip(t, func(c *Coder) any {
			m := NewNumberModel()
			var got []uint64
			for _, n := range numbers {
				v := n.v
				if !c.Encoding {
					v = 0
				}
				got = append(got, c.Number(m, v, n.contexts))
			}
			if c.Encoding {
				for i, n := range numbers {
					require.Equal(t, n.v, got[i])
				}
			}
			return got
		})
	})
}

// What a context tells is learnt: numbers that it determines cost little.
func TestNumberContexts(t *testing.T) {
	cost := func(contexts func(i int) [3]uint32) int {
		return len(roundTrip(t, func(c *Coder) any {
			m := NewNumberModel()
			var got []uint64
			for i := range 2000 {
				v := uint64(0)
				if c.Encoding {
					v = uint64(i*i%7) * 3
				}
				got = append(got, c.Number(m, v, contexts(i)))
			}
			return got
		}))
	}
	without := cost(func(int) [3]uint32 { return [3]uint32{} })
	with := cost(func(i int) [3]uint32 { return [3]uint32{0, uint32(i % 7), 0} })
	require.Less(t, 4*with, without)
}

// Whatever is decoded is less than 1<<62, so that sums of two do not overflow.
func TestNumberOfNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := new(Coder)
		c.Start(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "noise"))
		m := NewNumberModel()
		for range 20 {
			require.Less(t, c.Number(m, 0, [3]uint32{}), uint64(1<<62))
		}
	})
}

// A frame may end in any number of zeros, which the encoder leaves out only as far as
// the decoder takes the frame for complete.
func TestZerosAtTheEnd(t *testing.T) {
	for zeros := range 20 {
		coded := roundTrip(t, func(c *Coder) any {
			got := []uint64{c.Raw(8, 0)} // a bit 1 makes no byte but zeros
			for range zeros {
				got = append(got, c.Raw(8, 0xff))
			}
			return got
		})
		require.LessOrEqual(t, len(coded), zeros+1)
	}
}

func TestGreatestNumbers(t *testing.T) {
	uints := []uint64{0, 1, 2, 3, 7, 8, 1 << 32, 1<<63 - 1}
	ints := []int64{0, -1, 1, math.MaxInt32, math.MinInt32, 1<<62 - 1, -(1<<62 - 1)}
	roundTrip(t, func(c *Coder) any {
		u, i := NewUintModel(), NewUintModel()
		var gotUints []uint64
		var gotInts []int64
		for _, v := range uints {
			if !c.Encoding {
				v = 0
			}
			gotUints = append(gotUints, c.Uint(u, v))
		}
		for _, v := range ints {
			if !c.Encoding {
				v = 0
			}
			gotInts = append(gotInts, c.Int(i, v))
		}
		if c.Encoding {
			require.Equal(t, uints, gotUints)
			require.Equal(t, ints, gotInts)
		}
		return []any{gotUints, gotInts}
	})
}

// A frame without symbols has no bytes, and a coder can be used for frame after
// frame.
func TestFrames(t *testing.T) {
	c := &Coder{Encoding: true}
	for range 2 {
		c.Start(nil)
		require.Empty(t, c.Finish())
		c.Start(nil)
		require.EqualValues(t, 0xbeef, c.Raw(16, 0xbeef))
		require.Positive(t, c.Len()+len(c.Finish()))
	}
	d := new(Coder)
	for range 2 {
		d.Start([]byte{0x41, 0x10, 0xff})
		require.EqualValues(t, 0xbeef, d.Raw(16, 0))
	}
}

// A decoder at the end of its input says so within a few bytes, and goes on
// without a panic.
func TestShortInput(t *testing.T) {
	c := new(Coder)
	c.Start([]byte{1, 2, 3})
	require.False(t, c.Short)
	symbols := 0
	for ; !c.Short; symbols++ {
		require.Less(t, symbols, 1000)
		c.Raw(1, 0)
	}
	require.GreaterOrEqual(t, symbols, 3*8-1)
	m := NewUintModel()
	for range 1000 {
		require.Less(t, c.Uint(m, 0), uint64(1<<63))
	}
	c.Start(nil)
	require.False(t, c.Short, "each frame has its own end")
}

// Whatever the bits are, a probability stays where the coder needs it, and learns.
func TestProbabilities(t *testing.T) {
	for _, bit := range []int{0, 1} {
		p := FreshProb
		require.EqualValues(t, 1<<15, p.p16())
		for range 100_000 {
			p.update(bit, uint32(len(rates)-1))
			require.True(t, 0 < p.p16() && p.p16() < 1<<16)
		}
		if bit == 1 {
			require.Greater(t, p.p16(), uint32(65000))
		} else {
			require.Less(t, p.p16(), uint32(500))
		}
	}
	makeTables()
	for i, v := range squashTab {
		require.True(t, 0 < v, i)
		require.True(t, i == 0 || squashTab[i-1] <= v, "squash rises, at %d", i)
	}
	require.True(t, slices.IsSorted(stretchTab[:]))
	m := newMixer(2, 1, 1, 1)
	c := &Coder{Encoding: true}
	c.Start(nil)
	for i := range 100_000 {
		m.in = inputs{stretchN/2 - 1, -stretchN / 2, stretchN/2 - 1}
		m.code(c, 0, 0, 0, i&1)
		require.Less(t, c.lo, c.hi, "whatever comes next can be coded")
	}
}

// Counts never leave their table, and forget.
func TestCounts(t *testing.T) {
	n := makeCounts()
	require.LessOrEqual(t, n, 256)
	for i := range n {
		require.True(t, 0 < countsStart[i])
		for bit := range 2 {
			c := counts(i)
			for range 2 * mostCounts[0] {
				require.Less(t, int(c), n)
				c = countsThen[c][bit]
			}
			require.Equal(t, c, countsThen[c][bit], "all that was seen is one bit, often")
			p := []int{65536 - int(countsStart[c]), int(countsStart[c])}
			require.Greater(t, p[bit], 65536*98/100)
		}
	}
}

func TestFlagModel(t *testing.T) {
	// The bit is one of the two contexts; after a while it costs next to nothing.
	coded := roundTrip(t, func(c *Coder) any {
		m := NewFlagModel(3, 10, 2, 3)
		var got []int
		for i := range uint32(4000) {
			bit := int(i * i >> 3 & 1)
			contexts := &Contexts{i * i >> 3 & 1, i}
			in := bit
			if !c.Encoding {
				in = 0
			}
			out := m.Code(c, contexts, int(i&1), int(i%3), in)
			require.Equal(t, bit, out)
			got = append(got, out)
		}
		return got
	})
	require.Less(t, len(coded), 4000/8/4)
}

func TestByteModelRoundTrip(t *testing.T) {
	line := "The same line again and again, but for its number: "
	var text strings.Builder
	for i := range 300 {
		text.WriteString(line + strings.Repeat("x", i%7) + "\n")
	}
	code := func(text []byte) []byte {
		return roundTrip(t, func(c *Coder) any {
			m := NewByteModel(10, 12, 1) // the ring is shorter than the text
			for _, b := range []byte(line) {
				m.Learn(b)
			}
			got := make([]byte, len(text))
			for i := range text {
				v := text[i]
				if !c.Encoding {
					v = 0
				}
				got[i] = m.Byte(c, v, uint32(i)&3, 5)
				require.EqualValues(t, got[i], m.At(1))
			}
			require.Equal(t, text, got)
			return got
		})
	}
	coded := code([]byte(text.String()))
	require.Less(t, len(coded), text.Len()/30)

	// What cannot be compressed grows by little.
	noise, x := make([]byte, 10_000), uint64(1)
	for i := range noise {
		x = x*6364136223846793005 + 1442695040888963407
		noise[i] = byte(x >> 56)
	}
	require.Less(t, len(code(noise)), len(noise)+len(noise)/20)
}

func TestExpected(t *testing.T) {
	m := NewByteModel(6, 12, 1)
	for _, b := range []byte("abcdefgh abcdef") {
		m.See(b)
	}
	require.Equal(t, uint32('g')|256, m.Expected())
	m.See('!')
	require.Zero(t, m.Expected())
}

func TestWordModelRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 4), 0, 100).Draw(t, "old")
		add := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 4, 255}), 4*len(old), 4*len(old)).Draw(t, "add")
		near := Near{Old: rapid.Uint32().Draw(t, "near"), New: rapid.Uint32().Draw(t, "new"), Next: rapid.Uint32().Draw(t, "next")}
		var want [][]byte
		for i, word := range old {
			w := bytes.Clone(word)
			for k := range w {
				w[k] += add[4*i+k]
			}
			want = append(want, w)
		}
		roundTrip(t, func(c *Coder) any {
			m := NewWordModel()
			var got [][]byte
			for i, word := range old {
				w := make([]byte, len(word))
				if c.Encoding {
					copy(w, want[i])
				}
				before := bytes.Clone(word)
				m.Code(c, word, w, near)
				require.Equal(t, before, word, "the old word stays")
				got = append(got, w)
			}
			require.Equal(t, want, got)
			return got
		})
	})
}

// Bytes that no encoder wrote decode to something, in bounded time.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add(bytes.Repeat([]byte{0xa5, 0x5a}, 100))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := new(Coder)
		c.Start(in)
		n, b, w := NewUintModel(), NewByteModel(6, 8, 1), NewWordModel()
		for range 200 {
			require.Less(t, c.Uint(n, 0), uint64(1<<63))
			b.Byte(c, 0, 1, 2)
			w.Code(c, []byte{1, 2, 3, 4}, make([]byte, 4), Near{})
		}
		require.True(t, c.Short || c.pos <= len(in)+8)
	})
}
