package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is chosen is within a budget, and within one percent of the best of all
// combinations.
func TestChooseIsNearTheBest(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		n := 1 + r.IntN(14)
		list := make([]choice, n)
		var all int64
		for i := range list {
			list[i] = choice{value: r.Int64N(1 << (1 + r.IntN(40))), costs: r.Int64N(1 << (1 + r.IntN(20)))}
			all += list[i].costs
		}
		budget := r.Int64N(all + 2)
		var best int64
		for set := range 1 << n {
			var value, costs int64
			for i, c := range list {
				if set>>i&1 == 1 {
					value, costs = value+c.value, costs+c.costs
				}
			}
			if costs <= budget {
				best = max(best, value)
			}
		}
		taken := choose(list, budget)
		require.True(t, slices.IsSorted(taken))
		require.Len(t, slices.Compact(slices.Clone(taken)), len(taken))
		var value, costs int64
		for _, i := range taken {
			value, costs = value+list[i].value, costs+list[i].costs
		}
		require.LessOrEqual(t, costs, budget)
		require.GreaterOrEqual(t, float64(value), 0.99*float64(best), "%v within %d", list, budget)
	}
}

// Density alone takes the small one, and half of what is possible is lost.
func TestChooseLooksBeyondDensity(t *testing.T) {
	require.Equal(t, []int{1}, choose([]choice{{value: 3, costs: 1}, {value: 100, costs: 100}}, 100))
	require.Equal(t, []int{0, 2}, choose([]choice{{value: 1, costs: 0}, {value: 0, costs: 0}, {value: 5, costs: 5}}, 5))
	require.Empty(t, choose([]choice{{value: 5, costs: 6}}, 5))
	require.Empty(t, choose(nil, 5))
}

// Many choices, as a fleet with thousands of images has, are no work.
func TestChooseFromMany(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]choice, 20_000)
	var all int64
	for i := range list {
		list[i] = choice{value: r.Int64N(1 << 40), costs: 1 + r.Int64N(1<<20)}
		all += list[i].costs
	}
	for _, budget := range []int64{all / 1000, all / 2, 3} {
		taken := choose(list, budget)
		var costs int64
		for _, i := range taken {
			costs += list[i].costs
		}
		require.LessOrEqual(t, costs, budget)
	}
}
