package elf

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of ranges that have old bytes in common the longest one maps them, however
// they lie: every old byte is mapped by the longest range over it.
func TestLongestRangeMaps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var space Space
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		var in []Range
		for range 1 + rnd.IntN(12) {
			in = append(in, Range{Old: rnd.Int64N(60), New: rnd.Int64N(1000), Len: 1 + rnd.Int64N(1+rnd.Int64N(60))})
		}
		out := disjoint(slices.Clone(in), &space)
		require.LessOrEqual(t, len(out), len(in))
		end := int64(0)
		for _, r := range out {
			require.GreaterOrEqual(t, r.Old, end, "%v gave %v", in, out)
			require.Positive(t, r.Len)
			end = r.Old + r.Len
		}
		for at := range int64(130) {
			most := int64(0)
			var want []int64 // several where ranges are as long
			for _, r := range in {
				if at < r.Old || at >= r.Old+r.Len || r.Len < most {
					continue
				}
				if r.Len > most {
					most, want = r.Len, nil
				}
				want = append(want, at-r.Old+r.New)
			}
			i := slices.IndexFunc(out, func(r Range) bool { return at >= r.Old && at < r.Old+r.Len })
			if most == 0 {
				require.Negative(t, i)
				continue
			}
			require.GreaterOrEqual(t, i, 0, "%v gave %v", in, out)
			require.Contains(t, want, at-out[i].Old+out[i].New, "%v gave %v", in, out)
		}
	}
}

// What lies behind a short range within a long one is mapped by the long one.
func TestShortRangeWithinLong(t *testing.T) {
	var space Space
	m := newMapping(nil, nil, []Range{{Old: 100, New: 5100, Len: 1000}, {Old: 300, New: 0, Len: 8}}, &space)
	for _, off := range []int64{100, 299, 303, 309, 1099} {
		k := m.find(off)
		require.Equal(t, int64(5000), m.ranges[k].New-m.ranges[k].Old, "at %d", off)
	}
}
