package encoder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Of too many matches of a window the shortest are left out, and no others.
func TestFewer(t *testing.T) {
	const window = 4 << 20
	var matches []script.Match
	add := func(at int64, n int, length int64) {
		for i := range n {
			matches = append(matches, script.Match{New: at + int64(i)*40, Length: length})
		}
	}
	add(0, 100, 8)
	add(window, codec.MaxMatches, 8)
	add(window+3<<20, 1000, 40)
	add(5*window, codec.MaxMatches-1, 8)
	count := func(matches []script.Match) map[int64]int {
		n := map[int64]int{}
		for _, m := range matches {
			n[m.New/window]++
		}
		return n
	}
	require.Equal(t, map[int64]int{0: 100, 1: codec.MaxMatches + 1000, 5: codec.MaxMatches - 1}, count(matches))
	require.Equal(t, map[int64]int{0: 100, 1: 1000, 5: codec.MaxMatches - 1}, count(fewer(matches, window)))
}

// Plain copies are tried only where they may be better: for few changes, and for a program
// that is hardly the same. The numbers are those of real programs.
func TestMasksWin(t *testing.T) {
	require.True(t, masksWin(18699288, 200082, false), "libvips, amd64")
	require.True(t, masksWin(2018344, 36128, true), "rollup, arm/v7")
	require.True(t, masksWin(largeELF, 1, true), "a large program")
	require.False(t, masksWin(largeELF, 1, false), "a large program for amd64")
	require.False(t, masksWin(2655884, 6640, true), "libcrypto, a security update")
	require.False(t, masksWin(8827648, 1766, true), "lightningcss, arm64")
	require.False(t, masksWin(largeELF, largeELF/plainShare, true), "hardly the same program")
}
