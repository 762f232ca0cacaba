package codec

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/script"
)

// Matches are cut where a window ends, and those that are given stay as they are.
func TestCut(t *testing.T) {
	all := []script.Match{{New: 0, Old: 100, Length: 10}, {New: 20, Old: 50, Length: 30}, {New: 60, Old: 7, Length: 5}}
	given := slices.Clone(all)
	for _, c := range []struct {
		at             int64
		before, behind []script.Match
	}{
		{0, nil, all},
		{10, all[:1], all[1:]},
		{20, all[:1], all[1:]},
		{21, []script.Match{all[0], {New: 20, Old: 50, Length: 1}}, []script.Match{{New: 21, Old: 51, Length: 29}, all[2]}},
		{49, []script.Match{all[0], {New: 20, Old: 50, Length: 29}}, []script.Match{{New: 49, Old: 79, Length: 1}, all[2]}},
		{50, all[:2], all[2:]},
		{1000, all, nil},
	} {
		before, behind := cut(all, c.at)
		require.True(t, slices.Equal(c.before, before), "at %d: %v", c.at, before)
		require.True(t, slices.Equal(c.behind, behind), "at %d: %v", c.at, behind)
		require.Equal(t, given, all)
	}
}
