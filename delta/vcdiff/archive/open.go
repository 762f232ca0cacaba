package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"time"

	"github.com/mender-app/mender-app/delta/vcdiff"
)

// Old opens content of the old image.
type Old interface {
	// OpenBlob opens the content with this SHA-256 (64 hex digits). For a delta of
	// a docker-archive this is an uncompressed layer with this diffID; for one of
	// an OCI layout it is a blob. If there is none, the error is an fs.ErrNotExist.
	// The content need not be verified. It is read in any order.
	OpenBlob(ctx context.Context, sha256 string) (Blob, error)
}

// A Blob is opened content.
type Blob interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// A Stater is an Old that knows the size of content without opening it. Check then
// opens nothing.
type Stater interface {
	Old
	// StatBlob returns the size, or an error as OpenBlob does.
	StatBlob(ctx context.Context, sha256 string) (int64, error)
}

// Check reports whether the old content that the members need is there and
// large enough, without reading it. See Needs for unchanged.
func (a *Archive) Check(ctx context.Context, old Old, unchanged bool) error {
	for _, m := range a.Members {
		if m.Source == "" || m.Kind == Unchanged && !unchanged {
			continue
		}
		if st, ok := old.(Stater); ok {
			size, err := st.StatBlob(ctx, m.Source)
			if err := fits(m, size, err); err != nil {
				return err
			}
			continue
		}
		b, err := openOld(ctx, old, m)
		if err != nil {
			return err
		}
		if err := b.Close(); err != nil {
			return err
		}
	}
	return nil
}

func openOld(ctx context.Context, old Old, m Member) (Blob, error) {
	b, err := old.OpenBlob(ctx, m.Source)
	if err != nil {
		return nil, fits(m, 0, err)
	}
	if err := fits(m, b.Size(), nil); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// fits reports whether old content of size bytes, or the error that came
// instead, is what the member needs.
func fits(m Member, size int64, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w: sha256:%s", m.Name, ErrMissing, m.Source)
	case err != nil:
		return fmt.Errorf("%s: open sha256:%s: %w", m.Name, m.Source, err)
	case size < m.sourceEnd:
		return fmt.Errorf("%s: %w: sha256:%s has %d bytes, the delta reads %d",
			m.Name, ErrDamaged, m.Source, size, m.sourceEnd)
	}
	return nil
}

// Content is a member's content. Read gives io.EOF only when all of it came
// and its digest, if it is known, is right: until then it is not to be used.
type Content struct {
	Size int64 // what Read gives in all, if nothing is wrong

	ctx  context.Context
	a    *Archive
	m    Member
	r    io.Reader
	old  Blob
	dec  *vcdiff.Reader
	sum  hash.Hash
	left int64
	err  error
}

// Open gives a member's content; of a Symlink there is none. The decoder of
// one Delta is kept for the next one: open one at a time to stay in the memory
// of one.
func (a *Archive) Open(ctx context.Context, m Member, old Old) (*Content, error) {
	c := &Content{Size: m.Size, ctx: ctx, a: a, m: m, sum: sha256.New()}
	switch m.Kind {
	case Verbatim:
		c.r = io.NewSectionReader(a.delta, m.off, m.size)
	case Delta, Unchanged:
		b, err := openOld(ctx, old, m)
		if err != nil {
			return nil, err
		}
		c.old = b
		if m.Kind == Unchanged {
			c.Size = b.Size()
			c.r = io.NewSectionReader(b, 0, c.Size)
			break
		}
		if err := c.decoder(); err != nil {
			_ = b.Close()
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		c.r = c.dec
	default:
		return nil, fmt.Errorf("%s: a %s has no content", m.Name, m.Kind)
	}
	c.left = c.Size
	return c, nil
}

// decoder takes the archive's decoder, or a new one if that is in use.
func (c *Content) decoder() error {
	a, delta := c.a, io.NewSectionReader(c.a.delta, c.m.off, c.m.size)
	if a.dec != nil && !a.busy {
		if err := a.dec.Reset(c.ctx, c.old, c.old.Size(), delta); err != nil {
			return err
		}
		c.dec, a.busy = a.dec, true
		return nil
	}
	r, err := vcdiff.NewReader(c.ctx, c.old, c.old.Size(), delta, a.Options)
	if err != nil {
		return err
	}
	c.dec = r
	if a.dec == nil {
		a.dec, a.busy = r, true
	}
	return nil
}

// Read gives the next bytes.
func (c *Content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if int64(n) > c.left {
		n, err = 0, fmt.Errorf("%w: longer than its headers say", ErrInvalid)
	}
	c.left -= int64(n)
	c.sum.Write(p[:n])
	if err != nil {
		c.err = c.end(err)
	}
	return n, c.err
}

// end makes of the reader's end the content's.
func (c *Content) end(err error) error {
	if err == io.EOF {
		sum := hex.EncodeToString(c.sum.Sum(nil))
		switch {
		case c.left > 0:
			err = fmt.Errorf("%w: %d bytes are missing", ErrInvalid, c.left)
		case c.m.SHA256 != "" && sum != c.m.SHA256:
			err = fmt.Errorf("%w: sha256 %s instead of %s", vcdiff.ErrChecksum, sum, c.m.SHA256)
		default:
			return io.EOF
		}
	}
	if errors.Is(err, vcdiff.ErrChecksum) && c.old != nil {
		// Is it the delta's fault or the old content's? Reading the latter
		// once more costs nothing that matters now.
		if sum, serr := digest(c.ctx, c.old); serr != nil {
			err = fmt.Errorf("%w (and the old content: %w)", err, serr)
		} else if sum != c.m.Source {
			err = fmt.Errorf("%w: sha256:%s reads as %s: %w", ErrDamaged, c.m.Source, sum, err)
		}
	}
	return fmt.Errorf("%s: %w", c.m.Name, err)
}

func digest(ctx context.Context, b Blob) (string, error) {
	h := sha256.New()
	buf := make([]byte, 64<<10)
	r := io.NewSectionReader(b, 0, b.Size())
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := r.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// Close frees what the content takes. It may be called more than once.
func (c *Content) Close() error {
	if c.err == nil {
		c.err = fs.ErrClosed
	}
	var err error
	if c.dec != nil {
		err = c.dec.Close()
		if c.dec == c.a.dec {
			c.a.busy = false
		}
		c.dec = nil
	}
	if c.old != nil {
		err = errors.Join(err, c.old.Close())
		c.old = nil
	}
	return err
}

// WriteTar writes the members that keep accepts (nil: all) as an archive to
// w, in the order of Members. After an error what was written is not to be
// used; it has no tar end, so that no reader takes it for whole.
func (a *Archive) WriteTar(ctx context.Context, w io.Writer, old Old, keep func(Member) bool) error {
	tw := tar.NewWriter(w)
	for _, m := range a.Members {
		if keep != nil && !keep(m) {
			continue
		}
		if err := a.write(ctx, tw, m, old); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (a *Archive) write(ctx context.Context, tw *tar.Writer, m Member, old Old) (err error) {
	h := &tar.Header{Name: m.Name, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if m.Kind == Symlink {
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, m.target, 0o777
		return tw.WriteHeader(h)
	}
	c, err := a.Open(ctx, m, old)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	h.Typeflag, h.Size = tar.TypeReg, c.Size
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	// Not tar's ReadFrom: it would skip over zeros by seeking.
	_, err = io.CopyBuffer(struct{ io.Writer }{tw}, c, buf)
	return err
}
