package vcdiff

// Instruction types.
const (
	noop = iota
	add
	run
	copyFrom // and above it the address mode: copyFrom+mode
)

// Address modes (RFC 3284 section 5.3).
const (
	modeSelf  = 0
	modeHere  = 1
	modeNear  = 2
	nearSlots = 4
	modeSame  = modeNear + nearSlots
	sameSlots = 3
	modes     = modeSame + sameSlots
)

// An instruction; size 0 means that the size follows the code.
type instruction struct{ kind, size byte }

// codeTable is the default code table of RFC 3284 section 5.6.
var codeTable = makeTable()

func makeTable() (t [256][2]instruction) {
	i := 0
	put := func(a, b instruction) {
		t[i] = [2]instruction{a, b}
		i++
	}
	put(instruction{run, 0}, instruction{})
	for size := range 18 {
		put(instruction{add, byte(size)}, instruction{})
	}
	for mode := range byte(modes) {
		put(instruction{copyFrom + mode, 0}, instruction{})
		for size := byte(4); size <= 18; size++ {
			put(instruction{copyFrom + mode, size}, instruction{})
		}
	}
	for mode := range byte(modeSame) {
		for a := byte(1); a <= 4; a++ {
			for c := byte(4); c <= 6; c++ {
				put(instruction{add, a}, instruction{copyFrom + mode, c})
			}
		}
	}
	for mode := byte(modeSame); mode < modes; mode++ {
		for a := byte(1); a <= 4; a++ {
			put(instruction{add, a}, instruction{copyFrom + mode, 4})
		}
	}
	for mode := range byte(modes) {
		put(instruction{copyFrom + mode, 4}, instruction{add, 1})
	}
	if i != len(t) {
		panic("vcdiff: code table")
	}
	return t
}

// addresses is the cache of copy addresses (section 5.1). Each window begins with an
// empty one.
type addresses struct {
	near [nearSlots]int64
	next int
	same [sameSlots * 256]int64
}

func (c *addresses) update(addr int64) {
	c.near[c.next] = addr
	c.next = (c.next + 1) % nearSlots
	c.same[addr%int64(len(c.same))] = addr
}

// byteReader reads the bytes of the address section.
type byteReader interface{ ReadByte() (byte, error) }

// decode reads an address in a mode. The address may be any number, even a negative
// one: the caller checks it and then calls update.
func (c *addresses) decode(mode byte, here int64, r byteReader) (int64, error) {
	if mode >= modeSame {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		return c.same[int(mode-modeSame)<<8+int(b)], nil
	}
	v, err := readSize(r)
	if err != nil {
		return 0, err
	}
	switch {
	case mode == modeSelf:
		return v, nil
	case mode == modeHere:
		return here - v, nil
	}
	return c.near[mode-modeNear] + v, nil
}
