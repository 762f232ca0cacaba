package deflate

import "encoding/binary"

// farther has chains of strings that begin with the same farBytes bytes. A match
// longer than one of farBytes-1 is on such a chain, which is several times
// shorter than that of a hash of three bytes, and finding it there is all that
// these chains are for: how many strings of the other chain are passed over is
// known from their numbers, so that the same is found as along that one.
type farther struct {
	head [1 << farBits]uint16
	prev [windowSize]uint16
	rank [windowSize]uint16 // number of a string in its chain of three bytes
}

// farHash is that of the first bytes of the string at i.
func farHash(w *[2 * windowSize]byte, i int) uint64 {
	v := uint64(binary.LittleEndian.Uint32(w[i:])) | uint64(w[i+farBytes-1])<<32
	return v * 0x9e3779b97f4a7c15 >> (64 - farBits)
}

// insert puts the string at i into its chain; h is the one before it in that of
// three bytes.
func (f *farther) insert(w *[2 * windowSize]byte, i, h int) {
	k := farHash(w, i)
	f.rank[i&(windowSize-1)] = f.rank[h&(windowSize-1)] + 1
	f.prev[i&(windowSize-1)] = f.head[k]
	f.head[k] = uint16(i)
}

// farther finds what longest finds, for a best of farBytes-1 or more. It gives up
// where too many strings are on the chain whose hash is the same by chance.
func (d *Writer) farther(head, most, nice, best, limit int) (at, length int, ok bool) {
	f, w := d.far, &d.window
	scan := w[d.at : d.at+maxMatch]
	ends := pair(w, d.at+best-1)
	first := f.rank[head&(windowSize-1)]
	cur := d.at
	for range most + 1 {
		cur = int(f.prev[cur&(windowSize-1)])
		if cur <= limit && cur != head {
			return at, best, true
		}
		if pair(w, cur+best-1) != ends {
			continue
		}
		if n := common(w[cur:cur+maxMatch], scan); n > best {
			if int(first-f.rank[cur&(windowSize-1)]) >= most {
				return at, best, true
			}
			at, best = cur, n
			if n >= nice {
				return at, best, true
			}
			ends = pair(w, d.at+best-1)
		}
	}
	return 0, 0, false
}
