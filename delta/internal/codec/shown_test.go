package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mender-app/mender-app/delta/internal/script"
)

func TestShown(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct{ n, before, behind, first, last int64 }{
		{3, 1000, 1100, 0, 0},          // too few new bytes
		{8, 1000, 1000, 0, 0},          // an insertion
		{8, 1000, 1144, 144, 0},        // all between the matches
		{8, 1000, 1145, 72, 72},        // the match behind is far
		{8, 1000, 999, 72, 72},         // or lies before
		{8, 1000, 10, 72, 10},          // at the beginning
		{8, size - 5, 500, 5, 72},      // and at the end of the file
		{8, size, -1, 0, 0},            // nothing follows
		{8, 1000, -1, 72, 0},           // no match follows
		{1 << 20, 5000, 0, 4 << 10, 0}, // no more than mostShown
	} {
		first, last := shown(c.n, c.before, c.behind, size)
		require.Equal(t, [2]int64{c.first, c.last}, [2]int64{first, last}, c)
	}
}

// What is shown lies in the old file and fits a chunk, and Shown has room for it.
func TestShownFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		oldSize := rapid.Int64Range(1, 1<<20).Draw(t, "old size")
		var matches []script.Match
		at, before, sum := int64(0), int64(0), int64(0)
		show := func(n, behind int64) {
			first, last := shown(n, before, behind, oldSize)
			require.True(t, first >= 0 && before+first <= oldSize && last >= 0 && (last == 0 || last <= behind))
			require.True(t, first <= Chunk && last <= Chunk)
			if n > 0 {
				sum += first + last + 9
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "matches") {
			gap := rapid.Int64Range(0, 1<<14).Draw(t, "gap")
			old := rapid.Int64Range(0, oldSize-1).Draw(t, "old")
			m := script.Match{New: at + gap, Old: old, Length: rapid.Int64Range(1, oldSize-old).Draw(t, "length")}
			show(gap, old)
			matches = append(matches, m)
			at, before = m.New+m.Length, m.Old+m.Length
		}
		show(100, -1)
		require.Equal(t, sum, Shown(matches, at+100, oldSize))
	})
}
