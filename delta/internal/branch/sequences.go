package branch

// sequences separates the two kinds of numbers in the tables of Go's programs that say
// what holds for which instructions (pctab in runtime/symtab.go): by how much a value
// changes, and for how many instructions it then holds, in turn. Each number has seven
// bits a byte, the highest bit of all but its last byte is set. A change of zero ends a
// sequence, but for its first.
//
// Of each piece, the bytes of the changes come first. Those of the other numbers follow
// in the opposite order, so that both ends can be read without knowing where they meet.
type sequences struct {
	instructions bool // the next byte belongs to a number of instructions
	inside       bool // it is not the first of its number
	more         bool // the sequence has numbers already
	raw          []byte
}

// convert converts the next bytes of the part, or the other way if back is set.
func (s *sequences) convert(b []byte, back bool) {
	s.raw = append(s.raw[:0], b...)
	front, end := 0, len(b)
	for i := range b {
		at := front
		if s.instructions {
			end--
			at = end
		} else {
			front++
		}
		v := s.raw[i]
		if back {
			v = s.raw[at]
			b[i] = v
		} else {
			b[at] = v
		}
		s.pass(v)
	}
}

// pass learns from a byte what the next one is.
func (s *sequences) pass(v byte) {
	switch {
	case v >= 128:
		s.inside = true
	case v == 0 && !s.instructions && !s.inside && s.more:
		s.more = false
	default:
		s.inside, s.more = false, true
		s.instructions = !s.instructions
	}
}
