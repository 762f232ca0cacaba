package elf

// Jump tables of amd64 are in constants: an entry is the distance, in 32 bits, from the
// table to a place in the function that uses it. Each entry changes when the table and
// the function move by different distances; the steps from entry to entry stay, unless
// the function itself changes.

// jumpTables reports whether a section of data may have jump tables.
func (f *File) jumpTables(s *section) bool {
	return f.machine == machineX86 && f.text.size > 0 && s.addr < f.rw
}

// leads reports whether a word at an address leads into the code. Within a function it
// makes no difference that its table begins before it.
func (f *File) leads(addr uint64, w uint32) bool {
	return addr+uint64(int64(int32(w)))-f.text.addr < f.text.size
}

// firstJump stands for the first entry of a table.
const firstJump = 0xf1d00001

// jumps replaces each word that leads into the code, and has another one beside it, by
// its difference to the one before.
func (m *masker) jumps(s *section) {
	if !m.f.jumpTables(s) {
		return
	}
	word := func(p uint64) (w uint32, leads bool) {
		if p+4 > s.size {
			return 0, false
		}
		w = le.Uint32(m.b[s.off+p:])
		return w, m.f.leads(s.addr+p, w)
	}
	before, among := uint32(0), false
	for p := -s.addr & 3; p+4 <= s.size; p += 4 {
		w, leads := word(p)
		if _, next := word(p + 4); leads && (among || next) {
			step := uint32(firstJump)
			if among {
				step = w - before
			}
			le.PutUint32(m.o[s.off+p:], step)
			before, among = w, true
		} else {
			among = false
		}
	}
}
