// Package filedelta applies a delta to a single file: in our format (package delta),
// VCDIFF as xdelta3 writes it, or BSDIFF40. The delta's first bytes say which.
//
// A delta is read before it can be verified. So the update module runs the decoder in
// a process of its own that has given up its rights: it has three open files and can
// open no others.
package filedelta

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/bsdiff"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/vcdiff"
)

// Request is a delta to apply. The files are open and are read from their start.
type Request struct {
	Old    *os.File
	Delta  *os.File
	New    *os.File      // empty; written but not synced
	Digest digest.Digest // of Old
	// Size is the announced size of the new file, or -1. Max is the greatest size that
	// may be written.
	Size, Max int64
}

// ErrDelta: the delta is malformed, does not make the announced file, or does not fit
// the old file.
var ErrDelta = errors.New("the delta cannot be applied")

// vcdiffMagic is what a VCDIFF delta begins with (RFC 3284, 4.1).
const vcdiffMagic = "\xd6\xc3\xc4"

// maxVCDIFF bounds the buffers of a VCDIFF delta, in bytes. xdelta3's windows of
// 8 MiB fit, with its secondary compression.
const maxVCDIFF = 20 << 20

// Apply writes the new file. It returns an ErrDelta, or an error from the files. The
// caller compares the digest of the new file.
func Apply(ctx context.Context, q Request) error {
	var magic [8]byte
	if _, err := q.Delta.ReadAt(magic[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	out := &bounded{w: q.New, left: q.Max}
	var err error
	switch {
	case string(magic[:]) == bsdiff.Magic:
		err = q.bsdiff(ctx, out)
	case bytes.HasPrefix(magic[:], []byte(vcdiffMagic)):
		err = q.vcdiff(ctx, out)
	default:
		err = q.own(ctx, out)
	}
	if err != nil {
		return wrap(err)
	}
	if q.Size >= 0 && q.Max-out.left != q.Size {
		return fmt.Errorf("%w: it makes %d bytes, but %d were announced", ErrDelta, q.Max-out.left, q.Size)
	}
	return nil
}

// wrap makes an error an ErrDelta unless it comes from the files or the context.
func wrap(err error) error {
	var path *os.PathError
	if errors.As(err, &path) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDelta, err)
}

func (q Request) bsdiff(ctx context.Context, out io.Writer) error {
	size := q.Size
	if size < 0 {
		var err error
		if size, err = bsdiff.NewSize(q.Delta); err != nil {
			return err
		}
		if size > q.Max {
			return errTooLarge
		}
	}
	oldSize, err := sizeOf(q.Old)
	if err != nil {
		return err
	}
	deltaSize, err := sizeOf(q.Delta)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 64<<10)
	if err := bsdiff.Decode(ctx, w, q.Old, oldSize, q.Delta, deltaSize, size); err != nil {
		return err
	}
	return w.Flush()
}

func (q Request) vcdiff(ctx context.Context, out io.Writer) error {
	oldSize, err := sizeOf(q.Old)
	if err != nil {
		return err
	}
	r, err := vcdiff.NewReader(ctx, q.Old, oldSize, q.Delta, vcdiff.Options{MaxMemory: maxVCDIFF, MaxTarget: q.Max})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(out, r)
	return err
}

// own applies a delta in our format. It makes one file, from the old file alone.
func (q Request) own(ctx context.Context, out io.Writer) error {
	d, err := decoder.New(q.Delta)
	if err != nil {
		return err
	}
	h := d.Header()
	switch {
	case len(h.Objects) != 1:
		return fmt.Errorf("it makes %d objects instead of one file", len(h.Objects))
	case q.Size >= 0 && h.Objects[0].Size != q.Size || h.Objects[0].Size > q.Max:
		return errTooLarge
	case h.Temp > 0:
		return errors.New("it needs a temporary file, which is allowed only for the delta of an image")
	case h.Objects[0].Encoding == delta.Omitted && h.Objects[0].Digest != q.Digest:
		return fmt.Errorf("it does not have %s", h.Objects[0].Digest)
	case h.Objects[0].Encoding == delta.Omitted: // the new file is the old one
		oldSize, err := sizeOf(q.Old)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, io.NewSectionReader(q.Old, 0, oldSize))
		return err
	}
	return d.Apply(ctx, &old{q: &q}, "", func(delta.ObjectInfo) (delta.Sink, error) { return sink{out}, nil })
}

// old is the one old file, as a blob.
type old struct{ q *Request }

func (o *old) OpenFile(_ context.Context, in delta.Digest, path string) (delta.File, error) {
	if in != o.q.Digest || path != "" {
		return nil, fmt.Errorf("%s: %w", in, delta.ErrNoObject)
	}
	size, err := sizeOf(o.q.Old)
	if err != nil {
		return nil, err
	}
	return section{io.NewSectionReader(o.q.Old, 0, size)}, nil
}

func (o *old) Headers(_ context.Context, in delta.Digest) (delta.HeaderReader, error) {
	return nil, fmt.Errorf("%s: %w", in, delta.ErrNoObject)
}

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// sink passes the one object on.
type sink struct{ io.Writer }

func (sink) Commit() error { return nil }
func (sink) Abort(error)   {}

var errTooLarge = errors.New("it does not make a file of the announced size")

// bounded writes at most left bytes.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errTooLarge
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}

func sizeOf(f *os.File) (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
