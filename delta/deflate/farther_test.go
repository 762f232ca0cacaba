package deflate

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// With the chains of longer strings the same comes out as without them.
func TestFarther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	letters := func(n, of int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + r.IntN(of))
		}
		return b
	}
	variants, chain := []Variant{GNU(8), GNU(9), Zlib(8), Zlib(9)}, 5000
	if testing.Short() {
		variants, chain = variants[:1], 1300
	}
	phrases := make([][]byte, 40)
	for i := range phrases {
		phrases[i] = letters(3+r.IntN(20), 5)
	}
	var mixed []byte
	for len(mixed) < 150000 {
		mixed = append(mixed, phrases[r.IntN(len(phrases))]...)
		mixed = append(mixed, letters(r.IntN(4), 3)...)
	}
	inputs := map[string][]byte{
		"text": words(1, 150000), "two letters": letters(40000, 2), "four letters": letters(100000, 4),
		"noise": letters(100000, 256), "zeros": make([]byte, 200000), "phrases": mixed,
		"one chain": oneChain(chain), "short": words(2, 3000), "empty": nil,
	}
	for name, in := range inputs {
		if testing.Short() {
			in = in[:min(len(in), 40000)]
		}
		t.Run(name, func(t *testing.T) {
			for _, v := range variants {
				out := func(far bool) []byte {
					var b bytes.Buffer
					d := NewWriter(&b, v)
					require.NotNil(t, d.far)
					if !far {
						d.far = nil
					}
					_, err := d.Write(in)
					require.NoError(t, err)
					require.NoError(t, d.Close())
					return b.Bytes()
				}
				require.True(t, bytes.Equal(out(false), out(true)), v.String())
			}
		})
	}
}

// oneChain returns so many strings of farBytes whose hashes are all the same:
// more than a search looks at.
func oneChain(n int) (b []byte) {
	var w [2 * windowSize]byte
	for x := uint64(0); len(b) < n*farBytes; x++ {
		for i := range farBytes {
			w[i] = byte(x >> (8 * i))
		}
		if farHash(&w, 0) == 1 {
			b = append(b, w[:farBytes]...)
		}
	}
	return b
}
