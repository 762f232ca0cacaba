package delta

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func mustAlign(t *testing.T, old, new []byte) []cover {
	c, err := align(t.Context(), old, new)
	require.NoError(t, err)
	return c
}

// Covers are in order, apart, within both files, and alike for the most part.
func checkCovers(t *testing.T, old, new []byte, covers []cover) {
	at := int64(0)
	for _, c := range covers {
		require.GreaterOrEqual(t, c.new, at)
		require.Positive(t, c.length)
		require.GreaterOrEqual(t, c.old, int64(0))
		at = c.new + c.length
		require.LessOrEqual(t, at, int64(len(new)))
		require.LessOrEqual(t, c.old+c.length, int64(len(old)))
	}
}

func TestAlign(t *testing.T) {
	a := noise(1, 1<<16)
	insert := append(append(append([]byte{}, a[:20000]...), noise(2, 100)...), a[20000:]...)
	swap := append(append([]byte{}, a[30000:]...), a[:30000]...)
	for _, new := range [][]byte{nil, a, insert, swap, a[1000:], noise(3, 1000)} {
		covers := mustAlign(t, a, new)
		checkCovers(t, a, new, covers)
	}
	checkCovers(t, nil, a, mustAlign(t, nil, a))
	fit := int64(0)
	for _, c := range mustAlign(t, a, insert) {
		fit += c.length
	}
	require.GreaterOrEqual(t, fit, int64(len(a)))
}

// What repeats is taken from the old place that goes on as the last one did, a
// change of some bytes does not end a cover, and one of many does.
func TestAlignCheapest(t *testing.T) {
	part := noise(1, 3000)
	old := slices.Concat(part, noise(2, 500), part, noise(3, 500), part, noise(4, 20000))
	few := slices.Clone(old)
	for i := 100; i < len(few); i += 80 {
		few[i]++
	}
	require.Equal(t, []cover{{0, 0, int64(len(old))}}, mustAlign(t, old, few))

	many := slices.Clone(old)
	copy(many[12000:], noise(5, 300))
	require.Equal(t, []cover{{0, 0, 12000}, {12300, 12300, int64(len(old)) - 12300}}, mustAlign(t, old, many))

	// A cover is entered before what led there: past single bytes that changed.
	moved := slices.Concat(old[20000:], old[:20000])
	end := int64(len(old)) - 20000
	for i := end + 1; i < end+60; i += 6 {
		moved[i]++
	}
	require.Equal(t, []cover{{0, 20000, end}, {end, 0, 20000}}, mustAlign(t, old, moved))
}

// Files that repeat themselves must not take quadratic time.
func TestAlignRepeats(t *testing.T) {
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
		checkCovers(t, p[0], p[1], mustAlign(t, p[0], p[1]))
	}
}
