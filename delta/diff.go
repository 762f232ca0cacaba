package delta

import (
	"math/bits"
	"strings"

	"github.com/mender-app/mender-app/delta/elf"

	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Limits of one changed file.
const (
	window    = 32 << 20 // bytes of the new file whose covers are coded together
	maxCovers = 1 << 16  // covers of one window
	span      = 64       // bytes of a cover that share a bit "all as predicted"
)

// A cover that does not go on where the last one ended may go on where one of
// some covers before did. One that begins farther than nearEnd from any of these
// leaves them as they are.
const (
	endBits  = 4
	lastEnds = 1 << endBits
	nearEnd  = 16
)

// A differ codes what changed in a file: the covers of each window, then what
// they do not cover and where they do not fit.
type differ struct {
	count  *model.UintModel
	size   *model.UintModel
	gap    *model.UintModel
	length [4]*model.UintModel
	jump   [2]model.Prob           // none; by the gap
	line   model.Prob              // as far as the gap
	end    [2][lastEnds]model.Prob // which of the ends; by the gap
	seek   [2]*model.UintModel     // from the last end, and from another

	clean *model.FlagModel // a span is as predicted
	word  *model.WordModel
	code  *model.ByteModel
	field *fieldModel
	mode  [4]model.Prob
	shift *model.UintModel
	bulk  model.Prob
}

func newDiffer() *differ {
	d := &differ{
		count: model.NewUintModel(), size: model.NewUintModel(), clean: model.NewFlagModel(4, 12, 250, 9, 256),
		word: model.NewWordModel(), code: model.NewByteModel(6, 13, 18, 4), field: newFieldModel(), shift: model.NewUintModel(), bulk: model.FreshProb,
		gap: model.NewUintModel(), line: model.FreshProb,
	}
	copy(d.mode[:], model.FreshProbs(4))
	for i := range d.length {
		d.length[i] = model.NewUintModel()
	}
	for i := range d.seek {
		d.seek[i] = model.NewUintModel()
		copy(d.end[i][:], model.FreshProbs(lastEnds))
	}
	copy(d.jump[:], model.FreshProbs(2))
	return d
}

// changed codes a content that is changed from an old file that was verified, of
// which what comes before oldAt was made use of.
func (s *session) changed(e *entry, f File, oldAt int64) error {
	w := &s.walk
	w.begin(s, e, f)
	w.ends = [lastEnds]int64{oldAt}
	w.bulk = s.Flag(&s.diff.bulk, e.bulk)
	covers := e.covers
	for at := int64(0); at < e.size; at += window {
		end := min(at+window, e.size)
		n := 0
		for n < len(covers) && covers[n].New < end {
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
	ends  [lastEnds]int64 // where covers ended in the old file, the last one first

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
	covers []script.Match
	space  elf.Space
	head   []byte // of the new file
}

// begin makes w ready for another file.
func (w *walk) begin(s *session, e *entry, f File) {
	w.session, w.d, w.f, w.src, w.osize, w.e = s, s.diff, f, e.src, f.Size(), e
	w.recent = 0
	w.last, w.head = w.last[:0], w.head[:0]
	w.tried, w.old0, w.elf, w.ranges = e.noELF, nil, nil, nil
}

// window codes the covers between at and end, then the bytes.
func (w *walk) window(at, end int64, covers []script.Match) error {
	count := w.Uint(w.d.count, uint64(len(covers)))
	if count > maxCovers {
		return formatError("too many covers")
	}
	n := int(count)
	if !w.Encoding {
		covers = w.covers[:0]
	}
	pos := at
	for i := range n {
		var c script.Match
		if w.Encoding {
			c = covers[i]
		}
		if err := w.match(&c, pos, end); err != nil {
			return err
		}
		pos = c.New + c.Length
		if !w.Encoding {
			covers = append(covers, c)
		}
	}
	w.stat("covers")
	if !w.Encoding {
		w.covers = covers
	}
	if err := w.elfBegin(covers); err != nil {
		return err
	}
	pos = at
	line := int64(0)
	for _, c := range covers {
		if err := w.extra(pos, c.New, line, c.Old); err != nil {
			return err
		}
		if err := w.covered(c); err != nil {
			return err
		}
		pos = c.New + c.Length
		line = c.Old + c.Length
	}
	return w.extra(pos, end, line, -1)
}

// cover codes one cover, of which what came before ends at pos.
func (w *walk) match(c *script.Match, pos, end int64) error {
	d := w.d
	g := int64(w.Uint(d.gap, uint64(c.New-pos)))
	if g > end-pos {
		return formatError("a cover is out of bounds")
	}
	c.New = pos + g
	k := min(baseBits(int(min(g, 8)+1)), 3)
	c.Length = int64(w.Uint(d.length[k], uint64(c.Length)))
	jump := c.Old - w.ends[0]
	from := 0
	z := 0
	if g > 0 {
		z = 1
	}
	if w.Flag(&d.jump[z], jump == 0) {
		jump = 0
	} else if g > 0 && w.Flag(&d.line, jump == g) {
		jump = g
	} else {
		if w.Encoding {
			from = w.nearest(c.Old - g)
		}
		from = w.Tree(d.end[z][:], endBits, from)
		base := w.ends[from] + g
		jump = w.Int(d.seek[min(from, 1)], c.Old-base) + base - w.ends[0]
	}
	c.Old = w.ends[0] + jump
	if w.Short || c.Length < 1 || c.Length > end-c.New || jump > w.osize || jump < -w.osize || c.Old < 0 || c.Length > w.osize-c.Old {
		return formatError("a cover is out of bounds")
	}
	if off := c.Old - g - w.ends[from]; off < -nearEnd || off > nearEnd {
		from = lastEnds - 1
	}
	copy(w.ends[1:from+1], w.ends[:from])
	w.ends[0] = c.Old + c.Length
	return nil
}

// nearest returns the end from which old is told best.
func (w *walk) nearest(old int64) int {
	at, least := 0, 1<<10
	for i, e := range w.ends {
		n := bits.Len64(uint64(max(old-e, e-old)))
		if i > 0 {
			n += endBits
		}
		if n < least {
			at, least = i, n
		}
	}
	return at
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
		w.d.literals(nil, b, before)
	}
	if !w.bulk {
		for _, x := range w.last {
			w.d.code.See(x)
		}
	}
	for pos < end {
		if err := w.rest(); err != nil {
			return err
		}
		n := min(chunk, end-pos)
		b := w.new[:n]
		if w.Encoding {
			if err := readFull(w.e.new, b, pos); err != nil {
				return err
			}
		}
		if w.bulk {
			if err := w.literals(b); err != nil {
				return err
			}
		} else {
			w.d.literals(w.Coder, b, pos)
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
	maxTrain = 1 << 10
	maxGap   = 64 << 10
)

// literals codes bytes that are at pos of their file; without a coder the model
// is only shown them.
func (d *differ) literals(cd *model.Coder, b []byte, pos int64) {
	t := d.code
	c := &t.Contexts
	for i := range b {
		at := uint32(pos+int64(i)) & 3
		c1, c2, c3, c4 := t.At(1), t.At(2), t.At(3), t.At(4)
		c[0] = c1 * 0x27d4eb2f
		c[1] = (c1|c2<<8|at&1<<16)*0xc2b2ae35 + 2
		c[2] = (c1|c2<<8|c3<<16)*0x165667b1 + 3
		c[3] = (c2|c3<<8|at&1<<16)*0x2f0b4c47 + 4
		c[4] = (c4|t.At(8)<<8|at<<16)*0x3c6ef35f + 5
		c[5] = (t.Expected()|at<<9)*0x9e3779b1 + 6
		if cd == nil {
			t.Learn(b[i])
		} else {
			b[i] = t.Code(cd, b[i], int(at))
		}
	}
}

// covered codes the bytes of one cover.
func (w *walk) covered(c script.Match) error {
	for at := int64(0); at < c.Length; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if at > 0 {
			if err := w.rest(); err != nil {
				return err
			}
		}
		// Chunks end where words do.
		n := min(chunk-(c.New+at)&15, c.Length-at)
		if k := elf.Need(w.head) - len(w.head); len(w.ranges) > 0 && w.elf == nil && k > 0 {
			n = min(n, int64(k))
		}
		old := w.old[:n]
		if err := w.readOld(w.f, w.src, old, c.Old+at); err != nil {
			return err
		}
		if w.useSums && strings.HasSuffix(w.e.path, sumsSuffix) {
			w.patchSums(old)
		}
		new := w.new[:n]
		if w.Encoding {
			if err := readFull(w.e.new, new, c.New+at); err != nil {
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
