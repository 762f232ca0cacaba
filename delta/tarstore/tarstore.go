// Package tarstore provides old content from tars: from tars that can be read at
// random, and the headers of a tar that is read as a stream. It knows nothing about
// the coding of deltas.
package tarstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/readahead"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// Store is a delta.Old over tars and blobs that can be read at random, such as the
// files of an unpacked archive. It keeps an index of each tar's files in memory. It
// is for the build host and for tests.
type Store struct {
	objects map[delta.Digest]*stored
}

type stored struct {
	r     io.ReaderAt
	size  int64
	kind  delta.Kind
	files map[string][2]int64 // offset and size
}

// New returns an empty Store.
func New() *Store { return &Store{objects: map[delta.Digest]*stored{}} }

// Add adds an object. It does not check that r has the digest. If a tar does not
// parse, only the members before the fault are added.
func (s *Store) Add(d delta.Digest, kind delta.Kind, r io.ReaderAt, size int64) error {
	o := &stored{r: r, size: size, kind: kind}
	if kind == delta.Tar {
		o.files = map[string][2]int64{}
		w := tarheader.NewWalk(readahead.New(r, size), size)
		for {
			m, err := w.Next()
			if err != nil {
				break
			}
			if m.Path == "" {
				continue
			}
			if m.File() {
				o.files[m.Path] = [2]int64{m.Off, m.Size}
			} else {
				delete(o.files, m.Path)
			}
		}
	}
	s.objects[d] = o
	return nil
}

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// OpenFile implements delta.Old.
func (s *Store) OpenFile(_ context.Context, in delta.Digest, path string) (delta.File, error) {
	o := s.objects[in]
	if o == nil {
		return nil, fmt.Errorf("%s: %w", in, delta.ErrNoObject)
	}
	if path == "" {
		return section{io.NewSectionReader(o.r, 0, o.size)}, nil
	}
	f, ok := o.files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return section{io.NewSectionReader(o.r, f[0], f[1])}, nil
}

// Headers implements delta.Old.
func (s *Store) Headers(_ context.Context, in delta.Digest) (delta.HeaderReader, error) {
	o := s.objects[in]
	if o == nil || o.kind != delta.Tar {
		return nil, fmt.Errorf("%s: %w", in, delta.ErrNoObject)
	}
	return NewHeadersAt(o.r, o.size), nil
}

type headerWalk struct{ *tarheader.Walk }

func (h *headerWalk) Next() ([]byte, error) {
	m, err := h.Walk.Next()
	return m.Raw, err
}

func (h *headerWalk) Close() error { return nil }
