package delta

import (
	"context"
	"encoding/binary"
	"math/bits"
)

// align finds the covers of new by old: a rising row of ranges of new, each of
// which resembles, byte for byte, a range of old, and which by an estimate take
// the fewest bytes to tell, with what they do not cover and where they do not
// fit.
func align(ctx context.Context, old, new []byte) ([]cover, error) {
	if len(old) == 0 || len(new) == 0 {
		return nil, nil
	}
	if n := matchLen(old, new); n == len(new) {
		return []cover{{0, 0, int64(n)}}, nil
	}
	sa, err := suffixes(ctx, old)
	if err != nil {
		return nil, err
	}
	covers, err := route(ctx, sa, old, new)
	return prune(covers), err
}

func matchLen(a, b []byte) int {
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
