package delta

import (
	"context"
	"fmt"
	"io"
	"io/fs"
)

// Store is an Old over tars and blobs that can be read at random, such as the
// files of an unpacked archive. It keeps an index of each tar's files in memory
// and is for the build host, for tests and for use by hand.
type Store struct {
	objects map[Digest]*stored
}

type stored struct {
	r     io.ReaderAt
	size  int64
	kind  Kind
	files map[string][2]int64 // offset and size
}

// NewStore returns a Store with nothing in it.
func NewStore() *Store { return &Store{objects: map[Digest]*stored{}} }

// Add adds an object. It does not check that r has the digest. A tar that does
// not parse is taken in as a tar of the members before the fault.
func (s *Store) Add(d Digest, kind Kind, r io.ReaderAt, size int64) error {
	o := &stored{r: r, size: size, kind: kind}
	if kind == Tar {
		o.files = map[string][2]int64{}
		w := tarWalk{r: r, size: size}
		for {
			m, err := w.next()
			if err != nil {
				break
			}
			if m.path == "" {
				continue
			}
			if m.file() {
				o.files[m.path] = [2]int64{m.off, m.size}
			} else {
				delete(o.files, m.path)
			}
		}
	}
	s.objects[d] = o
	return nil
}

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// OpenFile implements Old.
func (s *Store) OpenFile(_ context.Context, in Digest, path string) (File, error) {
	o := s.objects[in]
	if o == nil {
		return nil, fmt.Errorf("%s: %w", in, ErrNoObject)
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

// Headers implements Old.
func (s *Store) Headers(_ context.Context, in Digest) (HeaderReader, error) {
	o := s.objects[in]
	if o == nil || o.kind != Tar {
		return nil, fmt.Errorf("%s: %w", in, ErrNoObject)
	}
	return &headerWalk{tarWalk{r: o.r, size: o.size}}, nil
}

type headerWalk struct{ t tarWalk }

func (h *headerWalk) Next() ([]byte, error) {
	m, err := h.t.next()
	return m.raw, err
}

func (h *headerWalk) Close() error { return nil }
