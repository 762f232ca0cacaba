package encoder

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// object is an object that can be read at random.
type object struct {
	delta.Object
	image   string
	r       io.ReaderAt
	closers []func() error
	members []tarheader.Member // of a tar, without Raw
	tail    int64
	tar     bool // it parses as a tar
}

func (h *object) close() {
	for _, f := range h.closers {
		_ = f()
	}
}

// openObject makes o readable at random, checks its digest and size, and, for a
// tar, lists its members.
func openObject(ctx context.Context, o delta.Object, image, temp string) (*object, error) {
	h := &object{Object: o, image: image}
	if _, err := o.Digest.Sum(); err != nil {
		return nil, err
	}
	rc, err := o.Open()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	var n int64
	if ra, ok := rc.(io.ReaderAt); ok {
		h.r = ra
		h.closers = append(h.closers, rc.Close)
		n, err = io.Copy(sum, metered.Reader(ctx, io.NewSectionReader(ra, 0, 1<<62), nil))
	} else {
		f, ferr := os.CreateTemp(temp, "delta-*")
		if ferr != nil {
			rc.Close()
			return nil, ferr
		}
		h.r = f
		h.closers = append(h.closers, f.Close, func() error { return os.Remove(f.Name()) })
		n, err = io.Copy(io.MultiWriter(f, sum), metered.Reader(ctx, rc, nil))
		err = errors.Join(err, rc.Close())
	}
	if err == nil && n != o.Size {
		err = fmt.Errorf("object %s has %d bytes, not %d", o.Digest, n, o.Size)
	}
	if err == nil {
		if got := digest.OfHash(sum); got != o.Digest {
			err = fmt.Errorf("object %s has digest %s", o.Digest, got)
		}
	}
	if err != nil {
		h.close()
		return nil, err
	}
	if o.Kind == delta.Tar {
		h.tar = true
		w := tarheader.NewWalk(h.r, o.Size)
		for {
			m, err := w.Next()
			if err != nil {
				h.tar = err == io.EOF
				break
			}
			m.Raw = nil
			h.members = append(h.members, m)
		}
		h.tail = w.End()
	}
	return h, nil
}

// raw reads the header blocks of a member again.
func (h *object) raw(m *tarheader.Member, next int64) ([]byte, error) {
	b := make([]byte, m.Off-next)
	return b, readFull(h.r, b, next)
}

// readFull reads all of b at an offset.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
