package codec

import (
	"math/bits"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Limits of one changed content.
const (
	Window     = 32 << 20  // bytes of the new file whose matches are coded together
	ELFWindow  = 128 << 20 // the same where addresses are predicted
	MaxMatches = 1 << 16   // matches of one window
)

// A match that does not continue from the end of the last one may continue from the
// end of an earlier one, which its own end then replaces. If it begins farther than
// nearEnd from all of these, its end replaces the oldest one.
const (
	endBits  = 4
	lastEnds = 1 << endBits
	nearEnd  = 16
)

// matchCoder codes the matches of a changed content.
type matchCoder struct {
	*run
	count    *model.UintModel
	gap      *model.UintModel
	length   [4]*model.UintModel
	jump     [2]model.Prob           // whether the old place does not jump; by the gap
	diagonal model.Prob              // whether it moves as far as the gap
	end      [2][lastEnds]model.Prob // which of the ends; by the gap
	seek     [2]*model.UintModel     // from the last end, and from another

	oldSize int64
	ends    [lastEnds]int64 // where matches ended in the old file, the latest first
	matches []script.Match  // decoding: of this window
}

func newMatchCoder(r *run) matchCoder {
	c := matchCoder{run: r, count: model.NewUintModel(), gap: model.NewUintModel(), diagonal: model.FreshProb}
	for i := range c.length {
		c.length[i] = model.NewUintModel()
	}
	for i := range c.seek {
		c.seek[i] = model.NewUintModel()
		copy(c.end[i][:], model.FreshProbs(lastEnds))
	}
	copy(c.jump[:], model.FreshProbs(2))
	return c
}

// begin starts a content that is changed from an old file of oldSize bytes. Its
// first match is coded relative to oldAt.
func (c *matchCoder) begin(oldSize, oldAt int64) {
	c.oldSize, c.ends = oldSize, [lastEnds]int64{oldAt}
}

// window codes the matches between at and end, and returns them. They are valid
// until the next call.
func (c *matchCoder) window(at, end int64, matches []script.Match) ([]script.Match, error) {
	n := c.Uint(c.count, uint64(len(matches)))
	if n > MaxMatches {
		return nil, delta.FormatErrorf("too many matches")
	}
	if !c.Encoding {
		matches = c.matches[:0]
	}
	for i := range int(n) {
		var m script.Match
		if c.Encoding {
			m = matches[i]
		}
		if err := c.match(&m, at, end); err != nil {
			return nil, err
		}
		at = m.New + m.Length
		if !c.Encoding {
			matches = append(matches, m)
		}
	}
	c.stat("matches")
	c.share("matches")
	if !c.Encoding {
		c.matches = matches
	}
	return matches, nil
}

// match codes one match; the one before ended at pos.
func (c *matchCoder) match(m *script.Match, pos, end int64) error {
	g := int64(c.Uint(c.gap, uint64(m.New-pos)))
	if g > end-pos {
		return delta.FormatErrorf("a match is out of bounds")
	}
	m.New = pos + g
	k := min(bitsFor(int(min(g, 8)+1)), 3)
	m.Length = int64(c.Uint(c.length[k], uint64(m.Length)))
	jump := m.Old - c.ends[0]
	from := 0
	z := 0
	if g > 0 {
		z = 1
	}
	if c.Flag(&c.jump[z], jump == 0) {
		jump = 0
	} else if g > 0 && c.Flag(&c.diagonal, jump == g) {
		jump = g
	} else {
		if c.Encoding {
			from = c.nearest(m.Old - g)
		}
		from = c.Tree(c.end[z][:], endBits, from)
		base := c.ends[from] + g
		jump = c.Int(c.seek[min(from, 1)], m.Old-base) + base - c.ends[0]
	}
	m.Old = c.ends[0] + jump
	if c.Short || m.Length < 1 || m.Length > end-m.New || jump > c.oldSize || jump < -c.oldSize || m.Old < 0 || m.Length > c.oldSize-m.Old {
		return delta.FormatErrorf("a match is out of bounds")
	}
	if off := m.Old - g - c.ends[from]; off < -nearEnd || off > nearEnd {
		from = lastEnds - 1
	}
	copy(c.ends[1:from+1], c.ends[:from])
	c.ends[0] = m.Old + m.Length
	return nil
}

// nearest returns the end from which old takes the fewest bits to code.
func (c *matchCoder) nearest(old int64) int {
	at, least := 0, 1<<10
	for i, e := range c.ends {
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
