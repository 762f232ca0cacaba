package encoder

import (
	"runtime"
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/align"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// planChange chooses how one content is coded: from which old file, along which
// matches, or by itself.
func (e *encoder) planChange(t *target, h *object, cands []*oldFile) error {
	best := choice{plan: *t.plan, cost: -1}
	for _, f := range cands {
		if err := e.tryFile(t, h, f, len(cands) == 1, &best); err != nil {
			return err
		}
	}
	*t.plan = best.plan
	return nil
}

// smallELF is the size below which masked copies are always better, as they are for
// files of Go.
const smallELF = 64 << 10

// bigSort is the size of an old file from which the garbage collector runs before
// it is sorted.
const bigSort = 8 << 20

type choice struct {
	plan script.Content
	cost int64 // by trial; -1 is nothing yet
}

// from returns the plan that changes f into the target; the matches are missing.
func (t *target) from(f *oldFile) script.Content {
	c := *t.plan
	c.Op, c.Source, c.OldSize = script.ChangeOther, f.source(), f.size
	if t.Ref != nil && *t.Ref == c.Source {
		c.Op = script.Change
	}
	return c
}

// tryFile plans to change f into the content, and replaces best if that is cheaper.
func (e *encoder) tryFile(t *target, h *object, f *oldFile, only bool, best *choice) error {
	// A suffix array takes 13 bytes a byte of the old codec.Window.
	defer e.memory.take(16*min(f.size, codec.Window*3/2) + 6*min(t.Size, codec.Window))()
	try := t.from(f)
	var options []script.Content
	along := func(masked elf.Mode) error {
		o := try
		var err error
		if o.Matches, err = e.matches(t, h, f, masked); err == nil && o.Matches != nil {
			options = append(options, o)
		}
		return err
	}
	isELF, err := e.isELF(f)
	if err != nil {
		return err
	}
	isGo := false
	if isELF {
		if try.Mode, isGo, err = e.mode(f); err != nil {
			return err
		}
		if err := along(try.Mode); err != nil {
			return err
		}
	}
	if len(options) == 0 || !isGo && t.Size >= smallELF {
		if err := along(elf.Off); err != nil {
			return err
		}
	}
	options = slices.DeleteFunc(options, func(o script.Content) bool { return o.Uncovered(t.Size) >= t.Size-t.Size/8 })
	if len(options) == 0 {
		return nil
	}
	if !isELF {
		if best.cost < 0 {
			*best = choice{options[0], 0}
		}
		return nil
	}
	if len(options) == 1 && only {
		*best = choice{options[0], 0}
		return nil
	}
	for _, o := range options {
		n, err := codec.Cost(e.ctx, e.store, e.bases, t.Place, &o)
		if err != nil {
			return err
		}
		if best.cost < 0 || n < best.cost {
			*best = choice{o, n}
		}
	}
	return nil
}

func (e *encoder) isELF(f *oldFile) (bool, error) {
	var m [4]byte
	if f.size < 64 {
		return false, nil
	}
	err := readFull(e.old[f.obj].r, m[:], f.off)
	return string(m[:]) == "\x7fELF", err
}

// mode tells how an old file's code is to be read, and whether it is Go's.
func (e *encoder) mode(f *oldFile) (elf.Mode, bool, error) {
	b := make([]byte, min(f.size, codec.Window))
	if err := readFull(e.old[f.obj].r, b, f.off); err != nil {
		return elf.Off, false, err
	}
	mode, isGo := elf.ModeOf(b)
	return mode, isGo, nil
}

// matches aligns a content with an old file, window by window; with a mode, on
// copies in which addresses are masked.
func (e *encoder) matches(t *target, h *object, f *oldFile, mode elf.Mode) ([]script.Match, error) {
	var matches []script.Match
	size := t.Size
	if mode != elf.Off && (size > codec.Window || f.size > codec.Window*3/2) {
		return nil, nil
	}
	for at := int64(0); at < size; at += codec.Window {
		new := make([]byte, min(codec.Window, size-at))
		if err := readFull(h.r, new, t.off+at); err != nil {
			return nil, err
		}
		// The window of the old file is taken about the same place.
		oat := max(0, min(at-codec.Window/4, f.size-codec.Window*3/2))
		old := make([]byte, min(codec.Window*3/2, f.size-oat))
		if err := readFull(e.old[f.obj].r, old, f.off+oat); err != nil {
			return nil, err
		}
		codec.MaskSums(t.Path, old)
		codec.MaskSums(t.Path, new)
		if mode != elf.Off {
			old, new = elf.Mask(old, mode), elf.Mask(new, mode)
			if old == nil || new == nil {
				return nil, nil
			}
		}
		if len(old) > bigSort {
			// What was sorted before must not be there too: left to itself, the
			// garbage collector lets the heap double first.
			runtime.GC()
		}
		found, err := align.Find(e.ctx, old, new)
		if err != nil {
			return nil, err
		}
		for short := int64(16); len(found) > codec.MaxMatches; short *= 2 {
			found = slices.DeleteFunc(found, func(c script.Match) bool { return c.Length < short })
		}
		for _, c := range found {
			c.New += at
			c.Old += oat
			matches = append(matches, c)
		}
	}
	return matches, nil
}

// openStore makes all old objects readable for trials.
func (e *encoder) openStore() error {
	e.store = tarstore.New()
	for _, o := range e.old {
		e.bases = append(e.bases, delta.Base{Image: o.image, Digest: o.Digest, Size: o.Size, Kind: o.Kind})
		if err := e.store.Add(o.Digest, o.Kind, o.r, o.Size); err != nil {
			return err
		}
	}
	return nil
}
