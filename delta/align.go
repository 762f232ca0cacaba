package delta

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/bits"
)

// align finds the covers of new by old: a rising row of ranges of new, each of
// which resembles, byte for byte, a range of old. It is the scan of bsdiff
// (Colin Percival, "Naive differences of executable code", 2003): the longest
// exact matches that a continued old alignment does not do as well, grown both
// ways while more bytes fit than not. Covers that cost more than they save are
// left out.
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
	var out []cover
	var scan, length, pos, lastScan, lastPos, lastOff int
	for scan < len(new) {
		score := 0
		scan += length
		ahead := scan
		for ; scan < len(new); scan++ {
			if scan&0xfff == 0 {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
			}
			pos, length = longest(sa, old, new[scan:])
			for ; ahead < scan+length; ahead++ {
				if o := ahead + lastOff; o >= 0 && o < len(old) && old[o] == new[ahead] {
					score++
				}
			}
			if length == score && length != 0 || length > score+8 {
				break
			}
			if o := scan + lastOff; o >= 0 && o < len(old) && old[o] == new[scan] {
				score--
			}
		}
		if length == score && scan < len(new) {
			continue
		}
		fwd := grow(old[lastPos:], new[lastScan:scan])
		back := 0
		if scan < len(new) {
			back = growBack(old[:pos], new[lastScan:scan])
		}
		if over := lastScan + fwd - (scan - back); over > 0 {
			s, best, cut := 0, 0, 0
			a, b := old[lastPos+fwd-over:], old[pos-back:]
			w := new[scan-back:]
			for i := range over {
				if w[i] == a[i] {
					s++
				}
				if w[i] == b[i] {
					s--
				}
				if s > best {
					best, cut = s, i+1
				}
			}
			fwd += cut - over
			back -= cut
		}
		if fwd > 0 {
			out = append(out, cover{int64(lastScan), int64(lastPos), int64(fwd)})
		}
		lastScan, lastPos, lastOff = scan-back, pos-back, pos-scan
	}
	return prune(out), nil
}

// grow returns how far from their start a and b are more alike than not.
func grow(a, b []byte) int {
	s, best, at := 0, 0, 0
	for i := 0; i < len(a) && i < len(b); {
		if a[i] == b[i] {
			s++
		}
		i++
		if s*2-i > best*2-at {
			best, at = s, i
		}
	}
	return at
}

func growBack(a, b []byte) int {
	s, best, at := 0, 0, 0
	for i := 1; i <= len(a) && i <= len(b); i++ {
		if a[len(a)-i] == b[len(b)-i] {
			s++
		}
		if s*2-i > best*2-at {
			best, at = s, i
		}
	}
	return at
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

// longest returns where old has the longest match with the start of s.
func longest(sa []int32, old, s []byte) (pos, n int) {
	lo, hi := 0, len(sa)-1
	for hi-lo >= 2 {
		x := lo + (hi-lo)/2
		a := old[sa[x]:]
		k := min(len(a), len(s))
		if bytes.Compare(a[:k], s[:k]) < 0 {
			lo = x
		} else {
			hi = x
		}
	}
	x, y := matchLen(old[sa[lo]:], s), matchLen(old[sa[hi]:], s)
	if x > y {
		return int(sa[lo]), x
	}
	return int(sa[hi]), y
}
