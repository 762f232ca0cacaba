package model

// A FlagModel codes bits of one kind, which several contexts help to predict. In each
// context it has counts of what came before, and counts select an adaptive probability.
//
// Its code has no loops over the contexts: with them, decoding took 4 % more
// instructions.
type FlagModel struct {
	mix   *mixer
	n     int
	size  uint32 // of the table of each context
	shift uint   // from a hash to its place there
	tab   []counts
	probs [maxFlagContexts][256]uint16 // by context: the probability for counts, out of 65536
	at    [maxFlagContexts]uint32      // the places of the bit that is being coded
	was   [maxFlagContexts]counts      // and what is there
}

const (
	maxFlagContexts = 7

	// flagRate is how slowly the probabilities for counts adapt.
	flagRate = 7
)

// NewFlagModel makes a model of n contexts, from 3 to 7, with 1<<bits counts
// each. sets and others are the numbers of the two kinds of sets of weights.
func NewFlagModel(n int, bits uint, sets, others int) *FlagModel {
	m := &FlagModel{mix: newMixer(n, sets, others, sets), n: n, size: 1 << bits, shift: 32 - bits, tab: make([]counts, n<<bits)}
	for k := range m.probs {
		m.probs[k] = countsStart
	}
	return m
}

// Contexts are hashes of what helps to predict a bit. A FlagModel of n contexts uses
// the first n.
type Contexts [maxFlagContexts]uint32

// Code codes a bit in its contexts.
func (m *FlagModel) Code(c *Coder, contexts *Contexts, set, other, bit int) int {
	m.predict(contexts)
	bit = m.mix.code(c, set, other, set, bit)
	m.learn(bit)
	return bit
}

func (m *FlagModel) predict(x *Contexts) {
	switch m.n {
	case 7:
		m.look(6, x[6])
		fallthrough
	case 6:
		m.look(5, x[5])
		fallthrough
	case 5:
		m.look(4, x[4])
		fallthrough
	case 4:
		m.look(3, x[3])
		fallthrough
	default:
		m.look(2, x[2])
		m.look(1, x[1])
		m.look(0, x[0])
	}
}

// look finds what the context k predicts.
func (m *FlagModel) look(k uint32, x uint32) {
	i := k*m.size + x*0x9e3779b1>>(m.shift&31)
	h := m.tab[i]
	m.at[k], m.was[k] = i, h
	m.mix.in[k] = stretch(m.probs[k][h])
}

func (m *FlagModel) learn(bit int) {
	switch m.n {
	case 7:
		m.note(6, bit)
		fallthrough
	case 6:
		m.note(5, bit)
		fallthrough
	case 5:
		m.note(4, bit)
		fallthrough
	case 4:
		m.note(3, bit)
		fallthrough
	default:
		m.note(2, bit)
		m.note(1, bit)
		m.note(0, bit)
	}
}

// note tells the context k about the bit.
func (m *FlagModel) note(k int, bit int) {
	h := m.was[k]
	adapt(&m.probs[k][h], bit, flagRate)
	m.tab[m.at[k]] = countsThen[h][bit&1]
}
