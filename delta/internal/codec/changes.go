package codec

import (
	"slices"
	"sort"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/branch"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// maxSpan is how many bytes of a match share a bit "all as predicted".
const maxSpan = 64

// The model of literals is trained with the bytes that the old file has between two
// matches: at most maxTrain bytes, few more than there are literals, and only if the
// matches are at most maxGap apart. More than maxTrain saved nothing.
const (
	maxTrain = 256
	maxGap   = 64 << 10
)

// changeCoder codes contents that are changed from an old file: the matches of
// each window, then the bytes outside of them and those that differ.
type changeCoder struct {
	*run
	out      *output
	checks   *oldChecks
	sums     *md5Lists
	literals *literalCoder
	matches  matchCoder
	elf      elfCoder
	unwind   *unwindCoder
	same     *model.FlagModel // a span is as predicted
	word     *model.WordModel
	instr    *model.InstructionModel // nil in a delta without that feature

	// State of the content that is being coded.
	e        *content
	f        delta.File
	known    *elf.Unwind // of the new file, or nil
	inBulk   bool
	shows    bool             // old bytes are shown before new ones in bulk
	part     branch.Converter // of the new bytes in bulk
	old, new [Chunk]byte
	last     []byte // some of the bytes before
	pred     [maxSpan + elf.MaxField]byte
	set      *model.InstructionSet // of the span that is being coded, if instr codes it
	recent   uint32                // a bit for each of the last spans: 1 if it was not as predicted
}

func newChangeCoder(r *run, out *output, checks *oldChecks, sums *md5Lists, literals *literalCoder) *changeCoder {
	return &changeCoder{run: r, unwind: literals.unwind, out: out, checks: checks, sums: sums, literals: literals,
		matches: newMatchCoder(r), elf: newELFCoder(r),
		same: model.NewFlagModel(4, 12, 9, 256), word: model.NewWordModel()}
}

// code codes a content that is changed from f, an old file that was verified. The
// first match is coded relative to oldAt.
func (c *changeCoder) code(e *content, f delta.File, oldAt int64) error {
	c.e, c.f, c.recent, c.last = e, f, 0, c.last[:0]
	c.elf.begin(e, f)
	c.matches.begin(f.Size(), oldAt)
	c.inBulk = c.Flag(&c.literals.inBulk, e.plan.Bulk)
	window := int64(Window)
	if c.elf.beginFile() {
		window, c.matches.aligned = ELFWindow, true
	}
	var err error
	if c.known, c.f, err = c.unwind.change(e, f, c.elf.old); err != nil {
		return err
	}
	c.elf.f = c.f
	planned := e.plan.Matches
	for at := int64(0); at < e.Size; at += window {
		end := min(at+window, e.Size)
		var now []script.Match
		now, planned = cut(planned, end)
		if err := c.window(at, end, now); err != nil {
			return err
		}
	}
	return nil
}

// cut splits matches at a place in the new file. It does not change its argument.
func cut(matches []script.Match, at int64) (before, behind []script.Match) {
	n := sort.Search(len(matches), func(i int) bool { return matches[i].New >= at })
	before, behind = matches[:n], matches[n:]
	if n == 0 {
		return before, behind
	}
	m := matches[n-1]
	k := at - m.New
	if m.Length <= k {
		return before, behind
	}
	before = slices.Clone(before)
	before[n-1].Length = k
	return before, append([]script.Match{{New: at, Old: m.Old + k, Length: m.Length - k}}, behind...)
}

// window codes the matches between at and end, then the bytes.
func (c *changeCoder) window(at, end int64, planned []script.Match) error {
	matches, err := c.matches.window(at, end, planned)
	if err != nil {
		return err
	}
	if err := c.elf.beginWindow(matches); err != nil {
		return err
	}
	oldAt := int64(0)
	for _, m := range matches {
		if err := c.uncovered(at, m.New, oldAt, m.Old); err != nil {
			return err
		}
		if err := c.covered(m); err != nil {
			return err
		}
		at, oldAt = m.New+m.Length, m.Old+m.Length
	}
	return c.uncovered(at, end, oldAt, -1)
}

// uncovered codes bytes that no match covers. The model is first trained with the
// bytes that the old file has between the same matches, from before to behind.
func (c *changeCoder) uncovered(pos, end, before, behind int64) error {
	if pos == end {
		return nil
	}
	unit := c.elf.instructions(before)
	if n := min(behind-before, end-pos+32, maxTrain); n > 0 && behind-before < maxGap && !c.inBulk {
		b := c.old[:n]
		if err := c.checks.read(c.f, c.e.src, b, before); err != nil {
			return err
		}
		c.literals.begin(unit)
		c.literals.model(nil, b, before)
	}
	c.literals.begin(unit)
	if c.inBulk && c.shows {
		if err := c.show(pos, end, before, behind); err != nil {
			return err
		}
	}
	if !c.inBulk {
		c.literals.see(c.last, pos-int64(len(c.last)))
	}
	for pos < end {
		if err := c.boundary(); err != nil {
			return err
		}
		n := min(Chunk, end-pos)
		b := c.new[:n]
		if c.Encoding {
			if err := readFull(c.e.plan.New, b, pos); err != nil {
				return err
			}
		}
		if c.inBulk {
			if err := c.bulkBytes(b, &c.part, pos); err != nil {
				return err
			}
		} else {
			c.literals.model(c.Coder, b, pos)
			c.stat("extra")
			if c.Price {
				c.share("new bytes: " + c.elf.area(before))
			}
		}
		if err := c.put(b); err != nil {
			return err
		}
		pos += n
	}
	return nil
}

// covered codes the bytes of one match.
func (c *changeCoder) covered(m script.Match) error {
	for at := int64(0); at < m.Length; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if at > 0 {
			if err := c.boundary(); err != nil {
				return err
			}
		}
		// Chunks end at the end of a word.
		n := min(Chunk-(m.New+at)&15, m.Length-at)
		if k := c.elf.missing(); k > 0 {
			n = min(n, int64(k))
		}
		old := c.old[:n]
		if err := c.checks.read(c.f, c.e.src, old, m.Old+at); err != nil {
			return err
		}
		c.sums.patch(c.e.Path, old)
		new := c.new[:n]
		if c.Encoding {
			if err := readFull(c.e.plan.New, new, m.New+at); err != nil {
				return err
			}
		}
		c.spans(old, new, m, at)
		c.stat("changes")
		if err := c.put(new); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// put writes bytes of the file.
func (c *changeCoder) put(b []byte) error {
	c.elf.see(b)
	if n := len(b); n > 0 {
		c.last = append(c.last[:0], b[max(0, n-16):]...)
	}
	if c.known != nil {
		c.known.Toggle(c.elf.at-int64(len(b)), b)
	}
	return c.out.write(b)
}
