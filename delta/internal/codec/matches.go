package codec

import (
	"math/bits"
	"slices"

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

// How the old place of a match was coded: it follows the last match in the old file,
// or moves as far as the gap; or it is near the last end, or an earlier one.
const (
	follows = iota
	moves
	nearLast
	nearEarlier
	numPlaces
)

// matchCoder codes the matches of a changed content.
type matchCoder struct {
	*run
	count    *model.UintModel
	gap      *model.NumberModel
	jump     [2][numPlaces]model.Prob // whether the old place does not jump; by the gap
	diagonal [numPlaces]model.Prob    // whether it moves as far as the gap
	end      [2][lastEnds]model.Prob  // which of the ends; by the gap
	back     [4]model.Prob            // whether it lies before that end
	seek     *model.NumberModel       // its distance from that end
	length   *model.NumberModel

	oldSize int64
	aligned bool            // matches are likely to begin where instructions do
	last    script.Match    // the one before; New is the gap before it
	place   uint32          // how its old place was coded
	ends    [lastEnds]int64 // where matches ended in the old file, the latest first
	matches []script.Match  // decoding: of this window
}

func newMatchCoder(r *run) matchCoder {
	c := matchCoder{run: r, count: model.NewUintModel(), gap: model.NewNumberModel(), seek: model.NewNumberModel(), length: model.NewNumberModel()}
	for i := range c.end {
		copy(c.end[i][:], model.FreshProbs(lastEnds))
		copy(c.jump[i][:], model.FreshProbs(numPlaces))
	}
	copy(c.diagonal[:], model.FreshProbs(numPlaces))
	copy(c.back[:], model.FreshProbs(len(c.back)))
	return c
}

// begin starts a content that is changed from an old file of oldSize bytes. Its
// first match is coded relative to oldAt.
func (c *matchCoder) begin(oldSize, oldAt int64) {
	c.oldSize, c.ends = oldSize, [lastEnds]int64{oldAt}
	c.aligned, c.last, c.place = false, script.Match{}, follows
}

// window codes the matches between at and end, and returns them. They are valid
// until the next call.
func (c *matchCoder) window(at, end int64, matches []script.Match) ([]script.Match, error) {
	n := c.Uint(c.count, uint64(len(matches)))
	if n > MaxMatches {
		return nil, delta.FormatErrorf("too many matches")
	}
	if !c.Encoding {
		matches = slices.Grow(c.matches[:0], int(n))
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

// size returns the number of bits of a distance, at most most.
func size(d int64, most uint32) uint32 {
	return min(uint32(bits.Len64(uint64(max(d, -d)))), most)
}

// phase returns how a place lies among instructions.
func (c *matchCoder) phase(at int64) uint32 {
	if !c.aligned {
		return 4
	}
	return uint32(at & 3)
}

// match codes one match; the one before ended at pos.
func (c *matchCoder) match(m *script.Match, pos, end int64) error {
	before := size(c.last.Length, 15)
	g := int64(c.Number(c.gap, uint64(m.New-pos), [3]uint32{c.phase(pos), before, size(c.last.New, 7)<<2 | c.place}))
	if g > end-pos {
		return delta.FormatErrorf("a match is out of bounds")
	}
	m.New = pos + g
	jump := m.Old - c.ends[0]
	from := 0
	place := uint32(follows)
	z := 0
	if g > 0 {
		z = 1
	}
	if c.Flag(&c.jump[z][c.place], jump == 0) {
		jump = 0
	} else if g > 0 && c.Flag(&c.diagonal[c.place], jump == g) {
		jump, place = g, moves
	} else {
		if c.Encoding {
			from = c.nearest(m.Old - g)
		}
		from = c.Tree(c.end[z][:], endBits, from)
		if place = nearLast; from > 0 {
			place = nearEarlier
		}
		base := c.ends[from] + g
		jump = c.distance(m.Old-base, min(uint32(from), 3), [3]uint32{0, size(g, 7), before}) + base - c.ends[0]
	}
	m.Old = c.ends[0] + jump
	off := m.Old - g - c.ends[from]
	m.Length = int64(c.Number(c.length, uint64(m.Length), [3]uint32{c.phase(m.New), size(g, 7), place<<4 | size(off, 15)}))
	if c.Short || m.Length < 1 || m.Length > end-m.New || jump > c.oldSize || jump < -c.oldSize || m.Old < 0 || m.Length > c.oldSize-m.Old {
		return delta.FormatErrorf("a match is out of bounds")
	}
	c.last, c.place = script.Match{New: g, Length: m.Length}, place
	if off < -nearEnd || off > nearEnd {
		from = lastEnds - 1
	}
	copy(c.ends[1:from+1], c.ends[:from])
	c.ends[0] = m.Old + m.Length
	return nil
}

// distance codes how far the old place d is from an end.
func (c *matchCoder) distance(d int64, from uint32, contexts [3]uint32) int64 {
	back := c.Flag(&c.back[from], d < 0)
	contexts[0] = from << 1
	if back {
		contexts[0]++
		d = -d
	}
	d = int64(c.Number(c.seek, uint64(d), contexts))
	if back {
		return -d
	}
	return d
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
