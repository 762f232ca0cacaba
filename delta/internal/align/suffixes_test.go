package align

import (
	"bytes"
	"math/rand"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSuffixes(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for n := range 300 {
		for _, k := range []int{1, 2, 4, 256} {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rnd.Intn(k))
			}
			want := make([]int32, n)
			for i := range want {
				want[i] = int32(i)
			}
			sort.Slice(want, func(i, j int) bool { return bytes.Compare(b[want[i]:], b[want[j]:]) < 0 })
			got, err := suffixes(t.Context(), b)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

func BenchmarkSuffixes(b *testing.B) {
	d := noise(1, 1<<22)
	for i := range d {
		d[i] &= 15
	}
	b.SetBytes(int64(len(d)))
	for b.Loop() {
		if _, err := suffixes(b.Context(), d); err != nil {
			b.Fatal(err)
		}
	}
}
