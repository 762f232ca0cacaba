package delta

import (
	"io"

	"github.com/mender-app/mender-app/delta/elf"
)

// planChange chooses how one content is coded: from which old file, along which
// covers, or for itself.
func (e *encoder) planChange(en *entry, off int64, h *hostObject, cands []*oldFile) error {
	best := *en
	cost := int64(-1)
	for _, f := range cands {
		try := *en
		try.op = opDiffOf
		try.src = source{f.obj, f.path}
		try.osize = f.size
		if try.ref != nil && *try.ref == try.src {
			try.op = opDiff
		}
		covers, err := e.covers(off, en.size, h, f, elf.Off)
		if err != nil {
			return err
		}
		fit := int64(0)
		for _, c := range covers {
			fit += c.length
		}
		if fit <= en.size/8 {
			continue
		}
		try.covers, try.mode = covers, elf.Plain
		isElf, err := e.isElf(f)
		if err != nil {
			return err
		}
		if !isElf || en.size < 4<<10 {
			if cost < 0 {
				best, cost = try, 0
			}
			continue
		}
		options := []entry{try}
		masked, err := e.covers(off, en.size, h, f, elf.Plain)
		if err != nil {
			return err
		}
		if masked != nil {
			try.covers = masked
			options = append(options, try)
		}
		for _, o := range options {
			n, err := e.trial(&o)
			if err != nil {
				return err
			}
			if cost < 0 || n < cost {
				best, cost = o, n
			}
		}
	}
	*en = best
	return nil
}

func (e *encoder) isElf(f *oldFile) (bool, error) {
	var m [4]byte
	if f.size < 64 {
		return false, nil
	}
	err := readFull(e.old[f.obj].r, m[:], f.off)
	return string(m[:]) == "\x7fELF", err
}

// covers aligns a content with an old file, window by window; with a mode, on
// copies in which addresses are masked.
func (e *encoder) covers(off, size int64, h *hostObject, f *oldFile, mode elf.Mode) ([]cover, error) {
	var covers []cover
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
		if mode != elf.Off {
			old, new = elf.Mask(old, mode), elf.Mask(new, mode)
			if old == nil || new == nil {
				return nil, nil
			}
		}
		for _, c := range align(old, new) {
			c.new += at
			c.old += oat
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
		e.bases = append(e.bases, Base{o.image, o.Digest, o.Size, o.Kind})
		if err := e.store.Add(o.Digest, o.Kind, o.r, o.Size); err != nil {
			return err
		}
	}
	return nil
}
