package align

import (
	"bytes"
	"context"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/script"
)

func mustFind(t *testing.T, old, new []byte) []script.Match {
	c, err := Find(t.Context(), old, new)
	require.NoError(t, err)
	return c
}

// Matches are in order, apart, within both files, and alike for the most part.
func checkMatches(t *testing.T, old, new []byte, matches []script.Match) {
	at := int64(0)
	for _, c := range matches {
		require.GreaterOrEqual(t, c.New, at)
		require.Positive(t, c.Length)
		require.GreaterOrEqual(t, c.Old, int64(0))
		at = c.New + c.Length
		require.LessOrEqual(t, at, int64(len(new)))
		require.LessOrEqual(t, c.Old+c.Length, int64(len(old)))
	}
}

func TestFind(t *testing.T) {
	a := noise(1, 1<<16)
	insert := append(append(append([]byte{}, a[:20000]...), noise(2, 100)...), a[20000:]...)
	swap := append(append([]byte{}, a[30000:]...), a[:30000]...)
	for _, new := range [][]byte{nil, a, insert, swap, a[1000:], noise(3, 1000)} {
		matches := mustFind(t, a, new)
		checkMatches(t, a, new, matches)
	}
	checkMatches(t, nil, a, mustFind(t, nil, a))
	fit := int64(0)
	for _, c := range mustFind(t, a, insert) {
		fit += c.Length
	}
	require.GreaterOrEqual(t, fit, int64(len(a)))
}

// What repeats is taken from the old place that goes on as the last one did, a
// change of some bytes does not end a match, and one of many does.
func TestFindCheapest(t *testing.T) {
	part := noise(1, 3000)
	old := slices.Concat(part, noise(2, 500), part, noise(3, 500), part, noise(4, 20000))
	few := slices.Clone(old)
	for i := 100; i < len(few); i += 80 {
		few[i]++
	}
	require.Equal(t, []script.Match{{Length: int64(len(old))}}, mustFind(t, old, few))

	many := slices.Clone(old)
	copy(many[12000:], noise(5, 300))
	require.Equal(t, []script.Match{{New: 0, Old: 0, Length: 12000}, {New: 12300, Old: 12300, Length: int64(len(old)) - 12300}}, mustFind(t, old, many))

	// A match is entered before what led there: past single bytes that changed.
	moved := slices.Concat(old[20000:], old[:20000])
	end := int64(len(old)) - 20000
	for i := end + 1; i < end+60; i += 6 {
		moved[i]++
	}
	require.Equal(t, []script.Match{{New: 0, Old: 20000, Length: end}, {New: end, Old: 0, Length: 20000}}, mustFind(t, old, moved))
}

// Files that repeat themselves must not take quadratic time.
func TestFindRepeats(t *testing.T) {
	const n = 1 << 18
	zeros := make([]byte, n)
	sprinkled := make([]byte, n)
	for i := 0; i < n; i += 5000 {
		sprinkled[i] = byte(i / 5000)
	}
	period := bytes.Repeat(noise(1, 1000), n/1000)
	broken := append([]byte{}, period...)
	for i := 0; i < n-1000; i += 3001 {
		broken[i]++
	}
	for _, p := range [][2][]byte{{zeros, sprinkled}, {sprinkled, zeros}, {sprinkled, sprinkled[100:]}, {period, broken}, {broken, period}, {zeros, period}} {
		checkMatches(t, p[0], p[1], mustFind(t, p[0], p[1]))
	}
}

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// A cancelled context ends the sorting and the search.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := noise(1, 1<<19)
	_, err := Find(ctx, b, append(bytes.Clone(b), 1))
	require.ErrorIs(t, err, context.Canceled)
	_, err = suffixes(ctx, b)
	require.ErrorIs(t, err, context.Canceled)
}
