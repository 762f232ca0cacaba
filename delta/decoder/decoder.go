// Package decoder applies deltas on the device.
//
// It reads its delta strictly forward, and its memory does not depend on the size of the
// image. A delta with much new content needs a temporary file, of at most the size that
// its header says. Everything it reads is hostile: the delta, the old files and the old
// headers may be anything.
package decoder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/lz"
)

// Knows reports whether this decoder knows a feature.
func Knows(feature string) bool {
	return slices.Contains(delta.Features, feature) && (feature != delta.FeatureGo || deflate.GoKnown())
}

// MemoryLimit is what a program that decodes deltas of images sets as its memory limit
// (debug.SetMemoryLimit), in bytes, so as to stay within 32 MiB. Decoding takes up to
// 16 MiB at once and Go's runtime 4. With a limit of 20 MiB the collector ran thousands of
// times, and two images took twice the processor time (docs/BENCHMARKS.md).
const MemoryLimit = 23 << 20

// Decoder decodes one delta from a stream, strictly forward. It can be used once,
// by one goroutine.
type Decoder struct {
	r      *bufio.Reader
	header delta.Header
	used   bool
}

// New reads and checks the header. If the delta needs a feature that this decoder
// does not know, the error is a *delta.FeatureError. If r has no delta, the error
// wraps delta.ErrFormat.
//
// If r is a *bufio.Reader of at least 64 KiB, no byte after the delta is taken from
// it. Any other reader may be read beyond the end of the delta.
func New(r io.Reader) (*Decoder, error) {
	br := bufio.NewReaderSize(r, codec.Chunk)
	h, err := delta.ReadHeader(br, Knows)
	if err != nil {
		return nil, err
	}
	return &Decoder{r: br, header: h}, nil
}

// Header returns what the delta says about itself.
func (d *Decoder) Header() delta.Header { return d.header }

// tempFile is a temporary file that is made when it is needed.
type tempFile struct {
	dir string
	f   *os.File
}

func (t *tempFile) open() (lz.File, error) {
	f, err := os.CreateTemp(t.dir, "delta-*")
	if err != nil {
		return nil, err
	}
	t.f = f
	return f, os.Remove(f.Name())
}

func (t *tempFile) close() {
	if t.f != nil {
		t.f.Close()
	}
}

// Apply rebuilds the objects that are not omitted, in order, each into the sink
// that sink returns for it. A sink is committed only when all its bytes were
// written and have the right digest. On any error Apply aborts the current sink
// and returns at once; the objects committed before are not the whole image. The
// caller makes sure that the omitted objects are there.
//
// If the header says that a temporary file is needed (Header.Temp), it is in the
// directory temp, "" being the system's. It is removed as soon as it is open, so that
// nothing is left after a crash.
//
// Errors: *delta.OldError if old content is missing or has changed since the delta
// was made; *delta.MismatchError; one that wraps delta.ErrFormat; errors of old,
// of the sinks and of the context. Apply can be called once.
func (d *Decoder) Apply(ctx context.Context, old delta.Old, temp string, sink func(delta.ObjectInfo) (delta.Sink, error)) error {
	if d.used {
		return errors.New("a delta can be applied once")
	}
	d.used = true
	c := codec.NewDecoder(ctx, d.r, old, d.header.Bases, d.header.Size())
	if slices.Contains(d.header.Features, delta.FeatureFar) {
		file := &tempFile{dir: temp}
		defer file.close()
		c.Extend(file.open, d.header.Temp)
	}
	if slices.Contains(d.header.Features, delta.FeatureUnwind) {
		c.KnowUnwind()
	}
	if slices.Contains(d.header.Features, delta.FeatureSums) {
		c.Sums()
	}
	if slices.Contains(d.header.Features, delta.FeaturePacked) {
		c.Pack(nil)
	}
	if slices.Contains(d.header.Features, delta.FeatureApart) {
		c.Apart()
	}
	if slices.Contains(d.header.Features, delta.FeatureShow) {
		c.Show()
	}
	if slices.Contains(d.header.Features, delta.FeatureParts) {
		c.Parts()
	}
	for _, o := range d.header.Objects {
		if o.Encoding == delta.Omitted {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		out, err := sink(o)
		if err != nil {
			return err
		}
		if err := c.Decode(o, out); err != nil {
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
