package codec

import (
	"bytes"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

const (
	// MaxRefs is how many old tars the headers of a tar are coded against.
	MaxRefs = 4
	// MaxBatch ends a batch: bytes of header blocks.
	MaxBatch = 128 << 10
)

// memberCoder codes tars, member by member.
type memberCoder struct {
	*run
	out      *output
	old      *oldChecks
	sums     *md5Lists
	ops      *opCoder
	contents *contentCoder
	literals *literalCoder

	header *tarheader.Model
	more   model.Prob
	ref    [MaxRefs + 2][8]model.Prob
	counts *model.UintModel // headers that are skipped
	zeros  model.Prob       // padding, and what follows the members

	refs  []*headerStream
	last  int // the reference of the member before
	batch batch
}

func newMemberCoder(contents *contentCoder, counts *model.UintModel) *memberCoder {
	c := &memberCoder{run: contents.run, out: contents.out, old: contents.old, sums: contents.sums, ops: contents.ops,
		contents: contents, literals: contents.literals,
		header: tarheader.NewModel(), more: model.FreshProb, counts: counts, zeros: model.FreshProb}
	for i := range c.ref {
		copy(c.ref[i][:], model.FreshProbs(8))
	}
	return c
}

// batch has members whose heads were decoded. The old files that their contents are
// changed from are verified together, before any of them is used.
type batch struct {
	members []*member
	changed []*content
	raw     []byte // header blocks
}

// member is a member whose head was decoded, but not yet its content.
type member struct {
	content
	blocks int // bytes of its header blocks
	padded bool
}

// next adds an empty member to the batch. It reuses the memory of an earlier one.
func (b *batch) next() *member {
	n := len(b.members)
	if n < cap(b.members) {
		b.members = b.members[:n+1]
	} else {
		b.members = append(b.members, nil)
	}
	if b.members[n] == nil {
		b.members[n] = new(member)
	}
	*b.members[n] = member{}
	return b.members[n]
}

func (b *batch) begin() { b.members, b.changed, b.raw = b.members[:0], b.changed[:0], b.raw[:0] }

// headerStream reads the headers of an old tar, forward.
type headerStream struct {
	base   int
	r      delta.HeaderReader
	raw    []byte
	header tarheader.Header
}

// advance moves n+1 headers forward.
func (h *headerStream) advance(n uint64) error {
	for i := uint64(0); i <= n; i++ {
		raw, err := h.r.Next()
		if err != nil {
			return err
		}
		if i < n {
			continue
		}
		k, err := h.header.Next(raw)
		if err != nil || k != 0 {
			return tarheader.ErrHeader
		}
		h.raw = raw
	}
	return nil
}

// code codes a tar; p is nil when decoding.
func (c *memberCoder) code(p *script.Object) error {
	defer c.closeRefs()
	if err := c.openRefs(p); err != nil {
		return err
	}
	sums := uint64(0)
	if p != nil && p.Sums {
		sums = 1
	}
	c.sums.begin(c.Raw(1, sums) != 0)
	defer c.sums.end()
	c.header.Begin()
	c.last = 0
	var planned []script.Member
	if p != nil {
		planned = p.Members
	}
	for more := true; more; {
		var err error
		if planned, more, err = c.heads(planned); err != nil {
			return err
		}
		if err := c.old.verify(c.batch.changed...); err != nil {
			return err
		}
		at := 0
		for _, m := range c.batch.members {
			if err := c.boundary(); err != nil {
				return err
			}
			if err := c.pass(m, c.batch.raw[at:at+m.blocks]); err != nil {
				return err
			}
			at += m.blocks
		}
	}
	return c.tail(p)
}

// openRefs codes which old tars the headers are coded against, and opens them.
func (c *memberCoder) openRefs(p *script.Object) error {
	n := 0
	if p != nil {
		n = len(p.Refs)
	}
	if n = int(c.Raw(3, uint64(n))); n > MaxRefs {
		return delta.FormatErrorf("too many references")
	}
	for i := range n {
		b := 0
		if p != nil {
			b = p.Refs[i]
		}
		b = int(c.Raw(12, uint64(b)))
		if b >= len(c.old.bases) || !c.old.bases[b].Headers {
			return delta.FormatErrorf("unknown base")
		}
		want := headerCheck{base: b}
		var err error
		if p != nil {
			want.n = p.Passed(i + 1)
			if want.sum, err = c.old.sumHeaders(b, want.n); err != nil {
				return err
			}
		}
		want.n = c.Uint(c.counts, want.n)
		want.sum = uint32(c.Raw(32, uint64(want.sum)))
		c.old.checked = append(c.old.checked, want)
		r, err := c.old.openHeaders(b)
		if err != nil {
			return c.old.badHeaders(b, err)
		}
		c.refs = append(c.refs, &headerStream{base: b, r: r})
	}
	return nil
}

func (c *memberCoder) closeRefs() {
	for _, h := range c.refs {
		h.r.Close()
	}
	c.refs = c.refs[:0]
}

// heads codes the heads of a batch. It returns the planned members that are left,
// and whether more batches follow.
func (c *memberCoder) heads(planned []script.Member) (left []script.Member, more bool, err error) {
	b := &c.batch
	for b.begin(); len(b.raw) < MaxBatch; {
		if err := c.boundary(); err != nil {
			return nil, false, err
		}
		if err := c.ctx.Err(); err != nil {
			return nil, false, err
		}
		if !c.Flag(&c.more, len(planned) > 0) {
			return nil, false, nil
		}
		plan := noMember
		if c.Encoding {
			plan, planned = &planned[0], planned[1:]
		}
		if err := c.head(b.next(), plan); err != nil {
			return nil, false, err
		}
	}
	return planned, true, nil
}

var noMember = new(script.Member)

// head codes the head of a member.
func (c *memberCoder) head(m *member, plan *script.Member) error {
	ref := c.Tree(c.ref[c.last][:], 3, plan.Ref)
	if ref > len(c.refs) {
		return delta.FormatErrorf("unknown reference")
	}
	var h *headerStream
	var old []byte
	if ref > 0 {
		h = c.refs[ref-1]
		skip := c.Uint(c.counts, uint64(plan.Skip))
		if c.Short {
			return delta.FormatErrorf("a frame is cut short")
		}
		if err := h.advance(skip); err != nil {
			return c.old.badHeaders(h.base, err)
		}
		old = h.raw
	}
	raw, err := c.header.Code(c.Coder, plan.Raw, old)
	c.stat("headers")
	c.share("headers of members")
	if err != nil {
		return delta.FormatErrorf("%v", err)
	}
	var got tarheader.Header
	if n, err := got.Next(raw); n != 0 || err != nil {
		return delta.FormatErrorf("a member's header does not parse")
	}
	m.blocks, m.padded, m.plan = len(raw), plan.Padded, &plan.Content
	c.batch.raw = append(c.batch.raw, raw...)
	m.Path, m.Size = got.Path, got.Size
	if h != nil && h.header.File() && h.header.Size > 0 {
		m.Ref, m.RefSize = &script.Source{Base: h.base, Path: h.header.Path}, h.header.Size
	}
	if err := c.ops.code(&m.content, c.out.left()); err != nil {
		return fmt.Errorf("file %q: %w", m.Path, err)
	}
	c.batch.changed = append(c.batch.changed, &m.content)
	c.last = min(ref, MaxRefs)
	return nil
}

// pass writes a member whose header blocks are raw.
func (c *memberCoder) pass(m *member, raw []byte) error {
	if err := c.out.write(raw); err != nil {
		return err
	}
	if err := c.contents.pass(&m.content); err != nil {
		return fmt.Errorf("file %q: %w", m.Path, err)
	}
	pad := int(-m.Size & (tarheader.Block - 1))
	if pad > 0 {
		b := c.buf[:pad]
		clear(b)
		if !c.Flag(&c.zeros, m.padded) {
			if c.Encoding {
				if err := readFull(m.plan.New, b, m.Size); err != nil {
					return err
				}
			}
			c.literals.begin(1)
			c.literals.model(c.Coder, b, 0)
		}
		if err := c.out.write(b); err != nil {
			return err
		}
	}
	return c.old.verifyCopies(false)
}

// tail codes the bytes after the members, which are mostly zeros.
func (c *memberCoder) tail(p *script.Object) error {
	e := &content{Place: script.Place{Size: c.out.left()}, plan: noPlan}
	zeros := false
	if p != nil {
		e.plan = &script.Content{Op: script.Literal, New: io.NewSectionReader(p.R, p.Tail, p.Size-p.Tail)}
		if p.Size-p.Tail > 1<<14 {
			e.plan.Op = script.Bulk
		}
		var err error
		if zeros, err = allZero(p.R, p.Tail, p.Size); err != nil {
			return err
		}
	}
	if !c.Flag(&c.zeros, zeros) {
		return c.contents.code(e)
	}
	clear(c.buf)
	for c.out.left() > 0 {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.out.write(c.buf[:min(Chunk, c.out.left())]); err != nil {
			return err
		}
	}
	return nil
}

func allZero(r io.ReaderAt, from, to int64) (bool, error) {
	b := make([]byte, Chunk)
	for from < to {
		c := b[:min(Chunk, to-from)]
		if err := readFull(r, c, from); err != nil {
			return false, err
		}
		if bytes.Count(c, []byte{0}) != len(c) {
			return false, nil
		}
		from += int64(len(c))
	}
	return true, nil
}
