package script

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestClip(t *testing.T) {
	matches := []Match{{New: 10, Old: 100, Length: 10}, {New: 20, Old: 50, Length: 5}, {New: 40, Old: 0, Length: 1}}
	for _, c := range []struct {
		from, to int64
		want     []Match
	}{
		{0, 100, matches},
		{0, 10, nil},
		{25, 40, nil},
		{15, 15, nil},
		{15, 22, []Match{{New: 0, Old: 105, Length: 5}, {New: 5, Old: 50, Length: 2}}},
		{12, 13, []Match{{New: 0, Old: 102, Length: 1}}},
		{40, 41, []Match{{New: 0, Old: 0, Length: 1}}},
	} {
		require.Equal(t, c.want, Clip(matches, c.from, c.to), "%d to %d", c.from, c.to)
	}
	require.EqualValues(t, 16, Covered(matches))
	require.Zero(t, Covered(nil))
}

// Clipped to the pieces of a file, matches cover the same bytes from the same
// places.
func TestClipPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var matches []Match
		at := int64(0)
		for range rapid.IntRange(0, 8).Draw(t, "matches") {
			at += rapid.Int64Range(0, 5).Draw(t, "gap")
			m := Match{New: at, Old: rapid.Int64Range(0, 50).Draw(t, "old"), Length: rapid.Int64Range(1, 9).Draw(t, "length")}
			matches = append(matches, m)
			at += m.Length
		}
		from := func(matches []Match, start int64, where map[int64]int64) {
			for _, m := range matches {
				for i := range m.Length {
					where[start+m.New+i] = m.Old + i
				}
			}
		}
		want, got := map[int64]int64{}, map[int64]int64{}
		from(matches, 0, want)
		for start := int64(0); start < at; {
			end := min(at, start+rapid.Int64Range(1, 12).Draw(t, "piece"))
			from(Clip(matches, start, end), start, got)
			start = end
		}
		require.Equal(t, want, got)
	})
}

func TestContentSizes(t *testing.T) {
	plain := Content{Matches: []Match{{Length: 30}, {New: 50, Length: 10}}}
	require.EqualValues(t, 100, plain.Between(100))
	require.EqualValues(t, 100, plain.Uncompressed(100))
	require.EqualValues(t, 60, plain.Uncovered(100))

	// Two streams of 20 and 10 bytes, with 200 and 40 bytes in them.
	streams := Content{
		Matches: []Match{{Length: 30}},
		Streams: []Stream{
			{StreamHead: StreamHead{Size: 200}, At: 40, Length: 20, Matches: []Match{{Length: 150}}},
			{StreamHead: StreamHead{Size: 40}, At: 70, Length: 10},
		},
	}
	require.EqualValues(t, 70, streams.Between(100))
	require.EqualValues(t, 70+200+40, streams.Uncompressed(100))
	require.EqualValues(t, 40+50+40, streams.Uncovered(100))
}

func TestOps(t *testing.T) {
	for op := range NumOps {
		require.Equal(t, op == Same || op == Copy, op.Copies(), op)
		require.Equal(t, op == Change || op == ChangeOther, op.Changes(), op)
	}
}

func TestPassed(t *testing.T) {
	o := Object{Members: []Member{{Ref: 1, Skip: 2}, {Ref: 0, Skip: 9}, {Ref: 2}, {Ref: 1}}}
	require.EqualValues(t, 4, o.Passed(1), "what is skipped, and what is used")
	require.EqualValues(t, 1, o.Passed(2))
	require.Zero(t, o.Passed(3))
}
