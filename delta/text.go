package delta

// text models bytes that come one after the other: names, new code, new text.
// Its contexts are hashes that the caller makes, usually of the last bytes and
// of what it knows of the place, and the longest match in what came lately.
//
// A context leads to a bucket for each half of the byte, with a history of the
// last bits for each of the 15 nodes of the half; a history leads to a
// probability, which adapts.
type text struct {
	mix  *mixer
	n    int
	tab  [][]byte // buckets of 16: a check, then the nodes' histories
	mask uint32
	hmap [maxOrders]*[256]prob // by order: what a history says
	hist []byte                // ring of past bytes
	pos  uint32
	head []uint32 // where a hash of the last bytes was seen
	ptr  uint32   // the match: the next predicted byte is hist[ptr]; 0 is none
	run  uint32   // its length so far
	mp   []prob   // confidence in the match by its length and bit
	ctx  [maxOrders]uint32
	cell [maxOrders]*[16]byte
	none prob // of no match
}

const (
	matchMin  = 4
	headBits  = 15
	maxOrders = 8
)

// newText makes a model of n contexts with 1<<bits buckets each, a ring of
// 1<<histBits bytes, and so many sets of weights.
func newText(n, bits, histBits, sets int) *text {
	t := &text{
		mix:  newMixer(n+1, sets*3*256, 10, 250),
		n:    n,
		mask: 1<<bits - 1,
		hist: make([]byte, 1<<histBits),
		head: make([]uint32, 1<<headBits),
		mp:   fresh(64 * 2),
		pos:  1,
	}
	for k := range n {
		t.tab = append(t.tab, make([]byte, 16<<bits))
		m := (*[256]prob)(fresh(256))
		// A history of ones only says one, and so on, to begin with.
		for h := 2; h < 256; h++ {
			ones, all := 0, 0
			for x := h; x > 1; x >>= 1 {
				ones += x & 1
				all++
			}
			p := (uint32(ones)*2 + 1) << 21 / uint32(2*all+2)
			m[h] = prob(p<<10 | 6)
		}
		t.hmap[k] = m
	}
	return t
}

func (t *text) at(back uint32) uint32 {
	return uint32(t.hist[(t.pos-back)&uint32(len(t.hist)-1)])
}

// expected is the byte that the match predicts, and a bit above it; 0 is none.
func (t *text) expected() uint32 {
	if t.ptr == 0 {
		return 0
	}
	return uint32(t.hist[t.ptr&uint32(len(t.hist)-1)]) | 256
}

// see takes a byte into the history without coding it.
func (t *text) see(b byte) {
	ring := uint32(len(t.hist) - 1)
	t.hist[t.pos&ring] = b
	t.pos++
	if t.ptr != 0 && t.hist[t.ptr&ring] == b {
		t.ptr++
		t.run = min(t.run+1, 63)
	} else {
		t.ptr, t.run = 0, 0
	}
	h := (t.at(1) | t.at(2)<<8 | t.at(3)<<16 | t.at(4)<<24) * 0x9e3779b1 >> (32 - headBits)
	if t.ptr == 0 {
		if p := t.head[h]; p != 0 && t.pos-p < ring {
			n := uint32(0)
			for n < 32 && uint32(t.hist[(p-1-n)&ring]) == t.at(1+n) {
				n++
			}
			if n >= matchMin {
				t.ptr, t.run = p, n
			}
		}
	}
	t.head[h] = t.pos
}

// byte codes one byte with contexts for prose: the last bytes, and two numbers
// that the caller knows. It takes six contexts.
func (t *text) byte(c *coder, v byte, a, b uint32) byte {
	c1, c2, c3, c4 := t.at(1), t.at(2), t.at(3), t.at(4)
	x := &t.ctx
	x[0] = a * 0x2f0b4c47
	x[1] = c1 | a<<8 | 1<<30
	x[2] = (c1|c2<<8)*0x85ebca6b + a
	x[3] = (c1|c2<<8|c3<<16)*0xc2b2ae35 + 0x1234
	x[4] = (c1|c2<<8|c3<<16|c4<<24)*0x27d4eb2f + 0x777
	x[5] = (b+1)*0x165667b1 + a*0x3c6ef35f
	return t.code(c, v, 0)
}

// find makes the cells those of the contexts and of the half byte so far.
func (t *text) find(half uint32) {
	for k := range t.n {
		h := (t.ctx[k] + half*0x3c6ef372) * 0x9e3779b1
		h ^= h >> 15
		h *= 0x85ebca6b
		check := byte(h>>24) | 1
		i := h >> 2 & t.mask
		tab := t.tab[k]
		a := (*[16]byte)(tab[i<<4:])
		if a[0] == check {
			t.cell[k] = a
			continue
		}
		b := (*[16]byte)(tab[(i^1)<<4:])
		if b[0] != check {
			// The one whose first node has seen less gives way.
			if a[1] < b[1] {
				b = a
			}
			*b = [16]byte{check}
		}
		t.cell[k] = b
	}
}

// code codes one byte with the contexts in ctx, the weights chosen also by
// set.
func (t *text) code(c *coder, v byte, set int) byte {
	expect := int(t.expected())
	// Of each set there are three: without a match, with one, and with a long one.
	set *= 3
	m := t.mix
	n := t.n
	at := 1
	for i := 7; i >= 0; i-- {
		if i == 7 || i == 3 {
			half := uint32(0)
			if i == 3 {
				half = uint32(at)
			}
			t.find(half)
		}
		node := at
		if i < 4 {
			node = at&(1<<(3-i)-1) | 1<<(3-i)
		}
		for k, cell := range t.cell[:n] {
			m.slot[k] = &t.hmap[k][max(cell[node&15], 1)]
		}
		s := set
		if expect>>(i+1) == at {
			m.slot[n] = &t.mp[t.run<<1|uint32(expect>>i&1)]
			s = set + 1
			if t.run > 15 {
				s = set + 2
			}
		} else {
			t.none = freshProb
			m.slot[n] = &t.none
			expect = 0
		}
		bit := m.bit(c, s<<8|at, int(v>>i&1))
		for _, cell := range t.cell[:n] {
			h := max(uint32(cell[node&15]), 1)<<1 | uint32(bit)
			if h > 255 {
				h = h&127 | 128
			}
			cell[node&15] = byte(h)
		}
		at = at<<1 | bit
	}
	t.see(byte(at))
	return byte(at)
}
