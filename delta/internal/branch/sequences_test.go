package branch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The changes come first, in order, and the numbers of instructions last, the other way.
func TestSequencesSeparated(t *testing.T) {
	b := []byte{2, 10, 1, 0x81, 1, 0, 0, 12, 3, 13, 0} // two sequences; the second begins with 0
	convert(GoSequences, b, 0, false)
	require.Equal(t, []byte{2, 1, 0, 0, 3, 0, 13, 12, 1, 0x81, 10}, b)
}

// Any bytes come back, in any pieces, and can be converted back.
func TestSequencesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.SampledFrom([]byte{0, 0, 1, 2, 3, 40, 127, 128, 255})).Draw(t, "bytes")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 50), 1, 4).Draw(t, "sizes")
		got := bytes.Clone(b)
		pieces(GoSequences, got, sizes, false)
		pieces(GoSequences, got, sizes, true)
		require.Equal(t, b, got)
		pieces(GoSequences, got, sizes, true)
	})
}
