package delta

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// Reader decodes one delta from a stream, strictly forward. It is for one use
// by one goroutine.
type Reader struct {
	r      *bufio.Reader
	header Header
	used   bool
}

// NewReader reads and checks the header. A delta that needs what this decoder
// does not know is refused with a *FeatureError, one that is not a delta with an
// error that wraps ErrFormat.
func NewReader(r io.Reader) (*Reader, error) {
	br := bufio.NewReaderSize(r, chunk)
	h, err := readHeader(br)
	if err != nil {
		return nil, err
	}
	return &Reader{r: br, header: h}, nil
}

// Header returns what the delta says about itself.
func (d *Reader) Header() Header { return d.header }

// Apply rebuilds the objects that are not omitted, in order, each into the sink
// that sink returns for it. A sink is committed only when all its bytes were
// written and have the right digest; on any error the sink at work is aborted
// and Apply returns at once, so what was committed before must not be taken for
// the whole image. Whether the omitted objects are there is for the caller to
// look after.
//
// Errors: *OldError for old content that is missing or not what it was when
// the delta was made; *MismatchError; one that wraps ErrFormat; those of old,
// the sinks and the context. It can be called once.
func (d *Reader) Apply(ctx context.Context, old Old, sink func(ObjectInfo) (Sink, error)) error {
	if d.used {
		return errors.New("a delta can be applied once")
	}
	d.used = true
	f, err := newFrameReader(d.r)
	if err != nil {
		return err
	}
	defer f.close()
	s := newSession(ctx, f, old, d.header.Bases)
	for _, o := range d.header.Objects {
		if o.Encoding == Omitted {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		out, err := sink(o)
		if err != nil {
			return err
		}
		if err := s.decode(o, out); err != nil {
			err = fmt.Errorf("object %d (%s): %w", o.Index, o.Digest, err)
			out.Abort(err)
			return err
		}
		if err := out.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) decode(o ObjectInfo, out Sink) error {
	return s.blame(s.rebuild(o, out))
}

func (s *session) rebuild(o ObjectInfo, out Sink) error {
	w := bufio.NewWriterSize(out, chunk)
	s.out, s.sum = w, sha256.New()
	if err := s.object(o, nil); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var sum [sha256.Size]byte
	s.sum.Sum(sum[:0])
	if got := digestOf(sum); got != o.Digest {
		return &MismatchError{Object: o, Got: got}
	}
	return nil
}
