package deflate

import "encoding/binary"

// farther has chains of strings with the same first farBytes bytes. A match of
// farBytes bytes or more is on such a chain, which is several times shorter than the
// chain of three bytes, so it is found sooner. The result is the same as on the chain
// of three bytes: the numbers of the strings tell how many strings of that chain were
// skipped.
type farther struct {
	head [1 << farBits]uint16
	prev [windowSize]uint16
	rank [windowSize]uint16 // number of a string in its chain of three bytes
}

// farHash is the hash of the first farBytes bytes of the string at i.
func farHash(w *[2 * windowSize]byte, i int) uint64 {
	v := uint64(binary.LittleEndian.Uint32(w[i:])) | uint64(w[i+farBytes-1])<<32
	return v * 0x9e3779b97f4a7c15 >> (64 - farBits)
}

// insert puts the string at i into its chain. h is the string before it in the chain
// of three bytes.
func (f *farther) insert(w *[2 * windowSize]byte, i, h int) {
	k := farHash(w, i)
	f.rank[i&(windowSize-1)] = f.rank[h&(windowSize-1)] + 1
	f.prev[i&(windowSize-1)] = f.head[k]
	f.head[k] = uint16(i)
}

// farther finds what longest finds, if the best match has farBytes-1 bytes or more.
// It gives up if too many strings on the chain have the same hash by chance.
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
