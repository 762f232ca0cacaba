package tarheader

import (
	"bytes"
	"io"
)

// A Member is one member of a tar.
type Member struct {
	Header
	Raw []byte // header blocks, valid until the next call
	Off int64  // of the content
}

// A Walk reads the headers of a tar one after the other, and skips the contents.
type Walk struct {
	r    io.ReaderAt
	size int64
	off  int64 // of the next header
	raw  []byte
}

// NewWalk returns a Walk of a tar of size bytes.
func NewWalk(r io.ReaderAt, size int64) *Walk { return &Walk{r: r, size: size} }

// End returns the offset after the last member, once Next returned io.EOF.
func (t *Walk) End() int64 { return t.off }

// Next returns the next member, and io.EOF after the last with padding. Any other error says
// that the rest of the tar does not parse.
func (t *Walk) Next() (Member, error) {
	var m Member
	t.raw = t.raw[:0]
	for {
		n, err := m.Next(t.raw)
		if err != nil {
			return m, err
		}
		if n == 0 {
			break
		}
		have := len(t.raw)
		if t.off+int64(have)+int64(n) > t.size || have+n > MaxBlocks {
			if have == 0 {
				return m, io.EOF
			}
			return m, ErrHeader
		}
		t.raw = append(t.raw, make([]byte, n)...)
		if k, err := t.r.ReadAt(t.raw[have:], t.off+int64(have)); k < n {
			return m, err
		}
		if have == 0 && bytes.Count(t.raw, []byte{0}) == Block {
			return m, io.EOF
		}
		if have == 0 {
			if v, ok := tarNumber(t.raw[148:156]); !ok || int(v) != tarSum(t.raw) {
				return m, ErrHeader
			}
		}
	}
	m.Raw = t.raw
	m.Off = t.off + int64(len(t.raw))
	pad := -m.Size & (Block - 1)
	if m.Size > t.size-m.Off {
		return m, ErrHeader
	}
	if m.Off+m.Size+pad > t.size {
		// Some writers (umoci 0.4) end with the content of the last member. It counts
		// as what follows the last member.
		return m, io.EOF
	}
	t.off = m.Off + m.Size + pad
	return m, nil
}
