package delta

import "github.com/mender-app/mender-app/delta/elf"

// fieldModel codes where predicted fields are wrong.
type fieldModel struct {
	mix    *mixer
	tab    [3][]prob
	hist   [elf.NumKinds]uint32
	all    uint32
	number [elf.NumKinds]prob
	which  [elf.NumKinds][4]prob
	last   [elf.NumKinds][3]int64
	step   [elf.NumKinds]*number
}

func newFieldModel() *fieldModel {
	m := &fieldModel{mix: newMixer(3, int(elf.NumKinds), 6, 200)}
	m.tab[0] = fresh(int(elf.NumKinds) << 11)
	m.tab[1] = fresh(1 << wordBits)
	m.tab[2] = fresh(int(elf.NumKinds) << 11)
	for k := range m.step {
		m.number[k] = freshProb
		copy(m.which[k][:], fresh(4))
		m.step[k] = newNumber()
	}
	return m
}

// wordModel codes words of up to four bytes of which the old ones are known.
type wordModel struct {
	mix   *mixer
	tab   [flagInputs][]prob
	last  uint32 // the last word that changed: old
	lastN uint32 // and new
	hist  uint32 // of changed words
	bytes *mixer
	btab  [byteInputs][]prob
}

const (
	wordBits   = 16
	flagInputs = 5
	byteInputs = 7
)

func newWordModel() *wordModel {
	m := &wordModel{mix: newMixer(flagInputs, 3*16, 6, 200), bytes: newMixer(byteInputs, 4*256, 6, 200)}
	for i := range m.tab {
		m.tab[i] = fresh(1 << wordBits)
	}
	for i := range m.btab {
		m.btab[i] = fresh(1 << wordBits)
	}
	return m
}

func hash32(v uint32, bits uint) uint32 { return v * 0x9e3779b1 >> (32 - bits) }

// near is what surrounds a word: the four bytes before it, old and new, and the
// two old ones behind it.
type near struct{ old, new, next uint32 }

func (m *wordModel) code(c *coder, old, new []byte, q int64, n near) {
	var o, v uint32
	for i := range old {
		o |= uint32(old[i]) << (8 * i)
		v |= uint32(new[i]) << (8 * i)
	}
	size := uint32(len(old))
	mx := m.mix
	mx.slot[0] = &m.tab[0][m.hist&0xff|uint32(q&63)>>1<<8|size>>1<<13]
	mx.slot[1] = &m.tab[1][hash32(o+size, wordBits)]
	mx.slot[2] = &m.tab[2][hash32(o>>(4*size)|m.hist<<24|size<<20, wordBits)]
	mx.slot[3] = &m.tab[3][hash32(o*0x2f0b4c47+n.old>>16+size, wordBits)]
	same := uint32(0)
	if n.old == n.new {
		same = 1
	}
	mx.slot[4] = &m.tab[4][hash32(o*0x3c6ef35f+n.next+same<<30, wordBits)]
	bit := 0
	if o != v {
		bit = 1
	}
	bit = mx.bit(c, int(m.hist&15|size>>1<<4), bit)
	m.hist = m.hist<<1 | uint32(bit)
	if bit == 0 {
		copy(new, old)
		return
	}
	var got uint32
	differs := uint32(0)
	bx := m.bytes
	for i := range old {
		ob := uint32(old[i])
		base := uint32(i)<<8 | ob | size<<10
		ctx := [byteInputs]uint32{
			base | differs<<14,
			(o*31+got+uint32(i))*0x9e3779b1 + size,
			hash32(base|m.last>>(8*i)&255<<16|differs<<24, 32) + m.lastN>>(8*i)&255*0x9e3779b1,
			hash32(base|n.new>>24<<16, 32) + 77,
			hash32(got<<2|uint32(i), 32) + differs*0x1234567,
			(o*0x85ebca6b+got*0xc2b2ae35+n.new>>16)*0x9e3779b1 + uint32(i),
			(base<<16|n.old>>16)*0x27d4eb2f + got*0x165667b1 + n.next,
		}
		at := uint32(1)
		// The byte as a difference: zero is the likeliest.
		d := v>>(8*i)&255 - ob
		for k := 7; k >= 0; k-- {
			for x := range ctx {
				bx.slot[x] = &m.btab[x][(ctx[x]+at*0x9e3779b1>>8)&(1<<wordBits-1)]
			}
			at = at<<1 | uint32(bx.bit(c, i<<8|int(at), int(d>>k&1)))
		}
		b := byte(at + ob)
		new[i] = b
		got |= uint32(b) << (8 * i)
		if at&255 != 0 {
			differs = 1
		}
	}
	m.last, m.lastN = o, got
}
