package model

// An InstructionSet says what instructions of 32 bits consist of.
type InstructionSet struct {
	opcode uint // the lowest bit of the opcode, which is all above it
	base   uint // the lowest bit of the register that offsets are from
	mask   uint32
	parts  func(w uint32) []part
}

// part is a part of an instruction below its opcode: size bits from the bit at on.
type part struct {
	at, size uint
	kind     partKind
	id       uint32
}

type partKind uint8

const (
	register partKind = iota
	number
	offset // a number that is added to a register
)

const numParts = 9

// A64 and A32 (Arm ARM, C4.1 and F4.1). Registers come first: they tell most about the rest.
var (
	A64 = &InstructionSet{opcode: 21, base: 5, mask: 31, parts: a64Parts}
	A32 = &InstructionSet{opcode: 20, base: 16, mask: 15, parts: a32Parts}
)

var (
	a64Registers = []part{{5, 5, register, 0}, {0, 5, register, 1}, {16, 5, register, 2}, {10, 6, number, 3}}
	a64Offset    = []part{{5, 5, register, 0}, {0, 5, register, 1}, {10, 11, offset, 4}}
	a64Pair      = []part{{5, 5, register, 0}, {0, 5, register, 1}, {10, 5, register, 2}, {15, 6, offset, 5}}
	a64Wide      = []part{{0, 5, register, 1}, {5, 16, number, 6}}

	a32Registers = []part{{16, 4, register, 0}, {12, 4, register, 1}, {8, 4, number, 3}, {4, 4, number, 4}, {0, 4, register, 2}}
	a32Offset    = []part{{16, 4, register, 0}, {12, 4, register, 1}, {0, 12, offset, 5}}
	a32Block     = []part{{16, 4, register, 0}, {0, 16, number, 6}}
	a32Branch    = []part{{0, 20, number, 7}}
)

func a64Parts(w uint32) []part {
	switch op := w >> 24; {
	case op&0x1f == 0x11, op&0x3b == 0x39: // ADD and SUB; loads and stores
		return a64Offset
	case op&0x3a == 0x28:
		return a64Pair
	case op&0x1f == 0x12 && w>>23&1 != 0, op&0x1c == 0x14: // MOV; branches
		return a64Wide
	}
	return a64Registers
}

func a32Parts(w uint32) []part {
	switch w >> 25 & 7 {
	case 1, 2:
		return a32Offset
	case 4:
		return a32Block
	case 5:
		return a32Branch
	}
	return a32Registers
}

// of returns the part of an instruction.
func (p part) of(w uint32) uint32 { return w >> p.at & (1<<p.size - 1) }

// from returns the register that an instruction adds offsets to.
func (s *InstructionSet) from(w uint32) uint32 { return w >> s.base & s.mask }

// InstructionModel codes instructions, given the old ones: whether one changed, whether its
// opcode did, and if not, which other parts did, and how. A compiler that assigns other
// registers, or moves a variable in its frame, does so all over a function.
type InstructionModel struct {
	flag   *FlagModel // of instructions
	opcode *FlagModel // of those that changed
	part   *FlagModel // of parts
	value  *FlagModel // the bits of parts that changed

	set         *InstructionSet
	last, lastN uint32 // the last instruction that changed, old and new
	lastParts   uint32 // a bit for each of its parts that did
	hist        uint32 // a bit for each of the last ones: 1 if it changed
	renamed     [32]uint8
	moved       [1 << movedBits]uint32 // what was added to a number last
	step        [32]uint32             // the last of these that was not 0, by register
	likely      uint32                 // a bit for each part of this instruction that was another last time
}

const movedBits = 10

// A Change says how an instruction changed.
type Change uint8

const (
	Unchanged Change = iota
	Parts            // only below its opcode
	Anew
)

func NewInstructionModel() *InstructionModel {
	m := &InstructionModel{
		flag:   NewFlagModel(7, 14, 16, 1<<9),
		opcode: NewFlagModel(7, 12, 4, 1<<5),
		part:   NewFlagModel(7, 15, numParts*2, 1<<6),
		value:  NewFlagModel(7, 15, numParts*16*2, 1<<8),
	}
	for i := range m.renamed {
		m.renamed[i] = uint8(i)
	}
	return m
}

const hash1, hash2, hash3 = 0x9e3779b1, 0x85ebca6b, 0xc2b2ae35

// Change codes how an instruction of a set changed. What is near says of the instructions
// before and after is as for words.
func (m *InstructionModel) Change(c *Coder, set *InstructionSet, old, new uint32, n Near) Change {
	m.set, m.likely = set, 0
	for i, p := range set.parts(old) {
		if m.expected(old, p) != p.of(old) {
			m.likely |= 1 << i
		}
	}
	h, class := m.hist, old>>set.opcode
	same := uint32(0)
	if n.New == n.Old {
		same = 1 << 30
	}
	x := Contexts{
		n.Next*hash2 + h&15,
		old*hash2 + h&1,
		old>>16<<16 | n.Old>>16 + 77,
		(m.likely<<4 | h&3) + class*hash1<<8,
		(m.lastN-m.last)*hash2 + old&255 + same,
		old>>16<<4 | h&3 + same,
		(n.New-n.Old)*4 + h&3,
	}
	bit := 0
	if old != new {
		bit = 1
	}
	bit = m.flag.Code(c, &x, int(h&15), int(m.likely<<4|h&15), bit)
	m.hist = h<<1 | uint32(bit)
	if bit == 0 {
		m.learn(old, old)
		return Unchanged
	}
	x = Contexts{
		class*hash1 + 1,
		old * hash1,
		m.likely + m.lastParts<<8 + 77,
		n.Next * hash1,
		n.New>>set.opcode*hash1 + class*hash2 + 7,
		(n.Old>>set.opcode^n.New>>set.opcode)*hash1 + 8,
		h & 255,
	}
	bit = 0
	if class != new>>set.opcode {
		bit = 1
	}
	if m.opcode.Code(c, &x, int(h&3), int(m.likely), bit) != 0 {
		return Anew
	}
	return Parts
}

// Anew gets an instruction whose opcode changed.
func (m *InstructionModel) Anew(old, new uint32) { m.last, m.lastN, m.lastParts = old, new, 1<<7 }

// Parts codes an instruction that changed below its opcode.
func (m *InstructionModel) Parts(c *Coder, old, new uint32, n Near) uint32 {
	got, changed := old>>m.set.opcode<<m.set.opcode, uint32(0)
	for i, p := range m.set.parts(old) {
		v := p.of(old)
		if m.differs(c, p, old, new, changed, n) {
			changed |= 1 << i
			v = m.changed(c, p, old, new, changed, n)
		}
		got |= v << p.at
	}
	m.last, m.lastN, m.lastParts = old, got, changed
	m.learn(old, got)
	return got
}

// differs codes whether a part of an instruction differs, of which some parts before changed.
func (m *InstructionModel) differs(c *Coder, p part, old, new, changed uint32, n Near) bool {
	v, expected := p.of(old), m.expected(old, p)
	known := uint32(0)
	if v != expected {
		known = 1
	}
	s, class := (p.id+1)*hash3, old>>m.set.opcode
	x := Contexts{
		s + class<<8 + known,
		s + old*hash2,
		s + (v|expected<<16)*hash1 + changed*hash2,
		s + changed*hash2 + class*hash1,
		s + changed*hash2 + m.lastParts*hash1 + known,
		s + (m.lastN^m.last)*hash1 + changed*hash2,
		s + (n.New^n.Old)*hash1 + v*hash2 + 1,
	}
	bit := 0
	if v != p.of(new) {
		bit = 1
	}
	return m.part.Code(c, &x, int(p.id*2+known), int(changed|known<<5), bit) != 0
}

// changed codes a part that differs: a register, or what was added to a number.
func (m *InstructionModel) changed(c *Coder, p part, old, new, changed uint32, n Near) uint32 {
	all := uint32(1)<<p.size - 1
	v, sym, expected := p.of(old), p.of(new), m.expected(old, p)
	known := uint32(0)
	if v != expected {
		known = 1
	}
	step := uint32(0)
	if p.kind != register {
		sym, expected = (sym-v)&all, (expected-v)&all
		step = m.step[m.set.from(old)]
	}
	class := old >> m.set.opcode
	node := uint32(1)
	for i := int(p.size) - 1; i >= 0; i-- {
		next := uint32(2) // the next bit, if it is as expected so far
		if (expected|1<<p.size)>>(i+1) == node {
			next = expected >> i & 1
		}
		s := (p.id+1)*hash3 + node*hash2
		x := Contexts{
			s + v*hash1,
			(s*3+next)*hash1 + v + known<<6,
			s*hash1 + step*hash3,
			s*hash1 + old*hash3,
			s*hash1 + changed*hash3 + class*hash2,
			s*hash1 + (m.lastN-m.last)*hash3 + v,
			s*hash1 + n.New&31*hash3 + v*hash2 + 9,
		}
		bit := m.value.Code(c, &x, int((p.id*16+uint32(min(i, 15)))*2+known), int(next<<6|known<<5|uint32(i)), int(sym>>i&1))
		node = node<<1 | uint32(bit)
	}
	if sym = node & all; p.kind != register {
		sym = (sym + v) & all
	}
	return sym
}

// expected returns what a part of an old instruction became the last time.
func (m *InstructionModel) expected(old uint32, p part) uint32 {
	v := p.of(old)
	if p.kind == register {
		return uint32(m.renamed[v])
	}
	return (v + m.moved[m.place(old, p)]) & (1<<p.size - 1)
}

// place returns the place of a number in moved.
func (m *InstructionModel) place(old uint32, p part) uint32 {
	at := 32 + p.id
	if p.kind == offset {
		at = m.set.from(old)
	}
	return (p.of(old)*hash1 + at*hash2) >> (32 - movedBits)
}

// learn gets an instruction whose opcode is the old one.
func (m *InstructionModel) learn(old, new uint32) {
	for _, p := range m.set.parts(old) {
		v, w := p.of(old), p.of(new)
		if p.kind == register {
			m.renamed[v] = uint8(w)
			continue
		}
		m.moved[m.place(old, p)] = w - v
		if w != v {
			m.step[m.set.from(old)] = w - v
		}
	}
}
