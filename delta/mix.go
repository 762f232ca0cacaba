package delta

// Logistic mixing: several models each guess the next bit, and a small online
// learner weighs their guesses (as in the PAQ family of compressors). All of it
// is integer arithmetic, so that every machine computes the same.

const (
	maxInputs = 8
	stretchN  = 4096
)

var (
	squashTab  [stretchN]uint16 // of x-2048: 65536/(1+e^(-x/256))
	stretchTab [stretchN]int16  // its inverse, of p>>4
)

func init() {
	// e^(x/256) by a table of integers would do; this one is exact enough to be
	// the same everywhere: 65536/(1+2^(-x*1.4427/256)) in fixed point.
	for i := range squashTab {
		squashTab[i] = uint16(squash64(int64(i - stretchN/2)))
	}
	pi := 0
	for x := range squashTab {
		v := int(squashTab[x]) >> 4
		for ; pi <= v; pi++ {
			stretchTab[pi] = int16(x - stretchN/2)
		}
	}
	for ; pi < stretchN; pi++ {
		stretchTab[pi] = stretchN/2 - 1
	}
}

// squash64 computes 65536/(1+e^(-x/256)) with integers alone: e^(-|x|/256) by
// squaring the first terms of its series, in 32 fractional bits.
func squash64(x int64) int64 {
	neg := x < 0
	if neg {
		x = -x
	}
	// e^-(x/256) = (e^-(x/4096))^16; the series of a value under 0.5.
	const one = int64(1) << 30
	t := x << 30 / 4096
	e := one - t + t*t>>31 - (t*t>>30)*t/6>>30 + ((t*t>>30)*(t*t>>30)/24)>>30
	for range 4 {
		e = e * e >> 30
	}
	p := one * 65536 / (one + e) // of the likelier side
	p = min(p, 65536-16)
	if neg {
		p = 65536 - p
	}
	return p
}

// mixer weighs n inputs in one of several sets of weights.
type mixer struct {
	n     int
	w     []int32 // sets of n, 16 fractional bits
	in    [maxInputs]int32
	slot  [maxInputs]*prob
	set   []int32
	p     uint32
	rate  int32
	limit uint32
}

func newMixer(n, sets int, rate int32, limit uint32) *mixer {
	m := &mixer{n: n, w: make([]int32, n*sets), rate: rate, limit: limit}
	for i := range m.w {
		m.w[i] = int32(1<<16) * 2 / int32(n+2)
	}
	return m
}

// bit codes one bit from the slots that were set, in the given set of weights.
func (m *mixer) bit(c *coder, set, bit int) int {
	w := m.w[set*m.n : set*m.n+m.n]
	in := m.in[:len(w)]
	var dot int64
	for i := range w {
		s := int32(stretchTab[*m.slot[i]>>20])
		in[i] = s
		dot += int64(w[i]) * int64(s)
	}
	x := min(max(dot>>16, -stretchN/2+1), stretchN/2-1)
	p := uint32(squashTab[x+stretchN/2])
	bit = c.code(p, bit)
	err := (int32(bit)<<16 - int32(p)) >> 4 * m.rate // 12 bits by the rate
	for i := range w {
		w[i] += (in[i]*err + 1<<13) >> 14
		m.slot[i].update(bit, m.limit)
	}
	return bit
}

// text models bytes that come one after the other: names, new code, new text.
// Its contexts are the last bytes, the longest match in what it saw lately, and
// up to two numbers that the caller knows.
type text struct {
	mix  *mixer
	tab  [][]prob
	mask uint32
	hist []byte // ring
	pos  uint32
	head []uint32 // where a hash of the last bytes was seen
	ptr  uint32   // the match: next predicted byte is hist[ptr]; 0 is none
	run  uint32   // its length so far
	h    [maxInputs]uint32
	mp   []prob // confidence in the match by its length and bit
}

const (
	matchMin  = 4
	headBits  = 15
	maxOrders = 6
)

// newText makes a model with 1<<bits slots an order and a ring of 1<<histBits.
func newText(bits, histBits int) *text {
	t := &text{
		mix:  newMixer(maxOrders+1, 3*256, 6, 200),
		mask: 1<<bits - 1,
		hist: make([]byte, 1<<histBits),
		head: make([]uint32, 1<<headBits),
		mp:   fresh(64 * 2),
		pos:  1,
	}
	for range maxOrders {
		t.tab = append(t.tab, fresh(1<<bits))
	}
	return t
}

func (t *text) at(back uint32) uint32 {
	return uint32(t.hist[(t.pos-back)&uint32(len(t.hist)-1)])
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

// byte codes one byte; a and b are contexts of the caller's.
func (t *text) byte(c *coder, v byte, a, b uint32) byte {
	c1, c2, c3, c4 := t.at(1), t.at(2), t.at(3), t.at(4)
	h := &t.h
	h[0] = a * 0x2f0b4c47
	h[1] = (c1 | a<<8) * 0x9e3779b1
	h[2] = (c1|c2<<8)*0x85ebca6b + a
	h[3] = (c1|c2<<8|c3<<16)*0xc2b2ae35 + 0x1234
	h[4] = (c1|c2<<8|c3<<16|c4<<24)*0x27d4eb2f + 0x777
	h[5] = (b+1)*0x165667b1 + a*0x3c6ef35f
	for i := range maxOrders {
		h[i] ^= h[i] >> 15
	}
	expect := -1
	if t.ptr != 0 {
		expect = int(t.hist[t.ptr&uint32(len(t.hist)-1)]) | 256
	}
	set := 0
	if t.run > 0 {
		set = 1
	}
	if t.run > 15 {
		set = 2
	}
	none := freshProb
	at := 1
	m := t.mix
	for i := 7; i >= 0; i-- {
		for k := range maxOrders {
			m.slot[k] = &t.tab[k][(h[k]+uint32(at)*0x9e3779b1>>7)&t.mask]
		}
		if expect >= 0 && expect>>(i+1) == at {
			m.slot[maxOrders] = &t.mp[t.run<<1|uint32(expect>>i&1)]
			none = freshProb
		} else {
			none = freshProb
			m.slot[maxOrders] = &none
			if expect >= 0 {
				expect = -1
			}
		}
		s := set
		if expect < 0 {
			s = 0
		}
		at = at<<1 | m.bit(c, s<<8|at, int(v>>i&1))
	}
	t.see(byte(at))
	return byte(at)
}
