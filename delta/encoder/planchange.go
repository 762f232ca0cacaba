package encoder

import (
	"io"
	"runtime"
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/align"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// planChange chooses how one content is coded: from which old file and with which
// matches, or by itself.
func (e *encoder) planChange(t *target, h *object, cands []*oldFile) error {
	best := choice{plan: *t.plan, cost: -1}
	for _, f := range cands {
		if err := e.tryFile(t, h, f, len(cands) == 1, &best); err != nil {
			return err
		}
	}
	if best.plan.Op.Changes() {
		if fresh, err := e.betterNew(t, best.plan); fresh || err != nil {
			return err
		}
	}
	*t.plan = best.plan
	return nil
}

// A change is compared with coding the content by itself if the content is larger than
// smallTrial, and more than one part in plainShare of it is new. A match counts as
// matchBytes new bytes.
const (
	smallTrial = 4 << 10
	plainShare = 16
	matchBytes = 4
)

// betterNew reports whether a content takes fewer bytes by itself than changed from an
// old file that it resembles here and there. Both are coded in bulk: matches within a
// long literal can be cheaper than those with the old file.
func (e *encoder) betterNew(t *target, change script.Content) (bool, error) {
	uncovered := change.Uncovered(t.Size)
	if t.Size < smallTrial || uncovered+matchBytes*int64(len(change.Matches)) < t.Size/plainShare {
		return false, nil
	}
	if change.Source.Path == t.Path && uncovered < t.Size/2 {
		return false, nil // an older version of the file
	}
	defer e.memory.take(10*t.Size + 8<<20)()
	cost := func(c *script.Content) (int64, error) {
		return codec.Cost(e.ctx, parse.New(parse.Quick, lz.Window, t.Size), e.store, e.bases, t.Place, c)
	}
	change.Bulk = true
	changed, err := cost(&change)
	if err != nil {
		return false, err
	}
	fresh := *t.plan
	fresh.Op, fresh.Parts, fresh.Unwind = script.Bulk, t.parts(), t.unwind
	alone, err := cost(&fresh)
	return alone < changed, err
}

// smallELF is the size below which masked copies are always better, as they are for
// files of Go.
const smallELF = 64 << 10

// Masked copies are taken without a trial if they cover nearly all of a large program for
// arm or arm64, or of one of any size that has changed in so many places that plain copies
// lose their way: to align it once more takes half of the time. Of 16 such programs, plain
// copies gave the smaller delta of none, and half as many bytes again for libvips; of 57
// programs that changed less, they gave that of four.
const (
	largeELF     = 16 << 20
	changedShare = 128 // one part in it is new
)

// masksWin reports whether masked copies of a program are better than plain ones for sure.
// uncovered is how many of its bytes no match of the masked copies covers.
func masksWin(size, uncovered int64, apart bool) bool {
	return uncovered < size/plainShare && (uncovered >= size/changedShare || apart && size >= largeELF)
}

// bigSort is the size of an old file from which the garbage collector runs before
// it is sorted.
const bigSort = 8 << 20

type choice struct {
	plan script.Content
	cost int64 // found by trial; -1 if there is no plan yet
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
	// Sorting takes up to six bytes a byte of the old window.
	newWindow, oldWindow := alignWindows(t.Size, f.size)
	need := 8*min(f.size, oldWindow) + 6*min(t.Size, newWindow)
	if max(f.size, t.Size) <= maxMasked {
		need += 2 * (max(f.size, oldWindow) - oldWindow + max(t.Size, newWindow) - newWindow)
	}
	defer e.memory.take(need)()
	try := t.from(f)
	var options []script.Content
	var old *elf.Unwind // of f, if t has unwind tables
	window := int64(codec.Window)
	along := func(masked elf.Mode) error {
		o := try
		var err error
		if o.Matches, err = e.matches(t, h, f, masked, try.Unwind, old); err == nil && o.Matches != nil {
			o.Matches = fewer(o.Matches, window)
			options = append(options, o)
		}
		return err
	}
	isELF, err := e.isELF(f)
	if err != nil {
		return err
	}
	isGo, sure := false, false // sure: masked copies are better
	if isELF {
		try.Unwind = t.unwind
		old = e.oldUnwind(t, f)
		if try.UnwindFrom, err = e.alignUnwind(t.unwind, old); err != nil {
			return err
		}
		window = codec.ELFWindow
		var apart, split bool
		if try.Mode, isGo, apart, split, err = e.mode(f); err != nil {
			return err
		}
		try.Apart = apart && !e.opt.NoApart
		try.Split = split && !e.opt.NoParts
		try.Show = !e.opt.NoShow
		if err := along(try.Mode); err != nil {
			return err
		}
		sure = isGo || t.Size < smallELF || len(options) > 0 && masksWin(t.Size, options[0].Uncovered(t.Size), apart)
	}
	if len(options) == 0 || !sure {
		if err := along(elf.Off); err != nil {
			return err
		}
	}
	if len(options) == 2 && slices.Equal(options[0].Matches, options[1].Matches) {
		options = options[:1]
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
		n, err := codec.Cost(e.ctx, nil, e.store, e.bases, t.Place, &o)
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

// mode returns what elf.ModeOf says about an old file.
func (e *encoder) mode(f *oldFile) (mode elf.Mode, isGo, apart, split bool, err error) {
	b := make([]byte, min(f.size, maxMasked))
	if err := readFull(e.old[f.obj].r, b, f.off); err != nil {
		return elf.Off, false, false, false, err
	}
	mode, isGo, apart, split = elf.ModeOf(b)
	return mode, isGo, apart, split, nil
}

// maxMasked is the largest file of which a masked copy is made. The copies of two files of
// 160 MiB took the encoder to 980 MiB, and halved their delta.
const maxMasked = 192 << 20

// alignWindows returns how many bytes of a new and of an old file are aligned at a
// time: all if both are at most twice codec.Window.
func alignWindows(newSize, oldSize int64) (newWindow, oldWindow int64) {
	if n := max(newSize, oldSize); n <= 2*codec.Window {
		return n, n
	}
	return codec.Window, codec.Window * 3 / 2
}

// matches aligns a content with an old file, window by window; with a mode, on
// copies in which addresses are masked.
func (e *encoder) matches(t *target, h *object, f *oldFile, mode elf.Mode, unwind, oldUnwind *elf.Unwind) ([]script.Match, error) {
	read := func(r io.ReaderAt, u *elf.Unwind, off, at, size int64) ([]byte, error) {
		b := make([]byte, size)
		err := readFull(r, b, off+at)
		if u != nil {
			u.Toggle(at, b)
		}
		return b, err
	}
	oldBytes := func(at, size int64) ([]byte, error) { return read(e.old[f.obj].r, oldUnwind, f.off, at, size) }
	newBytes := func(at, size int64) ([]byte, error) { return read(h.r, unwind, t.off, at, size) }
	if mode != elf.Off {
		if max(t.Size, f.size) > maxMasked {
			return nil, nil
		}
		// What an address leads to may be in another window.
		masked := func(bytes func(at, size int64) ([]byte, error), size int64) (func(at, size int64) ([]byte, error), error) {
			b, err := bytes(0, size)
			if err != nil {
				return nil, err
			}
			if b = elf.Mask(b, mode); b == nil {
				return nil, nil
			}
			return func(at, size int64) ([]byte, error) { return b[at : at+size], nil }, nil
		}
		var err error
		if oldBytes, err = masked(oldBytes, f.size); oldBytes == nil {
			return nil, err
		}
		if newBytes, err = masked(newBytes, t.Size); newBytes == nil {
			return nil, err
		}
	}
	var matches []script.Match
	newWindow, oldWindow := alignWindows(t.Size, f.size)
	for at := int64(0); at < t.Size; at += newWindow {
		new, err := newBytes(at, min(newWindow, t.Size-at))
		if err != nil {
			return nil, err
		}
		// The window of the old file surrounds the same place.
		oat := max(0, min(at-(oldWindow-newWindow)/2, f.size-oldWindow))
		old, err := oldBytes(oat, min(oldWindow, f.size-oat))
		if err != nil {
			return nil, err
		}
		codec.MaskSums(t.Path, old)
		codec.MaskSums(t.Path, new)
		if len(old) > bigSort {
			// Free the memory of earlier sorting: left to itself, the garbage
			// collector lets the heap double first.
			runtime.GC()
		}
		found, err := align.Find(e.ctx, old, new)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			c.New += at
			c.Old += oat
			if k := len(matches) - 1; k >= 0 && c.New == at && c.New == matches[k].New+matches[k].Length && c.Old == matches[k].Old+matches[k].Length {
				matches[k].Length += c.Length // it continues a match of the last window
				continue
			}
			matches = append(matches, c)
		}
	}
	return matches, nil
}

// fewer leaves out the shortest matches if a window of that size has more than
// codec.MaxMatches.
func fewer(matches []script.Match, window int64) []script.Match {
	out := matches[:0]
	for len(matches) > 0 {
		at := matches[0].New - matches[0].New%window
		n := 0
		for n < len(matches) && matches[n].New < at+window {
			n++
		}
		now := matches[:n]
		matches = matches[n:]
		// One more may come from the window before.
		for short := int64(16); len(now) >= codec.MaxMatches; short *= 2 {
			now = slices.DeleteFunc(now, func(c script.Match) bool { return c.Length < short })
		}
		out = append(out, now...)
	}
	return out
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
