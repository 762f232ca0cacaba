package elf

import "encoding/hex"

// Mode selects how code is read if the machine has several instruction sets.
type Mode uint8

const (
	Off   Mode = iota // no prediction
	Plain             // the machine's usual: Thumb on arm, unless it is a Go file
	A32               // arm's 32-bit instructions
)

// Kind says what a field is. Kinds below NumKinds make good contexts.
type Kind uint8

const (
	kindNone Kind = iota
	kindArm       // B and BL
	kindThumb
	kindA64
	kindPage // ADRP and the instruction that adds the low bits
	kindPageAlone
	kindX86 // 32 bits relative to their end
	kindAbs32
	kindAbs64
	kindPrel31
	kindRel32
	kindPool // relative to the place, in a literal pool
	kindPlt
	kindSym // symbol and type of a relocation
	kindRelOff
	kindName    // of a symbol
	kindID      // a build ID
	kindIDText  // the same in hex, without its first byte
	kindSum     // a checksum of a file that is not available
	kindShort16 // see short.go
	kindShort
	kindGo
)

// Kinds behind those of Go.
const (
	kindPageLow = kindGo + numGo + iota // ADRP, with the low bits apart
	kindLow                             // what adds them
	kindLiteral                         // relative to the instruction that adds PC
	NumKinds
)

// Field is a place in the new file that can be predicted.
type Field struct {
	Off  int32 // from the start of what was scanned
	Len  uint8
	Kind Kind
	sub  uint8
	pc   uint64 // new address of the place, or of what the field is relative to
	key  uint64 // old target
}

// Predictor predicts one new file. Its methods must be called in the order of
// the new file's bytes: each call of Learn changes what Predict says. It needs
// about 4 MiB, and the memory of the ranges.
type Predictor struct {
	m        *mapping
	mode     Mode
	o, n     *File
	plt      chain
	rel      chain
	g        goState
	tables   newTables
	walk     lineWalk
	shifts   lineShifts
	space    *Space
	from, to uint64 // old addresses of the range being scanned
	symOff   uint64
	numSym   uint64
	apart    apart
	id       [idLen]byte // the new file's
	idKnown  bool
}

// chain predicts a row of targets that have all moved by the same distance.
type chain struct{ old, new uint64 }

// Space is memory that several predictors can use, one after the other. If New gets
// Ranges, it need not copy them.
type Space struct {
	Ranges  []Range
	lengths []int64
	entries []uint32
	slots   []slot
	pages   []int32
}

// New makes a predictor of the file whose first bytes are head: at least its
// program headers, if they lie within the first 4 KiB. It sorts and changes ranges.
func New(old *File, head []byte, ranges []Range, mode Mode, shift Shift, space *Space) (*Predictor, error) {
	if space == nil {
		space = new(Space)
	}
	n, err := parseHead(head)
	if err != nil {
		return nil, err
	}
	if n.machine != old.machine {
		return nil, ErrFormat
	}
	p := &Predictor{m: newMapping(old, n, ranges, space), mode: mode, o: old, n: n, space: space}
	p.m.learnt.make(space, old.size)
	if s := old.find(classSyms); s != nil {
		p.symOff = s.off
		p.numSym = s.size / 16
	}
	if old.gotab != nil {
		p.goInit(shift)
		if p.mode == Plain && old.machine == machineArm {
			p.mode = A32
		}
	}
	return p, nil
}

// Need returns how many bytes from the beginning of the new file New needs, as far
// as head tells; never more than 4 KiB.
func Need(head []byte) int {
	if len(head) < 64 {
		return 64
	}
	n := uint64(le.Uint32(head[28:])) + 32*uint64(le.Uint16(head[44:]))
	if head[4] == 2 {
		n = le.Uint64(head[32:]) + 56*uint64(le.Uint16(head[56:]))
	}
	return int(min(max(n, 64), headSize))
}

// Scan appends the fields of a range to fields. old are the bytes at offset s of
// the old file, which resemble those at q of the new one.
//
// The range begins at from in the old file and ends before to. References from the
// range into itself do not change.
func (p *Predictor) Scan(fields []Field, old []byte, s, q, from, to int64) []Field {
	for at := 0; at < len(old); {
		so, qo := uint64(s)+uint64(at), uint64(q)+uint64(at)
		sec, n := p.o.section(so)
		end := len(old)
		if n < uint64(end-at) {
			end = at + int(n)
		}
		opc, ok1 := p.o.addr(so)
		npc, ok2 := p.n.addr(qo)
		p.from, p.to = opc-so+uint64(from), opc-so+uint64(to)
		if sec != nil && (ok1 && ok2 || sec.class == classSyms || sec.class == classDebugLink) {
			fields = p.scanSection(fields, sec, old[:end], at, so, qo, opc, npc)
		}
		at = end
	}
	return fields
}

func (p *Predictor) scanSection(fields []Field, sec *section, old []byte, at int, s, q, opc, npc uint64) []Field {
	switch sec.class {
	case classCode:
		switch {
		case p.o.machine == machineArm64:
			return p.scanA64(fields, old, at, q, opc, npc)
		case p.o.machine == machineX86:
			return p.scanX86(fields, old, at, opc, npc)
		case p.mode == A32:
			return p.scanArm(fields, old, at, s, q, opc, npc)
		}
		return p.scanThumb(fields, old, at, s, q, opc, npc)
	case classPlt:
		if p.o.machine == machineArm {
			return p.scanPlt(fields, sec, old, at, s, q, opc, npc)
		}
		if p.o.machine == machineArm64 {
			return p.scanA64(fields, old, at, q, opc, npc)
		}
		return p.scanX86(fields, old, at, opc, npc)
	case classPcln:
		if p.o.gotab != nil {
			return p.scanGo(fields, old, at, s, q)
		}
	case classBuildID:
		if i := int(sec.off + idAt - s); s <= sec.off+idAt && sec.size == idAt+idLen && at+i+idLen <= len(old) {
			fields = append(fields, Field{Off: int32(at + i), Len: idLen, Kind: kindID})
		}
	case classDebugLink:
		return p.scanLink(fields, sec, old, at, s)
	case classExidx:
		return p.scanExidx(fields, sec, old, at, s, opc, npc)
	case classEhHdr:
		return p.scanEhHdr(fields, sec, old, at, s, opc, npc)
	case classRel:
		return p.scanRel(fields, sec, old, at, s)
	case classSyms:
		return p.scanSyms(fields, sec, old, at, s)
	case classPointers:
		return p.scanPointers(fields, old, at, s, q)
	case classTypelink:
		if p.g.types != 0 {
			return p.scanTypelink(fields, old, at, s)
		}
	case classData:
		if p.g.types != 0 && opc >= p.g.types && opc < p.g.etypes {
			return p.scanTypes(fields, old, at, s, q)
		}
		return p.scanPointers(fields, old, at, s, q)
	}
	return fields
}

// Predict fills pred with the predicted bytes of a field whose old bytes are old,
// and returns how much to trust them: from 0, sure, to 7. pred has the field's
// length.
func (p *Predictor) Predict(f *Field, old, pred []byte) (trust uint8) {
	switch f.Kind {
	case kindID, kindSum:
		copy(pred[:f.Len], old)
		return unknown
	case kindIDText:
		copy(pred[:f.Len], old)
		if !p.idKnown {
			return unknown
		}
		hex.Encode(pred[:f.Len], p.id[1:])
		return covered
	case kindGo + goFind:
		findTable(pred[:f.Len], f.key, p.tables.entries)
		return sure
	}
	v, t := p.target(f, old)
	if f.Kind == kindLow {
		if p.onPage(f, v); f.pc != v&^0xfff {
			t = unknown
		}
	}
	put(f, old, pred, v)
	return t
}

// Random reports whether the field is practically random when it is not as
// predicted.
func (f *Field) Random() bool { return f.Kind == kindID || f.Kind == kindSum }

// Learn gets the field's bytes in the new file.
func (p *Predictor) Learn(f *Field, old, new []byte) {
	switch f.Kind {
	case kindID:
		copy(p.id[:], new)
		p.idKnown = true
		return
	case kindIDText, kindSum, kindGo + goFind:
		return
	}
	if f.Kind == kindLow {
		p.onPage(f, f.pc)
	}
	v, ok := value(f, old, new)
	if !ok {
		return
	}
	p.learn(f, old, v)
}

// maxStep bounds the numbers that can be coded: a word of 64 bits that looked like
// an address can hold anything in the new file.
const maxStep = 1 << 62

// Step returns the difference between new and the prediction, as a number below
// maxStep that is likely to be small or to be repeated. ok is false if there is no
// such number.
func (p *Predictor) Step(f *Field, old, pred, new []byte) (int64, bool) {
	switch f.Kind {
	case kindID, kindIDText, kindSum, kindGo + goFind:
		return 0, false
	}
	a, ok1 := value(f, old, pred)
	b, ok2 := value(f, old, new)
	if !ok1 || !ok2 {
		return 0, false
	}
	d := int64(b - a)
	if d <= -maxStep || d >= maxStep {
		return 0, false
	}
	var buf [16]byte
	t := buf[:f.Len]
	put(f, old, t, a+uint64(d))
	return d, string(t) == string(new)
}

// Apply is the inverse of Step: it fills new.
func (p *Predictor) Apply(f *Field, old, pred, new []byte, step int64) {
	switch f.Kind {
	case kindID, kindIDText, kindSum, kindGo + goFind:
		copy(new, pred)
		return
	}
	a, _ := value(f, old, pred)
	put(f, old, new, a+uint64(step))
}

// target predicts the field's target in the new file.
func (p *Predictor) target(f *Field, old []byte) (uint64, uint8) {
	switch f.Kind {
	case kindPool:
		v, t := p.m.plain(f.key)
		return v, t
	case kindPlt:
		if p.plt.old != 0 && f.key-p.plt.old < 1024 {
			return p.plt.new + (f.key - p.plt.old), learned
		}
		return p.m.addr(f.key)
	case kindRelOff:
		if f.sub == 1 && p.rel.old != 0 && f.key-p.rel.old < 64 {
			return p.rel.new + (f.key - p.rel.old), learned
		}
		return p.m.addr(f.key)
	case kindName:
		return p.moved(f.pc, f.key)
	case kindSym:
		if v, c, ok := p.m.learnt.get(keyGo<<1 | f.key); ok {
			return v, uint8(min(c, 1)) ^ 1
		}
		v, t := p.symbol(f.key >> 8)
		return v<<8 | f.key&255, t
	}
	if f.Kind >= kindGo && f.Kind < kindPageLow {
		return p.goTarget(f, old)
	}
	return p.m.addr(f.key)
}

// symbol predicts the new index of an old dynamic symbol.
func (p *Predictor) symbol(i uint64) (uint64, uint8) {
	if i == 0 || i >= p.numSym {
		return i, sure
	}
	size := uint64(16)
	if p.o.wide {
		size = 24
	}
	a := p.m.find(int64(p.symOff))
	b := p.m.find(int64(p.symOff + i*size))
	if a < 0 || b < 0 {
		return i, unknown
	}
	sa := p.m.ranges[a].New - p.m.ranges[a].Old
	sb := p.m.ranges[b].New - p.m.ranges[b].Old
	if (sb-sa)%int64(size) != 0 {
		return i, unknown
	}
	return i + uint64((sb-sa)/int64(size)), covered
}

func (p *Predictor) learn(f *Field, old []byte, v uint64) {
	switch f.Kind {
	case kindPool, kindName:
		return
	case kindPlt:
		p.plt = chain{f.key, v}
	case kindRelOff:
		if f.sub == 1 {
			p.rel = chain{f.key, v}
			return
		}
	case kindSym:
		p.m.learnt.set(keyGo<<1|f.key, v)
		return
	case kindAbs32, kindAbs64:
		if !p.n.within(v) {
			return
		}
	case kindPage, kindPageAlone, kindPageLow:
		p.apart.moved[le.Uint32(old)&31] = page{f.key &^ 0xfff, v &^ 0xfff}
		if f.Kind == kindPageLow {
			return
		}
	}
	if f.Kind >= kindGo && f.Kind < kindPageLow {
		p.goLearn(f, old, v)
		return
	}
	p.m.learn(f.key, v)
}

// moved maps an offset in a table that begins at base of the old file.
func (p *Predictor) moved(base, rel uint64) (uint64, uint8) {
	k, b := p.m.find(int64(base+rel)), p.m.find(int64(base))
	if k < 0 || b < 0 {
		return rel, unknown
	}
	r, br := p.m.ranges[k], p.m.ranges[b]
	t := uint8(covered)
	if int64(base+rel) >= r.Old+r.Len {
		t = guessed
	}
	return rel + uint64((r.New-r.Old)-(br.New-br.Old)), t
}

// Unit returns the size of instructions, or of words, at an old offset.
func (p *Predictor) Unit(off int64) int {
	if p.o.machine == machineArm && p.mode == Plain {
		if s, _ := p.o.section(uint64(off)); s != nil && s.class == classCode {
			return 2
		}
	}
	return 4
}

// Instructions returns the size of the units that instructions at an old offset
// consist of: 1 if there are none, or if they are bytes.
func (p *Predictor) Instructions(off int64) int {
	s, _ := p.o.section(uint64(off))
	if s == nil || s.class != classCode && s.class != classPlt || p.o.machine == machineX86 {
		return 1
	}
	return p.Unit(off)
}

// Code returns what the code at an old offset is; ok is false if there is none.
func (p *Predictor) Code(off int64) (kind PartKind, ok bool) {
	s, _ := p.o.section(uint64(off))
	if s == nil || s.class != classCode && s.class != classPlt {
		return 0, false
	}
	switch {
	case p.o.machine == machineArm64:
		return CodeA64, true
	case p.o.machine == machineX86:
		return CodeX86, true
	case p.mode == A32:
		return CodeA32, true
	}
	return CodeThumb, true
}

// MaxField is the length of the longest field.
const MaxField = 2 * (idLen - 1)

// The build ID (GNU ld, --build-id) is a note of 20 bytes. A separate debug file is
// named after it: the ID in hex without its first byte, and ".debug". Zeros follow
// up to a multiple of four, then a CRC-32 of that file (gdb manual, "Separate Debug
// Files").
const (
	idAt  = 16
	idLen = 20
)

func (p *Predictor) scanLink(fields []Field, sec *section, old []byte, at int, s uint64) []Field {
	const name = MaxField + len(".debug") + 1
	const sum = (name + 3) &^ 3
	if s != sec.off || int(sec.size) != sum+4 || at+int(sec.size) > len(old) || string(old[at+MaxField:at+name-1]) != ".debug" {
		return fields
	}
	return append(fields,
		Field{Off: int32(at), Len: MaxField, Kind: kindIDText},
		Field{Off: int32(at + sum), Len: 4, Kind: kindSum})
}
