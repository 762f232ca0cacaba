package deflate

import (
	"compress/flate"
	"crypto/sha256"
	"io"
	"sync"
)

// goSum is the sum of goSample compressed by Go 1.26 at every level, one after the
// other. The algorithm has not changed since Go 1.7.
var goSum = [sha256.Size]byte{
	0xe8, 0xb8, 0xc6, 0xae, 0xff, 0x35, 0x15, 0x9d, 0x43, 0x79, 0x9f, 0xac, 0xc8, 0x3b, 0x6a, 0xb2,
	0x26, 0xdc, 0x1b, 0xdc, 0x54, 0xc2, 0x88, 0x28, 0xf6, 0x52, 0x80, 0x41, 0x2f, 0x16, 0xb8, 0xff,
}

// GoKnown reports whether compress/flate of the Go that built this program compresses
// as the Variants of Go do. The first call takes some milliseconds.
var GoKnown = sync.OnceValue(func() bool { return sumGo() == goSum })

func sumGo() (sum [sha256.Size]byte) {
	h := sha256.New()
	b := goSample()
	d := new(Writer)
	for l := 1; l <= 9; l++ {
		d.Reset(h, Go(l))
		_, _ = d.Write(b) // a hash does not fail
		_ = d.Close()
	}
	h.Sum(sum[:0])
	return sum
}

// goSample has near and far matches, and is so long that the window moves.
func goSample() []byte {
	b := make([]byte, 0, 80<<10)
	x := uint32(1)
	for len(b)+300 < cap(b) {
		x = x*1664525 + 1013904223
		if n := int(x>>24) + 1; x>>20&3 != 0 && n < len(b) {
			from := len(b) - 1 - int(x>>4)%min(len(b), 40<<10)
			for i := range min(n/8+3, len(b)-from) {
				b = append(b, b[from+i])
			}
		} else {
			for i := range n & 15 {
				b = append(b, byte(x>>16)&byte(15+i))
				x = x*1664525 + 1013904223
			}
		}
	}
	return b
}

// resetGo makes d a Writer with a Variant of Go.
func (d *Writer) resetGo(w io.Writer, level int) {
	if d.std != nil && d.goLevel == level {
		d.std.Reset(w)
		return
	}
	d.std, _ = flate.NewWriter(w, level) // the levels are valid
	d.goLevel = level
}
