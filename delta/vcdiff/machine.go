package vcdiff

import (
	"fmt"
	"io"
)

// A machine executes the instructions of one window.
type machine struct {
	win  []byte
	data int // offset in win of the data that was not used yet
	inst []byte
	addr pieces
	w    window
	src  *source
	near addresses
}

func (m *machine) run() error {
	win, inst := m.win, m.inst
	t := 0 // bytes of target; never more than m.data
	for i := 0; i < len(inst); {
		code := &codeTable[inst[i]]
		i++
		for _, in := range code {
			if in.kind == noop {
				break // only the second one may be
			}
			size := int(in.size)
			if size == 0 {
				n, used := size64(inst[i:])
				if used == 0 {
					return fmt.Errorf("%w: instruction without a size", ErrCorrupt)
				}
				if n > int64(len(win)-t) {
					return overflow(t)
				}
				size = int(n)
				i += used
			}
			switch in.kind {
			case add:
				if size > len(win)-m.data {
					return fmt.Errorf("%w: data section ends early", ErrCorrupt)
				}
				if t != m.data {
					copy(win[t:], win[m.data:m.data+size])
				}
				m.data += size
			case run:
				if m.data == len(win) {
					return fmt.Errorf("%w: data section ends early", ErrCorrupt)
				}
				b := win[m.data]
				m.data++
				if size > m.data-t {
					return overflow(t)
				}
				fill(win[t:t+size], b)
			default:
				if size > m.data-t {
					return overflow(t)
				}
				if err := m.copy(t, size, in.kind-copyFrom); err != nil {
					return err
				}
			}
			t += size
		}
	}
	if t != len(win) {
		return fmt.Errorf("%w: instructions give %d of %d bytes", ErrCorrupt, t, len(win))
	}
	return nil
}

// overflow is the error of an instruction that writes past the end of the window, or
// leaves data unused.
func overflow(t int) error {
	return fmt.Errorf("%w: instruction at %d of the window is too long", ErrCorrupt, t)
}

// copy executes a COPY of size bytes to t. Addresses count through the
// source segment and then the target (RFC 3284 section 3).
func (m *machine) copy(t, size int, mode byte) error {
	here := m.w.srcLen + int64(t)
	addr, err := m.near.decode(mode, here, &m.addr)
	if err != nil {
		return err
	}
	if addr < 0 || addr >= here {
		return fmt.Errorf("%w: copy address %d of %d", ErrCorrupt, addr, here)
	}
	m.near.update(addr)
	dst := m.win[t : t+size]
	if left := m.w.srcLen - addr; left > 0 {
		n := int(min(left, int64(size)))
		if err := m.src.read(dst[:n], m.w.srcPos+addr); err != nil {
			return err
		}
		if n == size {
			return nil
		}
		// The copy continues in the target.
		dst, t, addr = dst[n:], t+n, m.w.srcLen
	}
	from := int(addr - m.w.srcLen)
	repeat(m.win[from:t+len(dst)], t-from)
	return nil
}

// repeat copies b's first n bytes again and again until b is full.
func repeat(b []byte, n int) {
	for n < len(b) {
		n += copy(b[n:], b[:n])
	}
}

func fill(b []byte, v byte) {
	if v == 0 {
		clear(b)
		return
	}
	if len(b) > 0 {
		b[0] = v
		repeat(b, 1)
	}
}

// size64 reads an integer at b's beginning; n is 0 if there is none.
func size64(b []byte) (v int64, n int) {
	for n < len(b) && n < 9 {
		c := b[n]
		n++
		v = v<<7 | int64(c&0x7f)
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// pieces reads the bytes of a section through a small buffer.
type pieces struct {
	r    io.Reader
	fix  func(error) error // adds to an error of r where it comes from
	left int64             // not yet in buf
	buf  []byte
	i, n int
}

// rest returns the number of bytes that were not read.
func (p *pieces) rest() int64 { return p.left + int64(p.n-p.i) }

func (p *pieces) ReadByte() (byte, error) {
	if p.i == p.n {
		if p.left == 0 {
			return 0, fmt.Errorf("%w: address section ends early", ErrCorrupt)
		}
		p.i, p.n = 0, 0
		n := int(min(p.left, int64(len(p.buf))))
		if _, err := io.ReadFull(p.r, p.buf[:n]); err != nil {
			return 0, p.fix(err)
		}
		p.n = n
		p.left -= int64(n)
	}
	b := p.buf[p.i]
	p.i++
	return b, nil
}
