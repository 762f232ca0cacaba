package delta

import (
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/align"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// planChange chooses how one content is coded: from which old file, along which
// covers, or for itself.
func (e *encoder) planChange(en *entry, off int64, h *hostObject, cands []*oldFile) error {
	best := choice{entry: *en, cost: -1}
	for _, f := range cands {
		if err := e.tryFile(*en, off, h, f, len(cands) == 1, &best); err != nil {
			return err
		}
	}
	*en = best.entry
	return nil
}

// smallELF is up to where masked copies are sure to be better. They are for Go's
// files, too.
const smallELF = 64 << 10

// bigSort is from where the memory of sorting counts among Options.Memory.
const bigSort = 8 << 20

type choice struct {
	entry
	cost int64 // by trial; -1 is nothing yet
}

// tryFile makes best the best way to change f into the content, if it is better.
func (e *encoder) tryFile(try entry, off int64, h *hostObject, f *oldFile, only bool, best *choice) error {
	// A suffix array takes 13 bytes a byte of the old window.
	defer e.memory.take(16*min(f.size, window*3/2) + 6*min(try.size, window))()
	try.op = opDiffOf
	try.src = source{f.obj, f.path}
	try.osize = f.size
	if try.ref != nil && *try.ref == try.src {
		try.op = opDiff
	}
	var options []entry
	along := func(masked elf.Mode) error {
		o := try
		var err error
		if o.covers, err = e.covers(try.path, off, try.size, h, f, masked); err == nil && o.covers != nil {
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
		if try.mode, isGo, err = e.mode(f); err != nil {
			return err
		}
		if err := along(try.mode); err != nil {
			return err
		}
	}
	if len(options) == 0 || !isGo && try.size >= smallELF {
		if err := along(elf.Off); err != nil {
			return err
		}
	}
	options = slices.DeleteFunc(options, func(o entry) bool { return o.uncovered() >= o.size-o.size/8 })
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
		n, err := e.trial(&o)
		if err != nil {
			return err
		}
		if best.cost < 0 || n < best.cost {
			*best = choice{o, n}
		}
	}
	return nil
}

// memory is a bound on bytes in use.
type memory struct {
	mu         sync.Mutex
	free       sync.Cond
	used, most int64
}

// take waits until n bytes are free, or nothing else is in use, and returns how
// to give them back.
func (m *memory) take(n int64) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.used > 0 && m.used+n > m.most {
		m.free.Wait()
	}
	m.used += n
	return func() {
		m.mu.Lock()
		m.used -= n
		m.mu.Unlock()
		m.free.Broadcast()
	}
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
	b := make([]byte, min(f.size, window))
	if err := readFull(e.old[f.obj].r, b, f.off); err != nil {
		return elf.Off, false, err
	}
	mode, isGo := elf.ModeOf(b)
	return mode, isGo, nil
}

// covers aligns a content with an old file, window by window; with a mode, on
// copies in which addresses are masked.
func (e *encoder) covers(path string, off, size int64, h *hostObject, f *oldFile, mode elf.Mode) ([]script.Match, error) {
	var covers []script.Match
	if mode != elf.Off && (size > window || f.size > window*3/2) {
		return nil, nil
	}
	for at := int64(0); at < size; at += window {
		new := make([]byte, min(window, size-at))
		if err := readFull(h.r, new, off+at); err != nil {
			return nil, err
		}
		// The window of the old file is taken about the same place.
		oat := max(0, min(at-window/4, f.size-window*3/2))
		old := make([]byte, min(window*3/2, f.size-oat))
		if err := readFull(e.old[f.obj].r, old, f.off+oat); err != nil {
			return nil, err
		}
		maskSums(path, old)
		maskSums(path, new)
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
		for short := int64(16); len(found) > maxCovers; short *= 2 {
			found = slices.DeleteFunc(found, func(c script.Match) bool { return c.Length < short })
		}
		for _, c := range found {
			c.New += at
			c.Old += oat
			covers = append(covers, c)
		}
	}
	return covers, nil
}

// trial returns what a content would cost by itself, in bytes.
func (e *encoder) trial(en *entry) (int64, error) {
	f, err := newFrameWriter(io.Discard)
	if err != nil {
		return 0, err
	}
	defer f.close()
	s := newSession(e.ctx, f, e.store, e.bases)
	s.limit = en.size
	c := *en
	if err := s.rest(); err != nil {
		return 0, err
	}
	if err := s.content(&c); err != nil {
		return 0, err
	}
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.size, nil
}

// openStore makes all old objects readable for trials.
func (e *encoder) openStore() error {
	e.store = NewStore()
	for _, o := range e.old {
		e.bases = append(e.bases, Base{Image: o.image, Digest: o.Digest, Size: o.Size, Kind: o.Kind})
		if err := e.store.Add(o.Digest, o.Kind, o.r, o.Size); err != nil {
			return err
		}
	}
	return nil
}
