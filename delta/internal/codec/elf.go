package codec

import (
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// headSize is how much of the beginning of a new file is kept for the predictor.
const headSize = 4096

// elfCoder codes how addresses are predicted, and sets up the prediction.
type elfCoder struct {
	*run
	modes  [4]model.Prob
	shift  *model.UintModel
	fields *fieldModel
	apart  bool // addresses whose parts stand apart are predicted

	// State of the content that is being coded.
	e       *content
	f       delta.File
	old     *elf.File // or nil
	mode    elf.Mode
	shifts  elf.Shift
	ranges  []elf.Range
	current *elf.Predictor // of this window, or nil
	found   []elf.Field
	space   elf.Space
	head    []byte // of the new file
	at      int64  // how many bytes of the new file were rebuilt
}

func newELFCoder(r *run) elfCoder {
	c := elfCoder{run: r, shift: model.NewUintModel(), fields: newFieldModel()}
	copy(c.modes[:], model.FreshProbs(4))
	return c
}

// begin starts a content that is changed from f.
func (c *elfCoder) begin(e *content, f delta.File) {
	c.e, c.f, c.head, c.at = e, f, c.head[:0], 0
	c.old, c.current, c.ranges, c.mode = nil, nil, nil, elf.Off
}

// beginFile codes how addresses of the content are predicted, and reports whether
// they are.
func (c *elfCoder) beginFile() bool {
	if c.e.noELF {
		return false
	}
	f, err := elf.Parse(c.f, c.f.Size())
	if err != nil {
		return false
	}
	c.old, c.mode = f, elf.Mode(c.Tree(c.modes[:], 2, int(c.e.plan.Mode)))
	return c.mode != elf.Off
}

// beginWindow sets up the prediction for a window with the given matches, if
// package elf knows both files.
func (c *elfCoder) beginWindow(matches []script.Match) error {
	c.current, c.ranges = nil, nil
	if c.mode == elf.Off {
		return nil
	}
	c.ranges = slices.Grow(c.space.Ranges[:0], len(matches))
	for _, m := range matches {
		c.ranges = append(c.ranges, elf.Range{Old: m.Old, New: m.New, Len: m.Length})
	}
	c.space.Ranges = c.ranges
	if c.old.Go() {
		var s elf.Shift
		if c.Encoding {
			var err error
			if s, err = c.findShift(); err != nil {
				return err
			}
		}
		s.Func = c.Int(c.shift, s.Func)
		s.Types = c.Int(c.shift, s.Types)
		s.Text = c.Int(c.shift, s.Text)
		s.Table = c.Int(c.shift, s.Table)
		s.Find = c.Int(c.shift, s.Find)
		c.shifts = s
	}
	return nil
}

// findShift finds the elf.Shift of the new file, when encoding.
func (c *elfCoder) findShift() (s elf.Shift, err error) {
	n, err := elf.Parse(c.e.plan.New, c.e.Size)
	if err != nil {
		return s, nil
	}
	head := make([]byte, min(c.e.Size, headSize))
	if err := readFull(c.e.plan.New, head, 0); err != nil {
		return s, err
	}
	p, err := elf.New(c.old, head, slices.Clone(c.ranges), c.mode, s, nil)
	if err != nil {
		return s, nil
	}
	return p.ShiftTo(n), nil
}

// see gets the next rebuilt bytes of the new file.
func (c *elfCoder) see(b []byte) {
	if n := headSize - len(c.head); n > 0 {
		c.head = append(c.head, b[:min(n, len(b))]...)
	}
	if c.current != nil {
		c.current.See(c.at, b)
	}
	c.at += int64(len(b))
}

// missing returns how many more bytes of the new file are needed to make a
// predictor; 0 or less if there is one already, or will be none.
func (c *elfCoder) missing() int {
	if len(c.ranges) == 0 || c.current != nil {
		return 0
	}
	return elf.Need(c.head) - len(c.head)
}

// predictor returns the window's predictor; nil until enough of the new file is
// known to make one.
func (c *elfCoder) predictor() *elf.Predictor {
	if c.current == nil && len(c.ranges) > 0 && len(c.head) >= elf.Need(c.head) {
		p, err := elf.New(c.old, c.head, c.ranges, c.mode, c.shifts, &c.space)
		if err != nil {
			c.ranges = nil
			return nil
		}
		if c.current = p; c.apart {
			p.Apart()
		}
	}
	return c.current
}

// scan returns the fields in old, which is part of a match from at on.
func (c *elfCoder) scan(old []byte, m script.Match, at int64) []elf.Field {
	c.found = c.found[:0]
	if c.current != nil {
		c.found = c.current.Scan(c.found, old, m.Old+at, m.New+at, m.Old, m.Old+m.Length)
	}
	return c.found
}

// unit returns the size of the words at an old offset.
func (c *elfCoder) unit(off int64) int {
	if c.current != nil {
		return c.current.Unit(off)
	}
	return 4
}

// instructions returns the size of what instructions consist of, before an old offset.
func (c *elfCoder) instructions(off int64) int {
	if c.current != nil && off > 0 {
		return c.current.Instructions(off - 1)
	}
	return 1
}

// instructionSet returns what the code at an old offset consists of; nil for code without
// instructions of 32 bits, and for all else.
func (c *changeCoder) instructionSet(off int64) *model.InstructionSet {
	if c.instr == nil || c.elf.current == nil {
		return nil
	}
	kind, ok := c.elf.current.Code(off)
	switch {
	case ok && kind == elf.CodeA64:
		return model.A64
	case ok && kind == elf.CodeA32:
		return model.A32
	}
	return nil
}

// area names what lies at an old offset, for the account of what is coded.
func (c *elfCoder) area(off int64) string {
	if c.old == nil {
		return "other files"
	}
	return c.old.Area(uint64(off))
}
