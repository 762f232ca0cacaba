package delta

// Logistic mixing: several models each guess the next bit, and a small online
// learner weighs their guesses (as in the PAQ family of compressors). All of it
// is integer arithmetic, so that every machine computes the same.

const (
	maxInputs = 10
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
	slot := m.slot[:len(w)]
	var dot int64
	for i := range w {
		s := int32(stretchTab[*slot[i]>>20])
		in[i] = s
		dot += int64(w[i]) * int64(s)
	}
	x := min(max(dot>>16, -stretchN/2+1), stretchN/2-1)
	p := uint32(squashTab[(x+stretchN/2)&(stretchN-1)])
	bit = c.code(p, bit)
	err := (int32(bit)<<16 - int32(p)) >> 4 * m.rate // 12 bits by the rate
	limit := m.limit
	if bit != 0 {
		for i := range w {
			w[i] += (in[i]*err + 1<<13) >> 14
			s := uint32(*slot[i])
			n := s & 1023
			v := s >> 10
			v += uint32((uint64(1<<22-1-v) * uint64(rates[n&255])) >> 16)
			if n < limit {
				n++
			}
			*slot[i] = prob(v<<10 | n)
		}
		return bit
	}
	for i := range w {
		w[i] += (in[i]*err + 1<<13) >> 14
		s := uint32(*slot[i])
		n := s & 1023
		v := s >> 10
		v -= uint32((uint64(v) * uint64(rates[n&255])) >> 16)
		if n < limit {
			n++
		}
		*slot[i] = prob(v<<10 | n)
	}
	return bit
}
