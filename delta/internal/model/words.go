package model

// WordModel codes words of up to four bytes, given the old words: whether a word
// changed, and if so which of its bytes did, and how much each differs from the old
// one.
type WordModel struct {
	flag  *FlagModel // of words
	zero  *FlagModel // of bytes in words that changed
	bytes *ByteModel
	last  uint32 // the last word that changed: old
	lastN uint32 // and new
	hist  uint32 // of changed words
}

// NewWordModel makes tables that fit into a processor's caches: larger ones make deltas
// smaller by less than they make decoding longer.
func NewWordModel() *WordModel {
	return &WordModel{
		flag:  NewFlagModel(7, 14, 3*16, 256),
		zero:  NewFlagModel(6, 12, 4*4*2, 256),
		bytes: NewByteModel(12, 16, 2),
	}
}

// Near has the bytes around a word: the four before it, old and new, and the two
// old ones after it.
type Near struct{ Old, New, Next uint32 }

func (m *WordModel) Code(c *Coder, old, new []byte, n Near) {
	var o uint32
	for i := range old {
		o |= uint32(old[i]) << (8 * i)
	}
	bit := 0
	if string(old) != string(new) {
		bit = 1
	}
	bit = m.changed(c, o, uint32(len(old)), n, bit)
	m.hist = m.hist<<1 | uint32(bit)
	if bit == 0 {
		copy(new, old)
		return
	}
	m.differences(c, o, old, new, n)
}

// changed codes whether the old word o of size bytes changed.
func (m *WordModel) changed(c *Coder, o, size uint32, n Near, bit int) int {
	same := uint32(0)
	if n.New == n.Old {
		same = 1 << 30
	}
	h := m.hist
	x := Contexts{
		n.Next*0x85ebca6b + h&15,
		o*0x85ebca6b + h&1,
		o>>16<<16 | n.Old>>16 + 77,
		n.Next,
		(m.lastN-m.last)*0x85ebca6b + o&255 + same,
		o>>16<<4 | h&3 + same,
		(n.New-n.Old)*4 + h&3,
	}
	return m.flag.Code(c, &x, int(h&15|size>>1<<4), int(o>>(8*size-8)&255), bit)
}

// differences codes the bytes of a word that changed.
func (m *WordModel) differences(c *Coder, o uint32, old, new []byte, n Near) {
	const k1, k2, k3 = 0x9e3779b1, 0x85ebca6b, 0xc2b2ae35
	step := m.lastN - m.last       // what was added to the last changed word
	moved := n.New>>24 - n.Old>>24 // and to the byte before this word
	var got uint32                 // the new word so far
	var before uint32              // what was added to the byte before
	differs := uint32(0)           // 1 once a byte of this word does
	for i := range old {
		shift := 8 * uint(i)
		ob := uint32(old[i])
		at := (uint32(i) | uint32(len(old))<<2) * k1
		sofar := got - o&(1<<shift-1)
		x := Contexts{
			at + (ob | differs<<8),
			(at+step)*k2 + sofar,
			(at+o>>shift&0xffff)*k2 + before,
			(at+got)*k2 + differs,
			at + (before | moved<<8 | differs<<16),
			((at+o)*k2+got)*k3 + n.New>>16,
		}
		changed := 1
		if differs != 0 || i < len(old)-1 {
			if new[i] == old[i] {
				changed = 0
			}
			changed = m.zero.Code(c, &x, i|(len(old)-1)<<2|int(differs)<<4, int(before), changed)
		}
		d := byte(0)
		if changed != 0 {
			copy(m.bytes.Contexts[:], x[:])
			m.bytes.Contexts[5] = ((at+got)*k2 + n.New>>16 + 99) * k3
			d = m.bytes.Code(c, new[i]-old[i], int(differs), false)
			differs = 1
		}
		new[i] = old[i] + d
		got |= uint32(new[i]) << shift
		before = uint32(d)
	}
	m.last, m.lastN = o, got
}
