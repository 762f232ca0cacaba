package codec

import (
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/branch"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// New bytes of a changed program often resemble old ones that no match covers: a function
// whose registers were assigned anew, for example. So old bytes are shown to the bulk part
// before the new ones, as the predictor says that they are now, and with their branches
// converted. Those shown lie behind the match before the new bytes, and before the match
// behind them.
const (
	leastShown = 4       // new bytes before which old ones are shown
	mostShown  = 4 << 10 // bytes shown after a match, and before one
	moreShown  = 64      // that many more than there are new bytes
)

// shown returns how many old bytes are shown, from before on and up to behind, before n new
// bytes. behind is negative if no match follows.
func shown(n, before, behind, oldSize int64) (first, last int64) {
	if n < leastShown {
		return 0, 0
	}
	most := min(n+moreShown, mostShown)
	if behind < 0 {
		return min(most, oldSize-before), 0
	}
	if gap := behind - before; gap >= 0 && gap <= 2*most {
		return gap, 0
	}
	return min(most, oldSize-before), min(most, behind)
}

// Shown returns the most bytes that are shown of an old file, with what aligns them.
func Shown(matches []script.Match, size, oldSize int64) (n int64) {
	at, before := int64(0), int64(0)
	add := func(end, behind int64) {
		if end > at {
			first, last := shown(end-at, before, behind, oldSize)
			n += first + last + 9
		}
	}
	for _, m := range matches {
		add(m.New, m.Old)
		at, before = m.New+m.Length, m.Old+m.Length
	}
	add(size, -1)
	return n
}

// show shows old bytes before the new ones from pos to end, and sets what converts these.
func (c *changeCoder) show(pos, end, before, behind int64) error {
	c.part = branch.Converter{}
	if c.elf.current == nil {
		return nil
	}
	c.part.Begin(c.elf.branches(before), 0)
	first, last := shown(end-pos, before, behind, c.f.Size())
	if err := c.showOld(first, before, pos); err != nil {
		return err
	}
	if err := c.showOld(last, behind-last, end-last); err != nil {
		return err
	}
	return c.frames.show(nil, pos)
}

// showOld shows n old bytes, as they would be at a new offset.
func (c *changeCoder) showOld(n, old, new int64) error {
	if n == 0 {
		return nil
	}
	b, pred := c.old[:n], c.new[:n]
	if err := c.checks.read(c.f, c.e.src, b, old); err != nil {
		return err
	}
	copy(pred, b)
	p := c.elf.current
	c.elf.found = p.Scan(c.elf.found[:0], b, old, new, old, old+n)
	for i := range c.elf.found {
		f := &c.elf.found[i]
		p.Predict(f, b[f.Off:], pred[f.Off:])
	}
	part := branch.Converter{Kind: c.part.Kind}
	part.Convert(pred, uint32(new), false)
	return c.frames.show(pred, new)
}

// branches returns how branches are converted in new bytes behind an old offset.
func (c *elfCoder) branches(off int64) branch.Kind {
	if off == 0 {
		return branch.None
	}
	kind, ok := c.current.Code(off - 1)
	if !ok {
		return branch.None
	}
	return PartKinds[kind]
}

// PartKinds says how each kind of part is converted.
var PartKinds = [...]branch.Kind{elf.CodeA32: branch.A32, elf.CodeThumb: branch.Thumb, elf.CodeA64: branch.A64,
	elf.CodeX86: branch.X86, elf.Pairs: branch.Pairs, elf.Triples: branch.Triples,
	elf.GoFunctions: branch.GoFunctions, elf.GoSequences: branch.GoSequences}
