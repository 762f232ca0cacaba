package vcdiff

import (
	"errors"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/delta/vcdiff/lzma"
)

// secondary decodes compressed sections. Each kind of section is one stream
// through all windows.
type secondary struct {
	id   Secondary
	mem  *budget
	lzma [sections]*lzma.Decoder
	dict [sections][]byte // kept for the next delta
}

func (s *secondary) reset(id Secondary, mem *budget) {
	s.id, s.mem = id, mem
	for _, d := range s.lzma {
		if d != nil {
			d.Reset()
		}
	}
}

// section returns a reader of size bytes, decompressed from n bytes of r.
func (s *secondary) section(i int, r io.Reader, n, size int64) (io.Reader, error) {
	if s.id != LZMA {
		return nil, &SecondaryError{Secondary: s.id}
	}
	d := s.lzma[i]
	if d == nil {
		d = &lzma.Decoder{Alloc: func(n int64) ([]byte, error) {
			err := s.mem.grow(&s.dict[i], n)
			return s.dict[i], err
		}}
		s.lzma[i] = d
	}
	return d, secondaryError(d.Section(r, n, size))
}

// secondaryError turns an error of package lzma into one of this package.
func secondaryError(err error) error {
	switch {
	case errors.Is(err, lzma.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, lzma.ErrUnsupported):
		return &SecondaryError{Secondary: LZMA, Err: err}
	}
	return err // a lzma.ErrDict wraps this package's ErrTooLarge
}
