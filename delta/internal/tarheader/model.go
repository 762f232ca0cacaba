package tarheader

import (
	"bytes"
	"fmt"

	"github.com/mender-app/mender-app/delta/internal/model"
)

// A Model codes the header blocks of tar members against those of an old member (at
// the same place in the tree) or of the member before.
type Model struct {
	whole  [2]model.Prob // all blocks equal the reference's; by kind of reference
	ext    [2]model.Prob // the blocks before the main header do
	blocks *model.UintModel
	choice [3][len(fields)][2][4][4]model.Prob // class, field, reference, last choice
	length []*model.UintModel
	tail   model.Prob
	text   *model.ByteModel
	last   [3][Block]byte // what each field was last set to, by class
	chose  [3][len(fields)]uint8
	prev   []byte // the member before
	out    []byte
}

var zeros [Block]byte

// fields are the parts of a header block; the checksum, which follows from the
// others, comes last.
var fields = [...][2]int{
	{0, 100}, {100, 108}, {108, 116}, {116, 124}, {124, 136}, {136, 148},
	{156, 157}, {157, 257}, {257, 265}, {265, 297}, {297, 329}, {329, 337},
	{337, 345}, {345, 500}, {500, 512}, {148, 156},
}

const (
	fromRef = iota
	fromLast
	computed
	explicit
)

const (
	mainHeader = iota
	extHeader  // of a pax or GNU block
	extBody
)

func NewModel() *Model {
	m := &Model{
		blocks: model.NewUintModel(),
		length: model.NewUintModels(len(fields)),
		text:   model.NewByteModel(12, 16, 1),
		tail:   model.FreshProb,
	}
	for i := range m.whole {
		m.whole[i], m.ext[i] = model.FreshProb, model.FreshProb
	}
	for a := range m.choice {
		for b := range m.choice[a] {
			for c := range m.choice[a][b] {
				for d := range m.choice[a][b][c] {
					for e := range m.choice[a][b][c][d] {
						m.choice[a][b][c][d][e] = model.FreshProb
					}
				}
			}
		}
	}
	return m
}

// Begin starts a new object.
func (m *Model) Begin() { m.prev = append(m.prev[:0], make([]byte, Block)...) }

// Code codes raw, all the blocks of one member, against ref; a nil ref means the
// member before. It returns the blocks, which are valid until the next call. Its
// errors wrap ErrHeader.
func (m *Model) Code(c *model.Coder, raw, ref []byte) ([]byte, error) {
	k := 0
	if ref == nil {
		k, ref = 1, m.prev
	}
	if c.Flag(&m.whole[k], c.Encoding && bytes.Equal(raw, ref)) {
		m.prev = append(m.prev[:0], ref...)
		return m.prev, nil
	}
	// The main header of the reference; sparse blocks may follow it.
	var rm Header
	re := len(ref) - Block
	if n, err := rm.Next(ref); n == 0 && err == nil {
		re = rm.ext
	}
	out := m.out[:0]
	var em Header
	if c.Encoding {
		if n, err := em.Next(raw); n != 0 || err != nil {
			return nil, ErrHeader
		}
	}
	if c.Flag(&m.ext[k], c.Encoding && em.ext == re && bytes.Equal(raw[:re], ref[:re])) {
		out = append(out, ref[:re]...)
	} else {
		m.prime(ref[:re])
	}
	extBlocks := len(out)
	count := c.Uint(m.blocks, uint64(len(raw)-extBlocks)/Block)
	if count < 1 || count > MaxBlocks/Block {
		return nil, fmt.Errorf("%w: a member's header blocks are too many", ErrHeader)
	}
	n := int(count)
	ro := re
	if extBlocks == 0 {
		ro = 0
	}
	body := 0 // bytes of the pax or GNU content that follow
	for range n {
		var want []byte
		if c.Encoding {
			want = raw[len(out) : len(out)+Block]
		}
		var rb []byte
		if ro+Block <= len(ref) {
			rb = ref[ro : ro+Block]
		}
		if body > 0 {
			out = m.body(c, out, want, min(body, Block))
			body -= min(body, Block)
		} else {
			main := want
			cls := mainHeader
			if c.Encoding {
				switch main[156] {
				case 'x', 'g', 'L', 'K':
					cls = extHeader
				}
			}
			if c.Flag(&m.tail, cls == extHeader) {
				cls = extHeader
			} else if re+Block <= len(ref) {
				rb = ref[re : re+Block]
			}
			at := len(out)
			out = m.header(c, out, want, rb, cls, k)
			if cls == extHeader {
				v, ok := tarNumber(out[at+124 : at+136])
				if !ok || v > MaxBlocks {
					return nil, fmt.Errorf("%w: a member's header does not parse", ErrHeader)
				}
				body = int(v)
			} else {
				body = MaxBlocks // sparse blocks
			}
		}
		ro += Block
	}
	m.out = out
	m.prev = append(m.prev[:0], out...)
	return m.prev, nil
}

// prime trains the byte model with bytes that the next blocks will resemble.
func (m *Model) prime(b []byte) {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	if len(b) > 4096 {
		b = b[:4096]
	}
	for _, x := range b {
		m.text.See(x)
	}
}

// body codes a block of pax or GNU content, n bytes and padding.
func (m *Model) body(c *model.Coder, out, want []byte, n int) []byte {
	at := len(out)
	out = append(out, zeros[:]...)
	for i := range n {
		var v byte
		if c.Encoding {
			v = want[i]
		}
		out[at+i] = m.text.Byte(c, v, 100, 0)
	}
	if n == Block {
		return out
	}
	zero := !c.Encoding || bytes.Count(want[n:], []byte{0}) == Block-n
	if !c.Flag(&m.tail, zero) {
		for i := n; i < Block; i++ {
			var v byte
			if c.Encoding {
				v = want[i]
			}
			out[at+i] = m.text.Byte(c, v, 101, 0)
		}
	}
	return out
}

func (m *Model) header(c *model.Coder, out, want, ref []byte, cls, k int) []byte {
	if ref == nil {
		ref = m.last[cls][:]
	}
	at := len(out)
	out = append(out, zeros[:]...)
	h := out[at:]
	for f, r := range fields {
		lo, hi := r[0], r[1]
		last := m.last[cls][lo:hi]
		how := explicit
		var sum []byte
		if f == len(fields)-1 {
			sum = Checksum(h)
		}
		if c.Encoding {
			switch {
			case sum != nil && bytes.Equal(want[lo:hi], sum):
				how = computed
			case bytes.Equal(want[lo:hi], ref[lo:hi]):
				how = fromRef
			case bytes.Equal(want[lo:hi], last):
				how = fromLast
			}
		}
		how = c.Tree(m.choice[cls][f][k][m.chose[cls][f]][:], 2, how)
		m.chose[cls][f] = uint8(how)
		switch how {
		case fromRef:
			copy(h[lo:hi], ref[lo:hi])
			continue
		case fromLast:
			copy(h[lo:hi], last)
			continue
		case computed:
			copy(h[lo:hi], sum)
			continue
		}
		var w []byte
		if c.Encoding {
			w = bytes.TrimRight(want[lo:hi], "\x00")
		}
		n := int(min(c.Uint(m.length[f], uint64(len(w))), uint64(hi-lo)))
		text := f == 0 || f == 7 || f == 13
		if text {
			m.prime(ref[lo:hi])
			m.text.See(0)
		}
		for i := range n {
			var v byte
			if c.Encoding {
				v = w[i]
			}
			a := uint32(f)
			if !text {
				a = uint32(f)<<8 | uint32(i)
			}
			h[lo+i] = m.text.Byte(c, v, a, uint32(ref[lo+i]))
		}
		if text {
			m.text.See(0)
		}
		copy(last, h[lo:hi])
	}
	return out
}

// Checksum returns the checksum field of h as nearly every tar writes it.
func Checksum(h []byte) []byte {
	n := tarSum(h)
	b := []byte("000000\x00 ")
	for i := 5; i >= 0; i-- {
		b[i] = byte('0' + n&7)
		n >>= 3
	}
	return b
}
