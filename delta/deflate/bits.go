package deflate

import "io"

// bits writes bits, the low ones first.
type bits struct {
	w   io.Writer
	buf []byte
	acc uint64
	n   int
	err error
}

func (b *bits) code(n *node) { b.put(uint32(n.code), int(n.len)) }

func (b *bits) put(v uint32, n int) {
	b.acc |= uint64(v) << b.n
	b.n += n
	for b.n >= 8 {
		b.buf = append(b.buf, byte(b.acc))
		b.acc >>= 8
		b.n -= 8
	}
	if len(b.buf) >= 4096 {
		b.write()
	}
}

func (b *bits) align() {
	if b.n > 0 {
		b.put(0, 8-b.n)
	}
}

func (b *bits) bytes(p []byte) {
	b.write()
	if b.err == nil {
		_, b.err = b.w.Write(p)
	}
}

func (b *bits) write() {
	if b.err == nil && len(b.buf) > 0 {
		_, b.err = b.w.Write(b.buf)
	}
	b.buf = b.buf[:0]
}

func reverse(v uint16, n int) (r uint16) {
	for range n {
		r = r<<1 | v&1
		v >>= 1
	}
	return r
}
