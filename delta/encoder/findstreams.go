package encoder

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/codec"
)

// zipLocal begins the header of an entry of a zip archive (PKWARE's APPNOTE.TXT,
// 4.3.7).
var zipLocal = []byte("PK\x03\x04")

const zipHead = 30 // bytes of the header before the name

// scanStreams finds the streams of a file: gzip members and deflated entries of
// zip archives anywhere, and a zlib stream at its beginning.
func scanStreams(b []byte, most int64) []foundStream {
	var out []foundStream
	count := map[string]int{}
	r := bytes.NewReader(b)
	size := int64(len(b))
	// add looks for a stream whose envelope begins at an offset.
	add := func(k deflate.Envelope, at int64, name string) (end int64, ok bool) {
		in, err := k.Inflate(r, at, size, most)
		if err != nil {
			return at, false
		}
		id := string(rune('0'+k)) + name
		out = append(out, foundStream{envelope: k, at: at, end: in.End, size: int64(len(in.Plain)),
			head: in.Head, name: name, nth: count[id], sum: sha256.Sum256(b[at:in.End])})
		count[id]++
		return in.End, true
	}
	at, ok := int64(0), false
	if at, ok = add(deflate.ZlibEnvelope, 0, ""); ok {
		return out
	}
	g, z := int64(-1), int64(-1) // the next of each; searched again only once it is passed
	for at < size {
		if g < at {
			g = indexFrom(b, deflate.GzipHead[:3], at)
		}
		if z < at {
			z = indexFrom(b, zipLocal, at)
		}
		switch {
		case g == size && z == size:
			return out
		case g < z:
			if at, ok = add(deflate.GzipEnvelope, g, ""); !ok {
				at = g + 1
			}
		default:
			at = z + int64(len(zipLocal))
			h := b[z:]
			if len(h) < zipHead || h[6]&1 != 0 || binary.LittleEndian.Uint16(h[8:]) != 8 {
				continue // cut short, encrypted, or not deflated
			}
			n := zipHead + int(binary.LittleEndian.Uint16(h[26:]))
			m := n + int(binary.LittleEndian.Uint16(h[28:]))
			if m >= len(h) {
				continue
			}
			if end, ok := add(deflate.NoEnvelope, z+int64(m), string(h[zipHead:n])); ok {
				at = end
			}
		}
	}
	return out
}

// indexFrom returns where b has sep at or after an offset, or its length.
func indexFrom(b, sep []byte, at int64) int64 {
	if i := bytes.Index(b[at:], sep); i >= 0 {
		return at + int64(i)
	}
	return int64(len(b))
}

// Deflated returns how many bytes of a file are in deflate streams that the encoder finds,
// and how many of these in streams that a device can compress again to the same bytes.
func Deflated(b []byte) (found, again int64) {
	var hint deflate.Variant
	for _, f := range scanStreams(b, codec.MaxPlain) {
		found += f.end - f.at
		in, err := f.envelope.Inflate(bytes.NewReader(b), f.at, int64(len(b)), codec.MaxPlain)
		if err != nil {
			continue
		}
		if f.identify(b, in.Plain, hint, deflate.GoKnown()) {
			again += f.end - f.at
			hint = f.variant
		}
	}
	return found, again
}

var errDiffers = errors.New("differs")

// comparer fails at the first byte that differs.
type comparer struct{ want []byte }

func (c *comparer) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(c.want, b) {
		return 0, errDiffers
	}
	c.want = c.want[len(b):]
	return len(b), nil
}

// identify finds out how plain was compressed to the stream in the file b, and keeps the answer.
func (f *foundStream) identify(b, plain []byte, hint deflate.Variant, byGo bool) bool {
	if !f.tried {
		f.tried = true
		raw := b[f.at+int64(len(f.head)) : f.end-int64(len(f.envelope.AppendTail(nil, f.envelope.Sum(), 0)))]
		f.variant, f.made = findVariant(f.envelope, f.head, raw, plain, hint, byGo)
	}
	return f.made
}

// findVariant finds out how plain was compressed to raw; hint is tried first. byGo: it may
// have been done by Go.
func findVariant(k deflate.Envelope, head, raw, plain []byte, hint deflate.Variant, byGo bool) (deflate.Variant, bool) {
	try := []deflate.Variant{hint}
	var rest []deflate.Variant
	for l := 9; l >= 1; l-- {
		v := []deflate.Variant{deflate.GNU(l), deflate.Zlib(l)}
		if byGo {
			v = append(v, deflate.Go(l))
		}
		if likely(k, head, l) {
			try = append(try, v...)
		} else {
			rest = append(rest, v...)
		}
	}
	z := new(deflate.Writer)
	for _, v := range append(try, rest...) {
		c := &comparer{raw}
		z.Reset(c, v)
		if _, err := z.Write(plain); err != nil {
			continue
		}
		if z.Close() == nil && len(c.want) == 0 {
			return v, true
		}
	}
	return 0, false
}

// likely reports whether the head of a stream fits a level: the heads of gzip and
// zlib say whether a slow or a fast level was used.
func likely(k deflate.Envelope, head []byte, level int) bool {
	switch k {
	case deflate.GzipEnvelope:
		return head[8] == [10]byte{1: 4, 9: 2}[level]
	case deflate.ZlibEnvelope:
		return head[1]>>6 == [10]byte{1: 0, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2, 7: 3, 8: 3, 9: 3}[level]
	}
	return level == 5 || level == 6
}
