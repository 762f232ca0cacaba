package delta

import (
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/mender-app/mender-app/delta/elf"
)

// cover says that length bytes at new resemble those at old.
type cover struct{ new, old, length int64 }

// Limits of one changed file.
const (
	window    = 32 << 20 // bytes of the new file whose covers are coded together
	maxCovers = 1 << 16  // covers of one window
	span      = 64       // bytes of a cover that share a bit "all as predicted"
)

// A differ codes what changed in a file: the covers of each window, then what
// they do not cover and where they do not fit.
type differ struct {
	count  *number
	size   *number
	gap    [2]*number
	length [4]*number
	jump   [3]prob // none; by the gap
	line   [3]prob
	seek   *number

	clean [1 << 12]prob // a span is as predicted
	word  *wordModel
	code  *text
	field *fieldModel
	mode  [4]prob
	shift *number
	bulk  prob
}

func newDiffer() *differ {
	d := &differ{
		count: newNumber(), size: newNumber(), seek: newNumber(),
		word: newWordModel(), code: newText(8, 15, 20), field: newFieldModel(), shift: newNumber(), bulk: freshProb,
	}
	copy(d.mode[:], fresh(4))
	for i := range d.gap {
		d.gap[i] = newNumber()
	}
	for i := range d.length {
		d.length[i] = newNumber()
	}
	copy(d.jump[:], fresh(3))
	copy(d.line[:], fresh(3))
	copy(d.clean[:], fresh(len(d.clean)))
	return d
}

// changed codes a content that is changed from the old file src.
func (s *session) changed(e *entry, src source) error {
	d := s.diff
	osize := int64(-1)
	if e.ref != nil && *e.ref == src {
		osize = e.rsize
	} else {
		if s.enc {
			osize = e.osize
		}
		osize = int64(s.num(d.size, uint64(osize)))
	}
	f, err := s.openOld(src, osize)
	if err != nil {
		return err
	}
	defer f.Close()
	// The models follow the old bytes: they must be right before they are used.
	crc := uint32(0)
	for off := int64(0); off < osize; {
		b := s.buf[:min(chunk, osize-off)]
		if err := s.readOld(f, src, b, off); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, b)
		off += int64(len(b))
	}
	if uint32(s.raw(8, uint64(crc>>24))) != crc>>24 {
		return &OldError{Base: s.bases[src.base], Path: src.path, Problem: DamagedFile}
	}
	s.check.add(src, crc)
	s.stat("checks")
	bulk := s.flag(&d.bulk, e.bulk)
	w := &s.walk
	w.bulk = bulk
	w.begin(s, e, src, f, osize)
	covers := e.covers
	for at := int64(0); at < e.size; at += window {
		end := min(at+window, e.size)
		n := 0
		for n < len(covers) && covers[n].new < end {
			n++
		}
		if err := w.window(at, end, covers[:n]); err != nil {
			return err
		}
		covers = covers[n:]
	}
	return nil
}

// walk is one changed file on its way.
type walk struct {
	*session
	d     *differ
	f     File
	src   source
	osize int64
	e     *entry
	oldAt int64 // where the last cover ended in the old file

	old, new [chunk]byte
	last     []byte // some bytes before
	pred     [span + elf.MaxField]byte
	recent   uint32 // of spans that were not clean

	bulk   bool
	tried  bool
	old0   *elf.File
	mode   elf.Mode
	shifts elf.Shift
	ranges []elf.Range
	elf    *elf.Predictor
	fields []elf.Field
	covers []cover
	space  elf.Space
	head   []byte // of the new file
}

// begin makes w ready for another file.
func (w *walk) begin(s *session, e *entry, src source, f File, osize int64) {
	w.session, w.d, w.f, w.src, w.osize, w.e = s, s.diff, f, src, osize, e
	w.oldAt, w.recent = 0, 0
	w.last, w.head = w.last[:0], w.head[:0]
	w.tried, w.old0, w.elf, w.ranges = false, nil, nil, nil
}

// window codes the covers between at and end, then the bytes.
func (w *walk) window(at, end int64, covers []cover) error {
	n := int(w.num(w.d.count, uint64(len(covers))))
	if n > maxCovers {
		return formatError("too many covers")
	}
	if !w.enc {
		covers = w.covers[:0]
	}
	pos := at
	for i := range n {
		var c cover
		if w.enc {
			c = covers[i]
		}
		if err := w.cover(&c, pos, end); err != nil {
			return err
		}
		pos = c.new + c.length
		if !w.enc {
			covers = append(covers, c)
		}
	}
	w.stat("covers")
	if !w.enc {
		w.covers = covers
	}
	if err := w.elfBegin(covers); err != nil {
		return err
	}
	pos = at
	line := int64(0)
	for _, c := range covers {
		if err := w.extra(pos, c.new, line, c.old); err != nil {
			return err
		}
		if err := w.covered(c); err != nil {
			return err
		}
		pos = c.new + c.length
		line = c.old + c.length
	}
	return w.extra(pos, end, line, -1)
}

// cover codes one cover, of which what came before ends at pos.
func (w *walk) cover(c *cover, pos, end int64) error {
	d := w.d
	g := int64(w.num(d.gap[0], uint64(c.new-pos)))
	if g > end-pos {
		return formatError("a cover is out of bounds")
	}
	c.new = pos + g
	k := min(baseBits(int(min(g, 8)+1)), 3)
	c.length = int64(w.num(d.length[k], uint64(c.length)))
	jump := c.old - w.oldAt
	z := 0
	if g > 0 {
		z = 1
	}
	if w.flag(&d.jump[z], jump == 0) {
		jump = 0
	} else if g > 0 && w.flag(&d.line[z], jump == g) {
		jump = g
	} else {
		jump = w.signed(d.seek, jump)
	}
	c.old = w.oldAt + jump
	if w.short || c.length < 1 || c.length > end-c.new || jump > w.osize || jump < -w.osize || c.old < 0 || c.length > w.osize-c.old {
		return formatError("a cover is out of bounds")
	}
	w.oldAt = c.old + c.length
	return nil
}

// extra codes bytes that no cover covers. What the old file has between the
// same covers, from before to behind, is shown to the model first.
func (w *walk) extra(pos, end, before, behind int64) error {
	if pos == end {
		return nil
	}
	if n := min(behind-before, 2*(end-pos)+32, maxTrain); n > 0 && behind-before < maxGap && !w.bulk {
		b := w.old[:n]
		if err := w.readOld(w.f, w.src, b, before); err != nil {
			return err
		}
		w.d.literals(&trainer, b, before)
	}
	if !w.bulk {
		for _, x := range w.last {
			w.d.code.see(x)
		}
	}
	for pos < end {
		if err := w.rest(); err != nil {
			return err
		}
		n := min(chunk, end-pos)
		b := w.new[:n]
		if w.enc {
			if err := readFull(w.e.new, b, pos); err != nil {
				return err
			}
		}
		if w.bulk {
			if err := w.literals(b); err != nil {
				return err
			}
		} else {
			w.d.literals(w.coder, b, pos)
			w.stat("extra")
		}
		if err := w.put(b); err != nil {
			return err
		}
		pos += n
	}
	return nil
}

// maxTrain is how much of the old file a model is shown at a time, and maxGap
// how far apart two covers may be for what is between them to be of use.
const (
	maxTrain = 4 << 10
	maxGap   = 64 << 10
)

// trainer codes nothing.
var trainer = coder{enc: true, mute: true}

// literals codes bytes that are at pos of their file.
func (d *differ) literals(cd *coder, b []byte, pos int64) {
	t := d.code
	c := &t.ctx
	for i := range b {
		at := uint32(pos+int64(i)) & 3
		c1, c2, c3, c4 := t.at(1), t.at(2), t.at(3), t.at(4)
		c[0] = at << 9
		c[1] = (c1|at<<8)*0x85ebca6b + 1
		c[2] = (c1|c2<<8|at&1<<16)*0xc2b2ae35 + 2
		c[3] = (c1|c2<<8|c3<<16)*0x27d4eb2f + 3
		c[4] = (c1|c2<<8|c3<<16|c4<<24)*0x165667b1 + 4
		c[5] = (c2|c3<<8|at&1<<16)*0x2f0b4c47 + 5
		c[6] = (t.at(5)*0x1234567+(c1|c2<<8|c3<<16|c4<<24))*0x3c6ef35f + 6
		c[7] = (c2|c4<<8|at<<16|t.at(6)<<24)*0x9e3779b1 + 7
		b[i] = t.code(cd, b[i], 0)
	}
}

// covered codes the bytes of one cover.
func (w *walk) covered(c cover) error {
	for at := int64(0); at < c.length; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if at > 0 {
			if err := w.rest(); err != nil {
				return err
			}
		}
		// Chunks end where words do.
		n := min(chunk-(c.new+at)&15, c.length-at)
		if k := elf.Need(w.head) - len(w.head); len(w.ranges) > 0 && w.elf == nil && k > 0 {
			n = min(n, int64(k))
		}
		old := w.old[:n]
		if err := w.readOld(w.f, w.src, old, c.old+at); err != nil {
			return err
		}
		if w.useSums && strings.HasSuffix(w.e.path, sumsSuffix) {
			w.patchSums(old)
		}
		new := w.new[:n]
		if w.enc {
			if err := readFull(w.e.new, new, c.new+at); err != nil {
				return err
			}
		}
		w.spans(old, new, c, at)
		w.stat("changes")
		if err := w.put(new); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// spans codes new against old: the bytes of c from at on.
func (w *walk) spans(old, new []byte, c cover, at int64) {
	q := c.new + at
	d := w.d
	p := w.predictor()
	w.fields = w.fields[:0]
	if p != nil {
		w.fields = p.Scan(w.fields, old, c.old+at, q, c.old, c.old+c.length)
	}
	fs := w.fields
	for i := 0; i < len(old); {
		j := min(i+span-int(q+int64(i))&(span-1), len(old))
		n := 0
		for n < len(fs) && int(fs[n].Off) < j {
			j = max(j, int(fs[n].Off)+int(fs[n].Len))
			n++
		}
		pred := w.pred[:j-i]
		copy(pred, old[i:j])
		worst := uint8(0)
		for k := range fs[:n] {
			f := &fs[k]
			at := int(f.Off)
			t := p.Predict(f, old[at:], pred[at-i:])
			worst = max(worst, t+1)
		}
		ctx := w.recent&0xff | uint32(worst)<<8
		if w.flag(&d.clean[ctx], w.enc && string(pred) == string(new[i:j])) {
			w.recent <<= 1
			copy(new[i:j], pred)
			for k := range fs[:n] {
				f := &fs[k]
				p.Learn(f, old[f.Off:], new[f.Off:])
			}
		} else {
			w.recent = w.recent<<1 | 1
			w.changes(old, new, i, j, q, fs[:n], w.unit(c.old+at+int64(i)))
		}
		fs = fs[n:]
		i = j
	}
}

// changes codes a span that is not as predicted.
func (w *walk) changes(old, new []byte, i, j int, q int64, fs []elf.Field, unit int) {
	m := w.d.word
	for i < j {
		if len(fs) > 0 && int(fs[0].Off) == i {
			w.field(&fs[0], old[i:], new[i:i+int(fs[0].Len)])
			i += int(fs[0].Len)
			fs = fs[1:]
			continue
		}
		k := min(i+unit-int(q+int64(i))&(unit-1), j)
		if len(fs) > 0 {
			k = min(k, int(fs[0].Off))
		}
		var n near
		if i >= 4 {
			n.old, n.new = binary.LittleEndian.Uint32(old[i-4:]), binary.LittleEndian.Uint32(new[i-4:])
		}
		if k+2 <= len(old) {
			n.next = uint32(binary.LittleEndian.Uint16(old[k:]))
		}
		m.code(w.coder, old[i:k], new[i:k], q+int64(i), n)
		i = k
	}
}

// unit is the size of the words at an old offset.
func (w *walk) unit(off int64) int {
	if w.elf != nil {
		return w.elf.Unit(off)
	}
	return 4
}

// field codes one field.
func (w *walk) field(f *elf.Field, old, new []byte) {
	p := w.elf
	m := w.d.field
	var buf [elf.MaxField]byte
	pred := buf[:f.Len]
	trust := p.Predict(f, old, pred)
	k := int(f.Kind)
	hist := &m.hist[k]
	mx := m.mix
	mx.slot[0] = &m.tab[0][k<<11|int(trust)<<8|int(*hist&0xff)]
	o := uint32(binary.LittleEndian.Uint16(old))
	if f.Len > 2 {
		o |= uint32(binary.LittleEndian.Uint16(old[2:])) << 16
	}
	mx.slot[1] = &m.tab[1][hash32(o*32+uint32(k), wordBits)]
	mx.slot[2] = &m.tab[2][k<<11|int(trust)<<8|int(m.all&0xff)]
	bit := 0
	if w.enc && string(pred) != string(new) {
		bit = 1
	}
	bit = mx.bit(w.coder, k, bit)
	*hist = *hist<<1 | uint32(bit)
	m.all = m.all<<1 | uint32(bit)
	if bit == 0 {
		copy(new, pred)
		p.Learn(f, old, new)
		return
	}
	if f.Random() {
		for x := range new {
			new[x] = byte(w.raw(8, uint64(new[x])))
		}
		p.Learn(f, old, new)
		return
	}
	var step int64
	ok := false
	if w.enc {
		step, ok = p.Step(f, old, pred, new)
	}
	if w.flag(&m.number[k], ok) {
		last := &m.last[k]
		which := 3
		for x := 2; x >= 0; x-- {
			if last[x] == step {
				which = x
			}
		}
		which = w.tree(m.which[k][:], 2, which)
		if which < 3 {
			step = last[which]
		} else {
			step = w.signed(m.step[k], step)
			which = 2
		}
		copy(last[1:which+1], last[:which])
		last[0] = step
		p.Apply(f, old, pred, new, step)
	} else {
		for x := 0; x < len(new); x += 4 {
			y := min(x+4, len(new))
			w.d.word.code(w.coder, pred[x:y], new[x:y], int64(k)<<2, near{})
		}
	}
	p.Learn(f, old, new)
}

// fieldModel codes where predicted fields are wrong.
type fieldModel struct {
	mix    *mixer
	tab    [3][]prob
	hist   [elf.NumKinds]uint32
	all    uint32
	number [elf.NumKinds]prob
	which  [elf.NumKinds][4]prob
	last   [elf.NumKinds][3]int64
	step   [elf.NumKinds]*number
}

func newFieldModel() *fieldModel {
	m := &fieldModel{mix: newMixer(3, int(elf.NumKinds), 6, 200)}
	m.tab[0] = fresh(int(elf.NumKinds) << 11)
	m.tab[1] = fresh(1 << wordBits)
	m.tab[2] = fresh(int(elf.NumKinds) << 11)
	for k := range m.step {
		m.number[k] = freshProb
		copy(m.which[k][:], fresh(4))
		m.step[k] = newNumber()
	}
	return m
}

// elfBegin sets the prediction up for a window with the given covers, if both
// files are of a kind it knows; new is nil when decoding.
func (w *walk) elfBegin(covers []cover) error {
	if w.old0 == nil && !w.tried {
		w.tried = true
		if f, err := elf.Parse(w.f, w.osize); err == nil {
			w.old0 = f
		}
	}
	w.elf, w.ranges = nil, nil
	if w.old0 == nil {
		return nil
	}
	w.mode = elf.Mode(w.tree(w.d.mode[:], 2, int(w.e.mode)))
	if w.mode == elf.Off {
		return nil
	}
	w.ranges = w.space.Ranges[:0]
	for _, c := range covers {
		w.ranges = append(w.ranges, elf.Range{Old: c.old, New: c.new, Len: c.length})
	}
	w.space.Ranges = w.ranges
	if w.old0.Go() {
		var s elf.Shift
		if w.enc {
			var err error
			if s, err = w.shift(); err != nil {
				return err
			}
		}
		s.Func = w.signed(w.d.shift, s.Func)
		s.Types = w.signed(w.d.shift, s.Types)
		s.Text = w.signed(w.d.shift, s.Text)
		w.shifts = s
	}
	return nil
}

// shift finds the Go numbers of the new file, when encoding.
func (w *walk) shift() (s elf.Shift, err error) {
	n, err := elf.Parse(w.e.new, w.e.size)
	if err != nil {
		return s, nil
	}
	head := make([]byte, min(w.e.size, 4096))
	if err := readFull(w.e.new, head, 0); err != nil {
		return s, err
	}
	p, err := elf.New(w.old0, head, w.ranges, w.mode, s, nil)
	if err != nil {
		return s, nil
	}
	return p.ShiftTo(n), nil
}

// predictor returns the window's predictor, once enough of the new file is there
// to make it.
func (w *walk) predictor() *elf.Predictor {
	if w.elf == nil && len(w.ranges) > 0 && len(w.head) >= elf.Need(w.head) {
		p, err := elf.New(w.old0, w.head, w.ranges, w.mode, w.shifts, &w.space)
		if err != nil {
			w.ranges = nil
			return nil
		}
		w.elf = p
	}
	return w.elf
}

// put passes on bytes of the file.
func (w *walk) put(b []byte) error {
	if n := 4096 - len(w.head); n > 0 {
		w.head = append(w.head, b[:min(n, len(b))]...)
	}
	if n := len(b); n > 0 {
		w.last = append(w.last[:0], b[max(0, n-16):]...)
	}
	return w.write(b)
}

// wordModel codes words of up to four bytes of which the old ones are known.
type wordModel struct {
	mix   *mixer
	tab   [flagInputs][]prob
	last  uint32 // the last word that changed: old
	lastN uint32 // and new
	hist  uint32 // of changed words
	bytes *mixer
	btab  [byteInputs][]prob
}

const (
	wordBits   = 16
	flagInputs = 5
	byteInputs = 7
)

func newWordModel() *wordModel {
	m := &wordModel{mix: newMixer(flagInputs, 3*16, 6, 200), bytes: newMixer(byteInputs, 4*256, 6, 200)}
	for i := range m.tab {
		m.tab[i] = fresh(1 << wordBits)
	}
	for i := range m.btab {
		m.btab[i] = fresh(1 << wordBits)
	}
	return m
}

func hash32(v uint32, bits uint) uint32 { return v * 0x9e3779b1 >> (32 - bits) }

// near is what surrounds a word: the four bytes before it, old and new, and the
// two old ones behind it.
type near struct{ old, new, next uint32 }

func (m *wordModel) code(c *coder, old, new []byte, q int64, n near) {
	var o, v uint32
	for i := range old {
		o |= uint32(old[i]) << (8 * i)
		v |= uint32(new[i]) << (8 * i)
	}
	size := uint32(len(old))
	mx := m.mix
	mx.slot[0] = &m.tab[0][m.hist&0xff|uint32(q&63)>>1<<8|size>>1<<13]
	mx.slot[1] = &m.tab[1][hash32(o+size, wordBits)]
	mx.slot[2] = &m.tab[2][hash32(o>>(4*size)|m.hist<<24|size<<20, wordBits)]
	mx.slot[3] = &m.tab[3][hash32(o*0x2f0b4c47+n.old>>16+size, wordBits)]
	same := uint32(0)
	if n.old == n.new {
		same = 1
	}
	mx.slot[4] = &m.tab[4][hash32(o*0x3c6ef35f+n.next+same<<30, wordBits)]
	bit := 0
	if o != v {
		bit = 1
	}
	bit = mx.bit(c, int(m.hist&15|size>>1<<4), bit)
	m.hist = m.hist<<1 | uint32(bit)
	if bit == 0 {
		copy(new, old)
		return
	}
	var got uint32
	differs := uint32(0)
	bx := m.bytes
	for i := range old {
		ob := uint32(old[i])
		base := uint32(i)<<8 | ob | size<<10
		ctx := [byteInputs]uint32{
			base | differs<<14,
			(o*31+got+uint32(i))*0x9e3779b1 + size,
			hash32(base|m.last>>(8*i)&255<<16|differs<<24, 32) + m.lastN>>(8*i)&255*0x9e3779b1,
			hash32(base|n.new>>24<<16, 32) + 77,
			hash32(got<<2|uint32(i), 32) + differs*0x1234567,
			(o*0x85ebca6b+got*0xc2b2ae35+n.new>>16)*0x9e3779b1 + uint32(i),
			(base<<16|n.old>>16)*0x27d4eb2f + got*0x165667b1 + n.next,
		}
		at := uint32(1)
		// The byte as a difference: zero is the likeliest.
		d := v>>(8*i)&255 - ob
		for k := 7; k >= 0; k-- {
			for x := range ctx {
				bx.slot[x] = &m.btab[x][(ctx[x]+at*0x9e3779b1>>8)&(1<<wordBits-1)]
			}
			at = at<<1 | uint32(bx.bit(c, i<<8|int(at), int(d>>k&1)))
		}
		b := byte(at + ob)
		new[i] = b
		got |= uint32(b) << (8 * i)
		if at&255 != 0 {
			differs = 1
		}
	}
	m.last, m.lastN = o, got
}
