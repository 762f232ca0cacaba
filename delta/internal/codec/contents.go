package codec

import (
	"hash/crc32"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/branch"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// contentCoder codes contents and writes them to the output.
type contentCoder struct {
	*run
	out      *output
	old      *oldChecks
	sums     *md5Lists
	ops      *opCoder
	literals *literalCoder
	changes  *changeCoder
	streams  *streamCoder
}

// code codes and writes a content that does not belong to a member.
func (c *contentCoder) code(e *content) error {
	if err := c.ops.code(e, c.out.left()); err != nil {
		return err
	}
	if err := c.old.verify(e); err != nil {
		return err
	}
	return c.pass(e)
}

// pass writes a content whose operation is known.
func (c *contentCoder) pass(e *content) error {
	if e.Size == 0 {
		return nil
	}
	if e.Size > c.out.left() {
		return delta.FormatErrorf("a member is larger than its object")
	}
	c.sums.beginFile(e.op)
	defer c.sums.endFile(e.Path)
	switch {
	case e.op == script.Packed:
		return c.packed(e)
	case e.op.Copies():
		return c.copyFile(e.src, e.Size)
	case e.streams:
		return c.streams.code(e)
	case e.op.Changes():
		f, err := c.old.open(e.src, e.oldSize)
		if err != nil {
			return err
		}
		defer f.Close()
		return c.changes.code(e, f, 0)
	}
	return c.literals.code(e, e.op == script.Bulk)
}

// copyFile writes an unchanged old file.
func (c *contentCoder) copyFile(src script.Source, size int64) error {
	f, err := c.old.open(src, size)
	if err != nil {
		return err
	}
	defer f.Close()
	crc := uint32(0)
	for off := int64(0); off < size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		b := c.buf[:min(Chunk, size-off)]
		if err := c.old.read(f, src, b, off); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli(), b)
		if err := c.out.write(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	c.old.learn(c.old.key(src), size, crc)
	c.old.copied.add(src, crc)
	return nil
}

// packed codes an object that zstd compresses.
func (c *contentCoder) packed(e *content) error {
	if err := c.beginPacked(); err != nil {
		return err
	}
	err := c.chunks(e, c.out, func(b []byte, _ int64) error {
		c.work.Expanded += int64(len(b))
		return c.packedBytes(b)
	})
	if err != nil {
		return err
	}
	return c.endPacked()
}

// literalCoder codes bytes without the help of old content.
type literalCoder struct {
	*run
	out    *output
	bytes  *model.ByteModel
	among  instructions
	unwind *unwindCoder
	inBulk model.Prob // the literals of a changed content are in the bulk part

	// Parts of a content in bulk that are converted.
	parts, gap, size *model.UintModel
	kind             [16]model.Prob
	part             branch.Converter // of the part that is being coded
}

func newLiteralCoder(r *run, out *output) *literalCoder {
	c := &literalCoder{run: r, out: out, unwind: newUnwindCoder(r), bytes: model.NewByteModel(14, 18, literalSets), inBulk: model.FreshProb,
		parts: model.NewUintModel(), gap: model.NewUintModel(), size: model.NewUintModel()}
	copy(c.kind[:], model.FreshProbs(len(c.kind)))
	return c
}

// code codes a whole content.
func (c *literalCoder) code(e *content, bulk bool) error {
	var parts []script.Part
	var known *elf.Unwind
	if bulk {
		var err error
		if known, err = c.unwind.literal(e); err != nil {
			return err
		}
		if parts, err = c.codeParts(e); err != nil {
			return err
		}
		c.bulkFile()
	}
	return c.chunks(e, c.out, func(b []byte, off int64) error {
		if bulk {
			var err error
			if parts, err = c.pieces(b, off, parts); err != nil {
				return err
			}
		} else {
			c.begin(1)
			c.model(c.Coder, b, off)
			c.stat("literals")
			c.share("new contents")
		}
		if known != nil {
			known.Toggle(off, b)
		}
		return nil
	})
}

// chunks codes a new content chunk by chunk, between which a frame may end, and writes it.
// code gets the bytes of a chunk, or fills them, and where they lie in the content.
func (r *run) chunks(e *content, out *output, code func(b []byte, off int64) error) error {
	for off := int64(0); off < e.Size; {
		if off > 0 {
			if err := r.boundary(); err != nil {
				return err
			}
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
		b := r.buf[:min(Chunk, e.Size-off)]
		if r.Encoding {
			if err := readFull(e.plan.New, b, off); err != nil {
				return err
			}
		}
		if err := code(b, off); err != nil {
			return err
		}
		if err := out.write(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// MaxParts is the maximum number of converted parts of a content in bulk.
const MaxParts = 64

// codeParts codes which parts of a content are converted.
func (c *literalCoder) codeParts(e *content) ([]script.Part, error) {
	n := c.Uint(c.parts, uint64(len(e.plan.Parts)))
	if n > MaxParts {
		return nil, delta.FormatErrorf("too many parts")
	}
	parts := make([]script.Part, n)
	copy(parts, e.plan.Parts)
	end := int64(0)
	for i := range parts {
		p := &parts[i]
		p.Kind = branch.Kind(c.Tree(c.kind[:], 4, int(p.Kind)))
		gap := int64(c.Uint(c.gap, uint64(p.Off-end)))
		p.Size = int64(c.Uint(c.size, uint64(p.Size)))
		if p.Kind >= branch.NumKinds || gap < 0 || gap > e.Size-end || p.Size < 0 || p.Size > e.Size-end-gap {
			return nil, delta.FormatErrorf("a part is out of bounds")
		}
		p.Off = end + gap
		end = p.Off + p.Size
	}
	return parts, nil
}

// pieces codes bytes at off in bulk, in pieces that lie inside or outside of a part.
// It returns the parts that do not end before the end of b.
func (c *literalCoder) pieces(b []byte, off int64, parts []script.Part) ([]script.Part, error) {
	for len(b) > 0 {
		part, n := &branch.Converter{}, int64(len(b))
		if len(parts) > 0 {
			p := parts[0]
			switch end := p.Off + p.Size; {
			case off >= end:
				parts = parts[1:]
				continue
			case off >= p.Off:
				if off == p.Off {
					c.part.Begin(p.Kind, p.Size)
				}
				part, n = &c.part, min(n, end-off)
			default:
				n = min(n, p.Off-off)
			}
		}
		if err := c.bulkBytes(b[:n], part, off); err != nil {
			return nil, err
		}
		b, off = b[n:], off+n
	}
	return parts, nil
}
