package align

import (
	"bytes"
	"context"
	"math/rand"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// suffixes returns the suffix array of b.
func suffixes(ctx context.Context, b []byte) ([]int32, error) {
	sa := make([]int32, len(b))
	return sa, sortSuffixes(ctx, b, sa, 256)
}

func requireSuffixes(t *testing.T, b []byte) {
	want := make([]int32, len(b))
	for i := range want {
		want[i] = int32(i)
	}
	sort.Slice(want, func(i, j int) bool { return bytes.Compare(b[want[i]:], b[want[j]:]) < 0 })
	got, err := suffixes(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestSuffixes(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for n := range 300 {
		for _, k := range []int{1, 2, 4, 256} {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rnd.Intn(k))
			}
			requireSuffixes(t, b)
		}
	}
}

// What repeats itself is sorted in several rounds.
func TestSuffixesOfRepeats(t *testing.T) {
	fibonacci, last := []byte("a"), []byte("b")
	for len(fibonacci) < 4000 {
		fibonacci, last = append(bytes.Clone(fibonacci), last...), fibonacci
	}
	for _, part := range []string{"a", "ab", "ba", "aab", "abb", "abcab", "zyxzyy", string(noise(1, 70))} {
		for _, end := range []string{"", "a", "z", "aba"} {
			requireSuffixes(t, append(bytes.Repeat([]byte(part), 3000/len(part)), end...))
		}
	}
	requireSuffixes(t, fibonacci)
	slices.Reverse(fibonacci)
	requireSuffixes(t, fibonacci)
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
