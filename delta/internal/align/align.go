// Package align finds which ranges of an old file a new file resembles: suffix
// sorting, then the cheapest path along the diagonals that exact matches suggest.
//
// It is for the build host: it takes about six bytes of memory for each byte of
// the old file. The decoder never imports it.
package align

import (
	"context"
	"encoding/binary"
	"math/bits"

	"github.com/mender-app/mender-app/delta/internal/script"
)

// Find returns the matches of new with old, in the order of new. Each is a range
// of new that resembles a range of old, byte for byte. Find estimates how many
// bytes it takes to code the matches, the bytes outside of them and those that
// differ, and returns the cheapest choice that it finds. Both files must be smaller
// than 2 GiB. The only errors are those of ctx.
func Find(ctx context.Context, old, new []byte) ([]script.Match, error) {
	if len(old) == 0 || len(new) == 0 {
		return nil, nil
	}
	if n := equalLen(old, new); n == len(new) {
		return []script.Match{{Length: int64(n)}}, nil
	}
	x, err := newOrder(ctx, old)
	if err != nil {
		return nil, err
	}
	matches, err := cheapest(ctx, x, new)
	return prune(matches), err
}

// equalLen returns how many bytes at the beginning of a and b are equal.
func equalLen(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
