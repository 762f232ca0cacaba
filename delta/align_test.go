package delta

import (
	"bytes"
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

// Files that repeat themselves must not take quadratic time.
func TestAlignRepeats(t *testing.T) {
	const n = 1 << 20
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
