package align

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// A text is put between the suffixes that are less and those that are not, with the
// table of first bits and without.
func TestAround(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for _, n := range []int{2, 3, 300, manySuffixes, manySuffixes + 1000} {
		for _, mask := range []byte{0, 1, 3, 255} {
			old := noise(int64(n), n)
			for i := range old {
				old[i] &= mask
			}
			sa, err := suffixes(t.Context(), old)
			require.NoError(t, err)
			x, err := newOrder(t.Context(), old)
			require.NoError(t, err)
			require.Equal(t, n >= manySuffixes, x.heads != nil)
			if n > manySuffixes {
				x = grouped(t.Context(), old)
			}
			texts := [][]byte{{0}, {255}, {0, 0}, {255, 255}, {255, 255, 255}, old, old[n-1:], old[n-2:], {old[n-1], 0, 1}}
			for range 300 {
				i := rnd.Intn(n)
				s := append([]byte{}, old[i:min(n, i+rnd.Intn(20)+1)]...)
				texts = append(texts, s, append(s, byte(rnd.Intn(256))))
			}
			for _, s := range texts {
				lo, hi := x.around(s)
				require.Equal(t, lo+1, hi)
				require.GreaterOrEqual(t, lo, 0)
				require.Less(t, hi, n)
				require.True(t, lo == 0 || less(old[sa[lo]:], s), "%d suffixes, %x", n, s)
				require.True(t, hi == n-1 || !less(old[sa[hi]:], s), "%d suffixes, %x", n, s)
			}
		}
	}
	lo, hi := (&order{old: []byte{1}, sa: []int32{0}}).around([]byte{1, 2})
	require.Equal(t, []int{0, 0}, []int{lo, hi})
}
