package model

// ByteModel models sequences of bytes: names, new code, new text. Its contexts are
// hashes that the caller makes, usually of the last bytes and of what it knows about
// the place, and the longest match with recent bytes.
//
// A context selects a bucket for each half of the byte. A bucket has a history of
// the last bits for each of the 15 nodes of the half. A history selects an adaptive
// probability.
type ByteModel struct {
	mix       *mixer
	n         int
	mask      int                 // the number of each context's buckets, less one
	tab       []bucket            // by context
	probs     [orders][256]uint16 // by context: the probability for a history, out of 65536
	hist      []byte              // ring of past bytes
	pos       uint32
	head      []uint32 // where a hash of the last bytes was seen; a quarter of hist's length
	headShift uint     // shift from a hash to its index in head
	ptr       uint32   // the match: the next predicted byte is hist[ptr]; 0 is none
	run       uint32   // the match's length so far
	mp        []Prob   // confidence in the match, by its length and bit
	Contexts  [maxOrders]uint32
	none      Prob // for no match
}

const (
	matchMin  = 4
	maxOrders = maxInputs - 1 // the match is an input, too

	// An index below 8 that is masked needs no check of an array of that size.
	orders    = 8
	orderMask = orders - 1
)

// bucket has a check, then the nodes' histories.
type bucket [16]byte

// unseen is a bucket whose nodes have no history.
var unseen = bucket{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

// NewByteModel makes a model of n contexts with 1<<bits buckets each, a ring of
// 1<<histBits bytes, and a number of sets of weights. bits is at least 6.
func NewByteModel(n, bits, histBits, sets int) *ByteModel {
	t := &ByteModel{
		mix:       newMixer(n+1, sets*3*256, 256*8, 256),
		n:         n,
		mask:      1<<bits - 1,
		tab:       make([]bucket, n<<bits),
		hist:      make([]byte, 1<<histBits),
		head:      make([]uint32, 1<<(histBits-2)),
		headShift: 32 - uint(histBits-2),
		mp:        FreshProbs(64 * 2),
		pos:       1,
	}
	t.tab[0] = unseen
	for i := 1; i < len(t.tab); i *= 2 {
		copy(t.tab[i:], t.tab[:i])
	}
	for k := range n {
		// At first, a history of ones predicts a one, and so on.
		for h := 2; h < 256; h++ {
			ones, all := 0, 0
			for x := h; x > 1; x >>= 1 {
				ones += x & 1
				all++
			}
			t.probs[k][h] = uint16((ones*2 + 1) << 15 / (all + 1))
		}
		t.probs[k][1] = 1 << 15
	}
	return t
}

// At returns an earlier byte; 1 is the last one.
func (t *ByteModel) At(back uint32) uint32 {
	return uint32(t.hist[(t.pos-back)&uint32(len(t.hist)-1)])
}

// Expected returns the byte that the match predicts, with bit 8 set; 0 if there is
// no match.
func (t *ByteModel) Expected() uint32 {
	if t.ptr == 0 {
		return 0
	}
	return uint32(t.hist[t.ptr&uint32(len(t.hist)-1)]) | 256
}

// See adds a byte to the history without coding it.
func (t *ByteModel) See(b byte) {
	ring := uint32(len(t.hist) - 1)
	t.hist[t.pos&ring] = b
	t.pos++
	if t.ptr != 0 && t.hist[t.ptr&ring] == b {
		t.ptr++
		t.run = min(t.run+1, 63)
	} else {
		t.ptr, t.run = 0, 0
	}
	h := (t.At(1) | t.At(2)<<8 | t.At(3)<<16 | t.At(4)<<24) * 0x9e3779b1 >> t.headShift
	if t.ptr == 0 {
		if p := t.head[h]; p != 0 && t.pos-p < ring {
			n := uint32(0)
			for n < 32 && uint32(t.hist[(p-1-n)&ring]) == t.At(1+n) {
				n++
			}
			if n >= matchMin {
				t.ptr, t.run = p, n
			}
		}
	}
	t.head[h] = t.pos
}

// Byte codes one byte with contexts for prose: the last bytes, and two numbers
// that the caller knows. It takes six contexts.
func (t *ByteModel) Byte(c *Coder, v byte, a, b uint32) byte {
	c1, c2, c3, c4 := t.At(1), t.At(2), t.At(3), t.At(4)
	x := &t.Contexts
	x[0] = a * 0x2f0b4c47
	x[1] = c1 | a<<8 | 1<<30
	x[2] = (c1|c2<<8)*0x85ebca6b + a
	x[3] = (c1|c2<<8|c3<<16)*0xc2b2ae35 + 0x1234
	x[4] = (c1|c2<<8|c3<<16|c4<<24)*0x27d4eb2f + 0x777
	x[5] = (b+1)*0x165667b1 + a*0x3c6ef35f
	return t.Code(c, v, 0, true)
}

// cells are the buckets of each context.
type cells [orders]*bucket

// find sets the cells for the contexts and the half byte so far. Both halves of a
// byte lie within 1 KiB of each other, which saves an address translation. All cells
// are requested before the first is read: most are not in the processor's caches,
// and waiting for them together made decoding 5 % faster.
func (t *ByteModel) find(half int, cells *cells) {
	var check, there [orders]byte
	var at [orders]int
	base, part, salt := 0, half<<1&62, byte(half*29)
	for k, h := range t.Contexts[:t.n] {
		h *= 0x9e3779b1
		h ^= h >> 15
		h *= 0x85ebca6b
		check[k&orderMask] = byte(h>>24) + salt | 1
		i := base + (int(h>>2)&t.mask ^ part)
		at[k&orderMask], there[k&orderMask] = i, t.tab[i][0]
		base += t.mask + 1
	}
	for k, i := range at[:t.n] {
		a := &t.tab[i]
		if check := check[k&orderMask]; there[k&orderMask] != check {
			b := &t.tab[i^1]
			// Replace the one whose first node has seen less.
			if b[0] != check && a[1] < b[1] {
				*a = unseen
				a[0] = check
			} else {
				if b[0] != check {
					*b = unseen
					b[0] = check
				}
				a = b
			}
		}
		cells[k&orderMask] = a
	}
}

// seen is, by a history and one more bit, the history with that bit, which replaces
// the oldest. A 1 stands above the bits, so the history of a node that saw nothing is 1.
var seen = func() (t [512]byte) {
	for h := range t {
		t[h] = byte(h)
		if h > 255 {
			t[h] = byte(h&127 | 128)
		}
	}
	return t
}()

// Code codes one byte with the contexts in Contexts. set also chooses the weights, and
// if alike is set, so does the byte before.
func (t *ByteModel) Code(c *Coder, v byte, set int, alike bool) byte {
	expect := int(t.Expected())
	last := 0
	if alike {
		last = int(t.At(1)) << 3
	}
	m := t.mix
	n := t.n
	var was [orders]byte
	var cells cells
	at := 1
	for half := range 2 {
		t.find(at, &cells)
		node := 1
		for i := 7 - 4*half; i >= 4-4*half; i-- {
			for k, cell := range cells[:n] {
				h := cell[node&15]
				was[k&orderMask] = h
				m.in[k&orderMask] = int32(stretchTab[t.probs[k&orderMask][h]>>4])
			}
			// Each set has three variants: without a match, with one, and with a long one.
			s := set * 3
			match := &t.none
			if expect>>(i+1) == at {
				match = &t.mp[t.run<<1|uint32(expect>>i&1)]
				s++
				if t.run > 15 {
					s++
				}
			} else {
				t.none = FreshProb
				expect = 0
			}
			m.in[n&orderMask] = int32(stretchTab[*match>>20])
			bit := c.Code(m.mix(s<<8|at, last|i, at), int(v>>i&1))
			m.learn(bit)
			match.update(bit, 250)
			aim := int32(-bit) & 0xffff
			for k, cell := range cells[:n] {
				h := was[k&orderMask]
				p := &t.probs[k&orderMask][h]
				*p += uint16((aim - int32(*p)) >> 7)
				cell[node&15] = seen[int(h)<<1|bit&1]
			}
			node = node<<1 | bit
			at = at<<1 | bit
		}
	}
	t.See(byte(at))
	return byte(at)
}

// Learn adds a byte to the histories of its contexts. Training the whole model, as
// coding the byte does, took 8 % more time for decoding two pairs of images, and
// saved 0.2 % of their deltas' sizes.
func (t *ByteModel) Learn(v byte) {
	var cells cells
	at := 1
	for half := range 2 {
		t.find(at, &cells)
		node := 1
		for i := 7 - 4*half; i >= 4-4*half; i-- {
			bit := int(v >> i & 1)
			for _, cell := range cells[:t.n] {
				cell[node&15] = seen[int(cell[node&15])<<1|bit&1]
			}
			node = node<<1 | bit
			at = at<<1 | bit
		}
	}
	t.See(v)
}
