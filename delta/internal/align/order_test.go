package align

import (
	"bytes"
	"context"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// grouped returns an order of which nothing is sorted, however small the text.
func grouped(ctx context.Context, text []byte) *order {
	x := &order{ctx: ctx, old: text, sa: make([]int32, len(text)), most: len(text)}
	x.count(fewBits)
	x.fill()
	return x
}

// Wherever somebody looks, the suffix is the one that sorting everything puts there.
func TestOrder(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	few := noise(2, manySuffixes+5)
	for i := range few {
		few[i] &= 1
	}
	gaps := noise(3, manySuffixes)
	clear(gaps[1000:9000])
	clear(gaps[40000:])
	texts := map[string][]byte{
		"noise":   noise(1, manySuffixes),
		"bits":    few,
		"gaps":    gaps,
		"zeros":   make([]byte, manySuffixes),
		"periods": bytes.Repeat(noise(4, 1000), 70),
		"end":     slices.Concat(noise(5, manySuffixes), []byte{0, 0, 0}),
	}
	for name, text := range texts {
		want, err := suffixes(t.Context(), text)
		require.NoError(t, err)
		for _, looks := range []int{50, len(text)} {
			x := grouped(t.Context(), text)
			x.allow(looks, looks)
			for range looks {
				k := rnd.Intn(len(text))
				if int(want[k]) != x.at(k) {
					require.Equal(t, int(want[k]), x.at(k), "%s, %d looks", name, looks)
				}
			}
		}
	}
}

// A text whose suffixes have much in common is sorted as a whole before long.
func TestOrderOfZeros(t *testing.T) {
	const n = 1 << 18
	x := grouped(t.Context(), make([]byte, n))
	require.NotNil(t, x.first, "nobody has looked")
	require.Equal(t, 0, x.at(n-1))
	require.Nil(t, x.first)
	require.Less(t, x.work, 2*n)
	require.Equal(t, n-10, x.at(9))
}

// When the context is done, no place of the array leads outside of the text.
func TestOrderCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	x := grouped(ctx, make([]byte, manySuffixes))
	cancel()
	for k := range manySuffixes {
		if p := x.at(k); p < 0 || p >= manySuffixes {
			require.Fail(t, "outside", "place %d: %d", k, p)
		}
	}
	require.Nil(t, x.first)
}
