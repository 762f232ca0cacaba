package codec

import (
	"bufio"
	"context"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Codec codes the objects of one delta, one after the other. It can be used once,
// by one goroutine.
type Codec struct {
	run      *run
	out      *output
	old      *oldChecks
	contents *contentCoder
	members  *memberCoder
}

// NewEncoder returns a Codec that writes the body of a delta to w, with the literals
// in bulk as the BulkWriter codes them. The objects that it will code have size bytes
// in all.
func NewEncoder(ctx context.Context, w io.Writer, bulk BulkWriter, old delta.Old, bases []delta.Base, size int64) *Codec {
	return newCodec(ctx, newFrameWriter(w, bulk), old, bases, size)
}

// NewDecoder returns a Codec that reads the body of a delta from r, and no byte
// after it. The objects that it will code have size bytes in all.
func NewDecoder(ctx context.Context, r *bufio.Reader, old delta.Old, bases []delta.Base, size int64) *Codec {
	return newCodec(ctx, newFrameReader(r), old, bases, size)
}

func newCodec(ctx context.Context, f *frames, old delta.Old, bases []delta.Base, size int64) *Codec {
	r := &run{frames: f, ctx: ctx, buf: make([]byte, Chunk), stat: func(string) {}, share: func(string) {}}
	sums := &md5Lists{}
	out := &output{sums: sums}
	checks := &oldChecks{run: r, reads: newReads(size), old: old, bases: bases}
	// Two models are shared.
	names, counts := model.NewByteModel(11, 14, 1), model.NewUintModel()
	ops := newOpCoder(r, len(bases), names)
	literals := newLiteralCoder(r, out)
	changes := newChangeCoder(r, out, checks, sums, literals)
	streams := newStreamCoder(r, out, checks, literals, changes)
	streams.names, streams.headSize = names, counts
	contents := &contentCoder{run: r, out: out, old: checks, sums: sums, ops: ops, literals: literals, changes: changes, streams: streams}
	return &Codec{run: r, out: out, old: checks, contents: contents, members: newMemberCoder(contents, counts)}
}

// Extend makes the decoder read bulk parts whose matches lie up to lz.FarWindow back. open
// makes the file that it needs for that, of at most most bytes. It is called before the
// first object is decoded.
func (c *Codec) Extend(open func() (lz.File, error), most int64) { c.run.lz.Extend(open, most) }

// Sums makes the decoder read bulk parts whose bytes lz.Sums predicts. It is called before
// the first object is decoded.
func (c *Codec) Sums() { c.run.lz.Sums() }

// Pack lets whole objects be compressed by zstd. writer makes what compresses one; it is nil
// in a decoder. Pack is called before the first object.
func (c *Codec) Pack(writer func(io.Writer) (Packer, error)) {
	c.run.newPacker = writer
	c.contents.ops.packs = true
}

// KnowUnwind makes the codec code what is known about unwind tables, as deltas with that
// feature do. It is called before the first object.
func (c *Codec) KnowUnwind() { c.contents.literals.unwind.on = true }

// Apart makes the codec predict addresses whose parts stand apart, as deltas with that feature
// do. It is called before the first object.
func (c *Codec) Apart() { c.contents.changes.elf.apart = true }

// Show makes the codec show old bytes before new ones in bulk, as deltas with that feature do.
// It is called before the first object.
func (c *Codec) Show() { c.contents.changes.shows = true }

// Parts makes the codec code changed instructions by their parts, as deltas with that feature do.
// It is called before the first object.
func (c *Codec) Parts() { c.contents.changes.instr = model.NewInstructionModel() }

// Encode writes one object as it is planned.
func (c *Codec) Encode(info delta.ObjectInfo, plan *script.Object) error {
	c.out.begin(nil, info.Size)
	c.run.work.Bytes += info.Size
	return c.object(info, plan)
}

// Decode reads one object and writes it to w. Without an error, the object has the
// digest of info. After an error, what was written must not be used.
func (c *Codec) Decode(info delta.ObjectInfo, w io.Writer) error {
	b := bufio.NewWriterSize(w, Chunk)
	c.out.begin(b, info.Size)
	err := c.object(info, nil)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		if got := c.out.digest(); got != info.Digest {
			err = &delta.MismatchError{Object: info, Got: got}
		}
	}
	if err != nil && c.old.exceeded() {
		return delta.ErrTooMuchRead // the cause of any other error
	}
	return c.old.blame(err)
}

// object codes one object; p is nil when decoding.
func (c *Codec) object(info delta.ObjectInfo, p *script.Object) error {
	c.old.checked = c.old.checked[:0]
	if err := c.run.boundary(); err != nil {
		return err
	}
	tar := uint64(0)
	if p != nil && p.Tar {
		tar = 1
	}
	var err error
	if c.run.Raw(1, tar) != 0 {
		err = c.members.code(p)
	} else {
		e := &content{Place: script.Place{Size: info.Size}, plan: noPlan, whole: true}
		if p != nil {
			e.plan = &p.Whole
		}
		err = c.contents.code(e)
	}
	if err == nil {
		err = c.old.verifyCopies(true)
	}
	if err == nil && c.run.Short {
		err = delta.FormatErrorf("a frame is cut short")
	}
	if err == nil {
		_, err = c.run.endFrame(c.run.Encoding && c.run.bulkLen() > 0)
		c.run.share("headers of members")
	}
	if err == nil && c.out.left() != 0 {
		err = delta.FormatErrorf("an object is smaller than announced")
	}
	return err
}

// Flush writes the current frame, if one was begun.
func (c *Codec) Flush() error {
	if !c.run.begun {
		return nil
	}
	return c.run.flush()
}

// Sizes returns how many bytes the encoder has written so far, in the coded parts
// and in the bulk parts of frames.
func (c *Codec) Sizes() (coded, bulk int64) {
	return c.run.size - c.run.bulkSize + int64(c.run.Len()), c.run.bulkSize
}

// Work returns what decoding takes that was encoded so far.
func (c *Codec) Work() budget.Work {
	w := c.run.work
	w.Bytes += c.old.reads.read + c.run.bulkPlain
	w.Bits += c.run.Coded
	w.Literals, w.Summed = c.run.bulk.Literals()
	w.Packed = c.run.bulkSize - c.run.packedSize
	return w
}

// Written returns how many bytes of the object were coded so far.
func (c *Codec) Written() int64 { return c.out.written }

// OnCoded makes the codec call f after each thing that it codes, with its kind.
func (c *Codec) OnCoded(f func(kind string)) { c.run.stat = f }

// Shares makes the encoder add up what it codes, in bits by class. Literals in bulk
// are not in the sums.
func (c *Codec) Shares(shares map[string]float64) {
	c.run.Price = true
	before := c.run.Bits
	c.run.share = func(class string) {
		shares[class] += c.run.Bits - before
		before = c.run.Bits
	}
}

// Cost returns how many bytes one content would take in a delta of its own. bulk is for
// its literals in bulk; it may be nil if there are none.
func Cost(ctx context.Context, bulk BulkWriter, old delta.Old, bases []delta.Base, place script.Place, plan *script.Content) (int64, error) {
	if bulk == nil {
		bulk = noBulk{}
	}
	c := NewEncoder(ctx, io.Discard, bulk, old, bases, place.Size)
	if plan.Unwind != nil {
		c.KnowUnwind()
	}
	if plan.Apart {
		c.Apart()
	}
	if plan.Show {
		c.Show()
	}
	if plan.Split {
		c.Parts()
	}
	c.out.begin(nil, place.Size)
	if err := c.run.boundary(); err != nil {
		return 0, err
	}
	if err := c.contents.code(&content{Place: place, plan: plan}); err != nil {
		return 0, err
	}
	if err := c.run.flush(); err != nil {
		return 0, err
	}
	return c.run.size, nil
}

// noBulk is for contents that have no literals in bulk.
type noBulk struct{}

func (noBulk) Align()                 {}
func (noBulk) Show([]byte, uint32)    {}
func (noBulk) Add([]byte, uint32)     {}
func (noBulk) Len() int               { return 0 }
func (noBulk) Literals() (_, _ int64) { return 0, 0 }
func (noBulk) Flush() []byte          { return nil }
