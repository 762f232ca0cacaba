package codec

import (
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/model"
)

// unwindBatch is the number of rows after which a frame may end.
const unwindBatch = 4096

// minFDE is the least size of an FDE.
const minFDE = 16

// Functions follow one another in each of several sections. So the next one may be
// where one of the last unwindEnds sequences of functions ended.
const (
	unwindEndBits = 4
	unwindEnds    = 1 << unwindEndBits
)

// The numbers of a row, in the order in which they are coded.
const (
	unwindGap = iota // between the FDE before and this one
	unwindCIE
	unwindLen
	unwindSize
	unwindPC
	unwindLSDA
	unwindNumbers
)

// unwindCoder codes what is known about the unwind tables of a content (elf.Unwind),
// against those of its old file.
type unwindCoder struct {
	*run
	on      bool               // the delta has the feature
	has     [2]model.Prob      // without and with an old file
	follows [256]model.Prob    // the old row is the next one; by which rows were as predicted
	known   model.Prob         // there is an old row
	same    [256][2]model.Prob // all of the row is as predicted; likewise, and by trust
	// These are without and with an old row.
	right [unwindNumbers][2][64]model.Prob // a number is as predicted; by those before it
	near  [2]model.Prob                    // the function is where one of the sequences ended
	lsda  [2]model.Prob                    // there is an LSDA
	back  [2]model.Prob                    // it lies before the last one

	end [unwindEnds]model.Prob // which sequence it is

	// These are made when they are needed.
	plain, jump, gap, cie *model.UintModel
	step                  [unwindNumbers]*model.UintModel
	number                [unwindNumbers]*model.NumberModel
}

func newUnwindCoder(r *run) *unwindCoder {
	c := &unwindCoder{run: r, known: model.FreshProb}
	for _, p := range [][]model.Prob{c.has[:], c.follows[:], c.near[:], c.end[:], c.back[:], c.lsda[:]} {
		copy(p, model.FreshProbs(len(p)))
	}
	for i := range c.same {
		copy(c.same[i][:], model.FreshProbs(len(c.same[i])))
	}
	for i := range c.right {
		for k := range c.right[i] {
			copy(c.right[i][k][:], model.FreshProbs(len(c.right[i][k])))
		}
	}
	return c
}

// literal codes whether the unwind tables of a content without an old file are known, and
// what is known. Then it makes the content one without what is known.
func (c *unwindCoder) literal(e *content) (*elf.Unwind, error) {
	if !c.on || !c.Flag(&c.has[0], e.plan.Unwind != nil) {
		return nil, nil
	}
	return c.code(e, new(elf.Unwind))
}

// change does the same for a content that is changed from f, which is parsed as old. It
// returns f without what is known of that.
func (c *unwindCoder) change(e *content, f delta.File, old *elf.File) (*elf.Unwind, delta.File, error) {
	if !c.on || old == nil || !c.Flag(&c.has[1], e.plan.Unwind != nil) {
		return nil, f, nil
	}
	was := old.Unwind()
	if was != nil {
		f = toggledFile{f, was}
	} else {
		was = new(elf.Unwind)
	}
	old.IgnoreUnwind()
	u, err := c.code(e, was)
	return u, f, err
}

// toggledFile is an old file without what is known of its unwind tables.
type toggledFile struct {
	delta.File
	u *elf.Unwind
}

func (f toggledFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.u.Toggle(off, b[:n])
	return n, err
}

// toggledContent is the same of a content that is planned.
type toggledContent struct {
	io.ReaderAt
	u *elf.Unwind
}

func (f toggledContent) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(b, off)
	f.u.Toggle(off, b[:n])
	return n, err
}

// code codes what is known about the unwind tables of a content, against those of its old
// file.
func (c *unwindCoder) code(e *content, old *elf.Unwind) (*elf.Unwind, error) {
	if c.plain == nil {
		c.plain, c.jump, c.gap, c.cie = model.NewUintModel(), model.NewUintModel(), model.NewUintModel(), model.NewUintModel()
		for i := range c.step {
			c.step[i], c.number[i] = model.NewUintModel(), model.NewNumberModel()
		}
	}
	u := new(elf.Unwind)
	if c.Encoding {
		u = e.plan.Unwind
		plan := *e.plan
		plan.New = toggledContent{plan.New, u}
		e.plan = &plan
	}
	n, err := c.head(u, old, e.Size)
	if err == nil {
		err = c.rows(u, old, e.plan.UnwindFrom, n, e.Size)
	}
	if err != nil {
		return nil, err
	}
	if !c.Encoding {
		u.Sort()
	}
	c.stat("changes")
	c.share("unwind tables")
	return u, nil
}

func badUnwind() error { return delta.FormatErrorf("an unwind table is out of bounds") }

// head codes what comes before the rows, and returns their number.
func (c *unwindCoder) head(u, old *elf.Unwind, size int64) (int, error) {
	u.Head = old.Head + c.Int(c.plain, u.Head-old.Head)
	u.Frame = u.Head + c.Int(c.plain, u.Frame-u.Head)
	n := c.Uint(c.plain, uint64(len(u.Rows)))
	left := c.Int(c.plain, int64(len(u.Rows)-u.Table))
	u.Align = uint32(c.Raw(6, uint64(u.Align)))
	u.Spacing = uint8(c.Raw(3, uint64(u.Spacing)))
	u.Scale = uint8(c.Raw(2, uint64(u.Scale)))
	u.Unique = c.Raw(1, uint64(number(u.Unique))) != 0
	if c.Short || n > elf.MaxUnwindRows || int64(n) > size/minFDE || u.Head < 0 || u.Head > size || u.Frame < 0 || u.Frame > size || size > math.MaxInt32 || left < -elf.MaxUnwindRows || left > int64(n) {
		return 0, badUnwind()
	}
	u.Table = int(int64(n) - left)
	return int(n), nil
}

// number is 1 for true.
func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// unwindRows is the state of coding the rows of a content.
type unwindRows struct {
	*unwindCoder
	u, old *elf.Unwind
	newOf  []int32  // the new row of an old one, plus one
	rank   []uint32 // where an old row is in the order of functions
	cies   []uint16 // the new CIE of an old one, plus one

	last             int           // the last old row; -1: none
	before           elf.UnwindRow // the last row
	at               uint32        // where it ends
	history          uint32        // a bit for each of the last rows: 1 if it was not as predicted
	shift            uint32        // by how much the last function moved
	oldLSDA, newLSDA uint32        // the last ones
	ends             [unwindEnds]uint32
}

// rows codes n rows.
func (c *unwindCoder) rows(u, old *elf.Unwind, from []int32, n int, size int64) error {
	s := &unwindRows{unwindCoder: c, u: u, old: old, last: -1,
		newOf: make([]int32, len(old.Rows)), rank: make([]uint32, len(old.Rows)), cies: make([]uint16, len(old.CIEs))}
	for i, k := range old.Order() {
		s.rank[k] = uint32(i)
	}
	cies := u.CIEs
	if u.CIEs = nil; c.Encoding {
		defer func() { u.CIEs = cies }()
	} else {
		u.Rows = make([]elf.UnwindRow, 0, n)
	}
	for j := range n {
		if j%unwindBatch == unwindBatch-1 {
			if err := c.boundary(); err != nil {
				return err
			}
			if err := c.ctx.Err(); err != nil {
				return err
			}
		}
		var row elf.UnwindRow
		var cie elf.UnwindCIE
		i := -1
		if c.Encoding {
			row, cie = u.Rows[j], cies[u.Rows[j].CIE]
			if from != nil {
				i = int(from[j]) - 1
			}
		}
		i, err := s.row(&row, cie, i)
		if err != nil {
			return err
		}
		if c.Short || int64(row.At)+int64(row.Len)+4 > size || row.Len < minFDE-4 {
			return badUnwind()
		}
		if !c.Encoding {
			u.Rows = append(u.Rows, row)
		}
		if i >= 0 {
			s.newOf[i] = int32(j + 1)
		}
	}
	return nil
}

// row codes a row, that of the old row i if it is not -1, and returns i.
func (s *unwindRows) row(row *elf.UnwindRow, cie elf.UnwindCIE, i int) (int, error) {
	i, err := s.oldRow(i)
	if err != nil {
		return i, err
	}
	// Without an old row, a row is expected to be like the last one.
	pred, trust := s.before, 0
	pred.At, pred.LSDA = s.at, 0
	if i >= 0 {
		pred, trust = s.predict(i)
	}
	known := int(pred.CIE) < len(s.u.CIEs)
	if i >= 0 && s.Flag(&s.same[s.history&255][trust], known && *row == pred) {
		if !known {
			return i, badUnwind()
		}
		*row = pred
		s.history <<= 1
	} else {
		s.history = s.history<<1 | 1
		if err := s.changed(row, cie, pred, i >= 0); err != nil {
			return i, err
		}
	}
	s.passed(row, i)
	return i, nil
}

// oldRow codes which old row belongs to the next one; -1 if there is none.
func (s *unwindRows) oldRow(i int) (int, error) {
	if len(s.old.Rows) == 0 {
		return -1, nil
	}
	next := s.last + 1
	if next < len(s.old.Rows) && s.Flag(&s.follows[s.history&255], i == next) {
		return next, nil
	}
	if !s.Flag(&s.known, i >= 0) {
		return -1, nil
	}
	at := int64(next) + s.Int(s.jump, int64(i-next))
	if at < 0 || at >= int64(len(s.old.Rows)) {
		return -1, badUnwind()
	}
	return int(at), nil
}

// predict returns what is expected of the row that belongs to the old row i, and 1 if
// the place of the function can be trusted.
func (s *unwindRows) predict(i int) (pred elf.UnwindRow, trust int) {
	o := s.old.Rows[i]
	pred = o
	end := uint32(0)
	if i > 0 {
		end = s.old.Rows[i-1].At + 4 + uint32(s.old.Rows[i-1].Len)
	}
	pred.At = s.at + o.At - end
	pred.CIE = s.cies[o.CIE] - 1 // no CIE has the highest number
	if o.LSDA != 0 {
		pred.LSDA = s.newLSDA + (o.LSDA - s.oldLSDA)
	}
	pred.PC, trust = s.place(o, int(s.rank[i]))
	return pred, trust
}

// maxBefore is how many functions before another one are looked at for one whose new
// place is known.
const maxBefore = 16

// place predicts where an old function is now that has a rank among all of them.
func (s *unwindRows) place(o elf.UnwindRow, rank int) (pc uint32, trust int) {
	order := s.old.Order()
	for k := rank - 1; k >= max(0, rank-maxBefore); k-- {
		j := s.newOf[order[k]]
		if j == 0 {
			continue
		}
		b, n := &s.old.Rows[order[k]], &s.u.Rows[j-1]
		if k == rank-1 && s.aligned(b.PC+b.Size, s.old.Align) == o.PC {
			return s.aligned(n.PC+n.Size, s.u.Align), 1
		}
		return o.PC + (n.PC - b.PC), 0
	}
	return o.PC + s.shift, 0
}

// aligned returns where a function may begin from pc on. base is what its address has
// beyond pc.
func (s *unwindRows) aligned(pc, base uint32) uint32 {
	mask := uint32(1)<<s.u.Spacing - 1
	return (pc+base+mask)&^mask - base
}

// changed codes a row that is not as predicted, from an old row or not.
func (s *unwindRows) changed(row *elf.UnwindRow, cie elf.UnwindCIE, pred elf.UnwindRow, isOld bool) error {
	was := uint32(1) // which of the numbers are as predicted
	k := number(isOld)
	right := func(n int, is bool) bool {
		is = s.Flag(&s.right[n][k][was], is)
		was = was<<1 | number(is)
		return is
	}
	if !right(unwindGap, row.At == pred.At) {
		gap := s.Uint(s.gap, uint64(row.At-s.at))
		if gap > math.MaxInt32/2 {
			return badUnwind()
		}
		pred.At = s.at + uint32(gap)
	}
	row.At = pred.At

	n := len(s.u.CIEs)
	if !right(unwindCIE, row.CIE == pred.CIE && int(pred.CIE) < n) {
		v := s.Uint(s.cie, uint64(row.CIE))
		if v == uint64(n) && n < elf.MaxUnwindCIEs {
			cie.At = row.At - uint32(min(s.Uint(s.cie, uint64(row.At-cie.At)), math.MaxInt32))
			cie.LSDA = uint8(s.Raw(2, uint64(cie.LSDA/4))) * 4
			s.u.CIEs = append(s.u.CIEs, cie)
		} else if v >= uint64(n) {
			return badUnwind()
		}
		pred.CIE = uint16(v)
	}
	row.CIE = pred.CIE
	if int(row.CIE) >= len(s.u.CIEs) {
		return badUnwind()
	}
	lsda := s.u.CIEs[row.CIE].LSDA > 0

	like := uint32(row.CIE) & 127
	if !right(unwindLen, row.Len == pred.Len) {
		if isOld {
			pred.Len += uint16(s.Int(s.step[unwindLen], int64(row.Len)-int64(pred.Len)))
		} else {
			pred.Len = uint16(s.Number(s.number[unwindLen], uint64(row.Len), [3]uint32{uint32(pred.Len>>2) & 255, like, s.history & 255}))
		}
	}
	row.Len = pred.Len

	if !right(unwindSize, row.Size == pred.Size) {
		// Most sizes are multiples of a power of two. The others are coded as they are.
		x := [3]uint32{uint32(row.Len>>2)&127 | number(isOld)<<7, uint32(bits.Len32(s.before.Size)), like}
		mask := uint32(1)<<s.u.Scale - 1
		v := uint64(row.Size>>s.u.Scale) + 1
		if row.Size&mask != 0 {
			v = 0
		}
		if isOld {
			v = uint64(s.Int(s.step[unwindSize], int64(v)-int64(pred.Size>>s.u.Scale)-1) + int64(pred.Size>>s.u.Scale) + 1)
		} else {
			v = s.Number(s.number[unwindSize], v, x)
		}
		if v != 0 {
			row.Size = uint32(v-1) << s.u.Scale
		} else {
			row.Size = uint32(s.Raw(32, uint64(row.Size)))
		}
	} else {
		row.Size = pred.Size
	}

	if !isOld {
		pred.PC = s.aligned(s.ends[0], s.u.Align)
	}
	if !right(unwindPC, row.PC == pred.PC) {
		e := -1
		if s.Encoding {
			e = slices.IndexFunc(s.ends[:], func(end uint32) bool { return s.aligned(end, s.u.Align) == row.PC })
		}
		if s.Flag(&s.near[k], e >= 0) {
			pred.PC = s.aligned(s.ends[s.Tree(s.end[:], unwindEndBits, e)], s.u.Align)
		} else {
			pred.PC += uint32(s.Int(s.step[unwindPC], int64(int32(row.PC-pred.PC))))
		}
	}
	row.PC = pred.PC

	switch {
	case !lsda:
		row.LSDA = 0
	case right(unwindLSDA, row.LSDA == pred.LSDA):
		row.LSDA = pred.LSDA
	case !s.Flag(&s.lsda[k], row.LSDA != 0):
		row.LSDA = 0
	default:
		if pred.LSDA == 0 {
			pred.LSDA = s.newLSDA
		}
		d := int64(int32(row.LSDA - pred.LSDA))
		if back := s.Flag(&s.back[k], d < 0); back {
			d = -int64(s.Number(s.number[unwindLSDA], uint64(-d), [3]uint32{1 | k<<1}))
		} else {
			d = int64(s.Number(s.number[unwindLSDA], uint64(d), [3]uint32{k << 1, uint32(row.Len>>2) & 255, uint32(bits.Len32(row.Size))}))
		}
		row.LSDA = pred.LSDA + uint32(d)
	}
	return nil
}

// passed notes a row, which belongs to the old row i if that is not -1.
func (s *unwindRows) passed(row *elf.UnwindRow, i int) {
	// The function continues one of the sequences, or begins another.
	e := slices.IndexFunc(s.ends[:], func(end uint32) bool { return s.aligned(end, s.u.Align) == row.PC })
	if e < 0 {
		e = unwindEnds - 1
	}
	copy(s.ends[1:e+1], s.ends[:e])
	s.ends[0] = row.PC + row.Size
	if row.LSDA != 0 {
		s.newLSDA = row.LSDA
	}
	if i >= 0 {
		o := &s.old.Rows[i]
		s.last, s.shift = i, row.PC-o.PC
		s.cies[o.CIE] = row.CIE + 1
		if o.LSDA != 0 {
			s.oldLSDA = o.LSDA
		}
	}
	s.before, s.at = *row, row.At+4+uint32(row.Len)
}
