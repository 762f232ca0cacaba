package branch

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// convert converts a part of one piece.
func convert(k Kind, b []byte, pos uint32, back bool) {
	var c Converter
	c.Begin(k, int64(len(b)))
	c.Convert(b, pos, back)
}

// Any bytes come back, wherever they begin.
func TestConvertBack(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for k := range NumKinds {
		for n := range 2000 {
			n %= 300
			b := make([]byte, n)
			r.Read(b)
			if r.Intn(2) == 0 { // many that look like branches
				for i := range b {
					b[i] = []byte{0xe8, 0xe9, 0x0f, 0x84, 0x8d, 0x05, 0xff, 0x00, 0xf0, 0xf8, 0xf7, 0x94, 0x90, 0xeb, 0x01, 0xfe}[b[i]&15]
				}
			}
			pos := r.Uint32() >> (n % 32)
			got := bytes.Clone(b)
			convert(k, got, pos, false)
			convert(k, got, pos, true)
			require.Equal(t, b, got, "kind %d, %d bytes at %d", k, n, pos)
		}
	}
}

// Two calls of one function become the same bytes.
func TestConvertCalls(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		second int // where
		b      []byte
	}{
		{A32, 8, []byte{0x10, 0, 0, 0xeb, 0, 0, 0, 0, 0x0e, 0, 0, 0xeb}},
		{Thumb, 6, []byte{0x00, 0xf0, 0x10, 0xf8, 0, 0xbf, 0x00, 0xf0, 0x0d, 0xf8}},
		{Thumb, 6, []byte{0xff, 0xf7, 0x10, 0xff, 0, 0xbf, 0xff, 0xf7, 0x0d, 0xff}},
		{A64, 8, []byte{0x10, 0, 0, 0x94, 0, 0, 0, 0, 0x0e, 0, 0, 0x94}},
		{X86, 6, []byte{0xe8, 0x10, 0, 0, 0, 0x90, 0xe8, 0x0a, 0, 0, 0, 0x90}},
	} {
		convert(c.kind, c.b, 0x1000, false)
		n := 4
		if c.kind == X86 {
			n = 5
		}
		require.Equal(t, c.b[:n], c.b[c.second:][:n], "kind %d", c.kind)
	}
	b := []byte{1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0}
	convert(Pairs, b, 0, false)
	require.Equal(t, []byte{1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0}, b)
}
