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
	mask      uint32 // the number of each context's buckets, less one
	tab       []bucket
	probs     [byteContexts][256]uint16 // by context: the probability for a history, out of 65536
	hist      []byte                    // ring of past bytes
	pos       uint32
	head      []uint32 // by a hash of four bytes, where they were last; a quarter of hist's length
	headShift uint     // from a hash to its index in head
	ptr       uint32   // the match: the next predicted byte is hist[ptr]; 0 is none
	run       uint32   // the match's length so far
	mp        []Prob   // confidence in the match, by its length and bit
	Contexts  [byteContexts]uint32
	places    [byteContexts]place
	none      Prob // for no match
}

const (
	matchMin = 4

	// byteContexts is how many contexts a ByteModel has. Its code has no loops over
	// them: with these, decoding took 8 % more instructions.
	byteContexts = 6

	// historyRate is how slowly the probabilities of histories adapt.
	historyRate = 7
)

// bucket has a check, then the nodes' histories.
type bucket [16]byte

// place is where a context's buckets are, and what their checks are made of.
type place struct {
	at    uint32
	check uint32
}

// unseen is a bucket whose nodes have no history.
var unseen = bucket{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

// NewByteModel makes a model with 1<<bits buckets for each context, a ring of
// 1<<histBits bytes, and a number of sets of weights. bits is at least 6.
func NewByteModel(bits, histBits, sets int) *ByteModel {
	t := &ByteModel{
		mix:       newMixer(byteContexts+1, sets*3*32, 256*8, 256),
		mask:      1<<bits - 1,
		tab:       make([]bucket, byteContexts<<bits),
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
	for k := range t.probs {
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
	// What does not choose the slot of the hash is kept there with the place: most
	// places need not be looked at, which are not in the processor's caches.
	h := (t.At(1) | t.At(2)<<8 | t.At(3)<<16 | t.At(4)<<24) * 0x9e3779b1
	slot := &t.head[h>>(t.headShift&31)]
	check := h << (-t.headShift & 31) &^ ring
	if e := *slot; t.ptr == 0 && e != 0 && e&^ring == check {
		if back := (t.pos - e) & ring; back > 0 {
			n, p := uint32(0), t.pos-back
			for n < 32 && uint32(t.hist[(p-1-n)&ring]) == t.At(1+n) {
				n++
			}
			if n >= matchMin {
				t.ptr, t.run = p, n
			}
		}
	}
	*slot = check | t.pos&ring
}

// Byte codes one byte with contexts for prose: the last bytes, and two numbers
// that the caller knows.
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

// locate finds the places of the contexts' buckets.
func (t *ByteModel) locate() {
	base := uint32(0)
	for k, h := range t.Contexts {
		h *= 0x9e3779b1
		h ^= h >> 15
		h *= 0x85ebca6b
		t.places[k] = place{base + h>>2&t.mask, h >> 24}
		base += t.mask + 1
	}
}

// cells are the buckets of each context.
type cells struct{ a, b, c, d, e, f *bucket }

// find sets the cells for the half byte so far. Both halves of a byte lie within 1 KiB
// of each other, which saves an address translation. All cells are requested before the
// first is read: most are not in the processor's caches, and waiting for them together
// made decoding 5 % faster.
func (t *ByteModel) find(half int, cells *cells) {
	part, salt := uint32(half)<<1&62, uint32(half)*29
	p := &t.places
	a, b, c := &t.tab[p[0].at^part], &t.tab[p[1].at^part], &t.tab[p[2].at^part]
	d, e, f := &t.tab[p[3].at^part], &t.tab[p[4].at^part], &t.tab[p[5].at^part]
	ca, cb, cc, cd, ce, cf := a[0], b[0], c[0], d[0], e[0], f[0]
	if check := byte(p[0].check+salt) | 1; ca != check {
		a = t.other(a, p[0].at^part^1, check)
	}
	if check := byte(p[1].check+salt) | 1; cb != check {
		b = t.other(b, p[1].at^part^1, check)
	}
	if check := byte(p[2].check+salt) | 1; cc != check {
		c = t.other(c, p[2].at^part^1, check)
	}
	if check := byte(p[3].check+salt) | 1; cd != check {
		d = t.other(d, p[3].at^part^1, check)
	}
	if check := byte(p[4].check+salt) | 1; ce != check {
		e = t.other(e, p[4].at^part^1, check)
	}
	if check := byte(p[5].check+salt) | 1; cf != check {
		f = t.other(f, p[5].at^part^1, check)
	}
	cells.a, cells.b, cells.c, cells.d, cells.e, cells.f = a, b, c, d, e, f
}

// other returns the bucket for a check that a does not have: the one beside it at an
// index, or a new one in place of that of the two whose first node has seen less.
func (t *ByteModel) other(a *bucket, beside uint32, check byte) *bucket {
	b := &t.tab[beside]
	if b[0] == check {
		return b
	}
	if a[1] >= b[1] {
		a = b
	}
	*a = unseen
	a[0] = check
	return a
}

// Code codes one byte with the contexts in Contexts. set also chooses the weights, and
// if alike is set, so does the byte before.
func (t *ByteModel) Code(c *Coder, v byte, set int, alike bool) byte {
	expect := int(t.Expected())
	last := 0
	if alike {
		last = int(t.At(1)) << 3
	}
	m := t.mix
	t.locate()
	var x cells
	at := 1
	for half := range 2 {
		t.find(at, &x)
		node := 1
		for i := 7 - 4*half; i >= 4-4*half; i-- {
			n := node & 15
			ha, hb, hc, hd, he, hf := x.a[n], x.b[n], x.c[n], x.d[n], x.e[n], x.f[n]
			m.in[0] = stretch(t.probs[0][ha])
			m.in[1] = stretch(t.probs[1][hb])
			m.in[2] = stretch(t.probs[2][hc])
			m.in[3] = stretch(t.probs[3][hd])
			m.in[4] = stretch(t.probs[4][he])
			m.in[5] = stretch(t.probs[5][hf])
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
			m.in[6] = int32(stretchTab[*match>>20])
			bit := m.code(c, s<<5|half<<4|node, last|i, at, int(v>>i&1))
			match.update(bit, 250)
			adapt(&t.probs[0][ha], bit, historyRate)
			adapt(&t.probs[1][hb], bit, historyRate)
			adapt(&t.probs[2][hc], bit, historyRate)
			adapt(&t.probs[3][hd], bit, historyRate)
			adapt(&t.probs[4][he], bit, historyRate)
			adapt(&t.probs[5][hf], bit, historyRate)
			x.a[n] = then(ha, bit)
			x.b[n] = then(hb, bit)
			x.c[n] = then(hc, bit)
			x.d[n] = then(hd, bit)
			x.e[n] = then(he, bit)
			x.f[n] = then(hf, bit)
			node = node<<1 | bit
			at = at<<1 | bit
		}
	}
	t.See(byte(at))
	return byte(at)
}

// then is the history h with one more bit, which replaces the oldest. A 1 stands above
// the bits, so the history of a node that saw nothing is 1.
func then(h byte, bit int) byte { return h<<1 | byte(bit) | h&128 }

// Learn adds a byte to the histories of its contexts. Training the whole model, as
// coding the byte does, took 8 % more time for decoding two pairs of images, and
// saved 0.2 % of their deltas' sizes.
func (t *ByteModel) Learn(v byte) {
	t.locate()
	var x cells
	at := 1
	for half := range 2 {
		t.find(at, &x)
		node := 1
		for i := 7 - 4*half; i >= 4-4*half; i-- {
			bit := int(v >> i & 1)
			n := node & 15
			x.a[n] = then(x.a[n], bit)
			x.b[n] = then(x.b[n], bit)
			x.c[n] = then(x.c[n], bit)
			x.d[n] = then(x.d[n], bit)
			x.e[n] = then(x.e[n], bit)
			x.f[n] = then(x.f[n], bit)
			node = node<<1 | bit
			at = at<<1 | bit
		}
	}
	t.See(v)
}
