package codec

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Old files are verified by CRC-32C. Files that a content is changed from are
// verified before they are used, because the models depend on their bytes; copies
// are verified after they were written. The delta has only two sums for each group,
// which identify a damaged file. The SHA-256 decides whether the object is right.

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // made at its first use

const (
	// CheckPrime is the modulus of the sums of a group.
	CheckPrime = 4294967291
	// CheckGroup is the number of copied files after which their sums are compared.
	CheckGroup = 256
)

// group gathers the checksums h[i] of a group of old files: the sum of h[i] and
// that of i*h[i], both modulo a prime.
type group struct {
	files      []script.Source
	sum, ipsum uint64
}

func (g *group) reset() { g.files, g.sum, g.ipsum = g.files[:0], 0, 0 }

func (g *group) add(src script.Source, crc uint32) {
	g.files = append(g.files, src)
	n := uint64(len(g.files))
	h := uint64(crc) % CheckPrime
	g.sum = (g.sum + h) % CheckPrime
	g.ipsum = (g.ipsum + n*h) % CheckPrime
}

// headerCheck is the sum of the first n headers of a base. It is compared only after
// another error, to find out whether the headers are the cause.
type headerCheck struct {
	base int
	n    uint64
	sum  uint32
}

// oldChecks opens old files and headers, and verifies them.
type oldChecks struct {
	*run
	reads
	old     delta.Old
	bases   []delta.Base
	changed group // files that contents are changed from
	copied  group
	checked []headerCheck // headers that are read for the object
}

// open opens an old file. size < 0 accepts any size.
func (c *oldChecks) open(src script.Source, size int64) (delta.File, error) {
	b := c.bases[src.Base]
	f, err := c.old.OpenFile(c.ctx, b.Digest, src.Path)
	if err != nil {
		e := &delta.OldError{Base: b, Path: src.Path, Problem: delta.NoFile, Err: err}
		if errors.Is(err, delta.ErrNoObject) {
			e.Problem = delta.NoBase
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open old file %q: %w", src.Path, err)
		}
		return nil, e
	}
	if size >= 0 && f.Size() != size {
		err := fmt.Errorf("%d bytes, not %d", f.Size(), size)
		f.Close()
		return nil, &delta.OldError{Base: b, Path: src.Path, Problem: delta.DamagedFile, Err: err}
	}
	c.opened(c.key(src), f.Size())
	return c.counted(f), nil
}

// read reads all of b from an old file.
func (c *oldChecks) read(f delta.File, src script.Source, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, delta.ErrFormat) {
		return err
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &delta.OldError{Base: c.bases[src.Base], Path: src.Path, Problem: delta.DamagedFile, Err: err}
}

// openHeaders opens the headers of a base.
func (c *oldChecks) openHeaders(base int) (delta.HeaderReader, error) {
	in := c.bases[base].Digest
	h, err := c.old.Headers(c.ctx, in)
	if err != nil {
		return nil, err
	}
	return &countedHeaders{HeaderReader: h, reads: &c.reads, in: in}, nil
}

// verify reads and verifies the old files that contents are changed from.
func (c *oldChecks) verify(contents ...*content) error {
	g := &c.changed
	g.reset()
	for _, e := range contents {
		if e.Size == 0 || !e.op.Changes() {
			continue
		}
		crc, err := c.crcOf(e.src, e.oldSize)
		if err != nil {
			return err
		}
		g.add(e.src, crc)
	}
	return c.compare(g)
}

func (c *oldChecks) crcOf(src script.Source, size int64) (crc uint32, err error) {
	k := c.key(src)
	if crc, ok := c.checksum(k, size); ok {
		return crc, nil
	}
	f, err := c.open(src, size)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for off := int64(0); off < size; {
		if err := c.ctx.Err(); err != nil {
			return 0, err
		}
		b := c.buf[:min(Chunk, size-off)]
		if err := c.read(f, src, b, off); err != nil {
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli(), b)
		off += int64(len(b))
	}
	c.learn(k, size, crc)
	return crc, nil
}

// verifyCopies verifies the copied files if the group is full, or if end is set.
func (c *oldChecks) verifyCopies(end bool) error {
	if len(c.copied.files) < CheckGroup && !end {
		return nil
	}
	defer c.copied.reset()
	return c.compare(&c.copied)
}

// compare codes the sums of a group. When decoding, its error names the damaged
// file.
func (c *oldChecks) compare(g *group) error {
	n := len(g.files)
	if n == 0 {
		return nil
	}
	sum, ipsum := c.Raw(32, g.sum), g.ipsum
	if n > 1 {
		ipsum = c.Raw(32, g.ipsum)
	}
	c.stat("checks")
	c.share("checksums")
	if sum == g.sum && ipsum == g.ipsum {
		return nil
	}
	if c.Short || sum >= CheckPrime || ipsum >= CheckPrime {
		return delta.FormatErrorf("a frame is cut short")
	}
	bad := func(src script.Source, others string) error {
		return &delta.OldError{Base: c.bases[src.Base], Path: src.Path, Others: others, Problem: delta.DamagedFile}
	}
	if n == 1 {
		return bad(g.files[0], "")
	}
	ds := (g.sum + CheckPrime - sum) % CheckPrime
	di := (g.ipsum + CheckPrime - ipsum) % CheckPrime
	for i := range uint64(n) {
		if ds != 0 && (i+1)*ds%CheckPrime == di {
			return bad(g.files[i], "")
		}
	}
	return bad(g.files[0], g.files[n-1].Path)
}

func (c *oldChecks) sumHeaders(base int, n uint64) (sum uint32, err error) {
	h, err := c.openHeaders(base)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	for range n {
		if err := c.ctx.Err(); err != nil {
			return 0, err
		}
		b, err := h.Next()
		if err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli(), b)
	}
	return sum, nil
}

// badHeaders returns the error that the headers of a base have changed.
func (c *oldChecks) badHeaders(base int, err error) error {
	e := &delta.OldError{Base: c.bases[base], Problem: delta.BadHeaders, Err: err}
	if errors.Is(err, delta.ErrNoObject) {
		e.Problem = delta.NoBase
	}
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	return e
}

// blame replaces err by an *OldError about the headers of a base, if these have
// changed and may be the cause.
func (c *oldChecks) blame(err error) error {
	var old *delta.OldError
	var mismatch *delta.MismatchError
	if !errors.Is(err, delta.ErrFormat) && !errors.As(err, &old) && !errors.As(err, &mismatch) {
		return err
	}
	c.limit = math.MaxInt64 // finding the cause takes at most one more pass
	for _, h := range c.checked {
		if sum, herr := c.sumHeaders(h.base, h.n); herr != nil || sum != h.sum {
			return c.badHeaders(h.base, herr)
		}
	}
	return err
}
