package delta

import (
	"bytes"
	"compress/flate"
	"github.com/mender-app/mender-app/delta/internal/script"
	"io"
	"sort"
	"strings"
)

// plan decides what becomes of every object.
func (e *encoder) plan() error {
	e.plans = make([]*objectPlan, len(e.new))
	var err error
	if e.idx, err = newIndex(e); err != nil {
		return err
	}
	if err := e.openStore(); err != nil {
		return err
	}
	for i, h := range e.new {
		if h == nil {
			continue
		}
		p := &objectPlan{tar: h.tar, r: h.r, size: h.Size, tail: h.tail}
		if h.tar {
			if err := e.planTar(h, p); err != nil {
				return err
			}
		} else {
			p.whole = entry{size: h.Size, new: h.r}
			if err := e.planContents([]*entry{&p.whole}, []int64{0}, h); err != nil {
				return err
			}
		}
		e.plans[i] = p
	}
	return nil
}

func (e *encoder) planTar(h *hostObject, p *objectPlan) error {
	p.members = make([]memberPlan, len(h.members))
	var at int64
	var todo []*entry
	var offs []int64
	for i := range h.members {
		m := &p.members[i]
		m.member = h.members[i]
		var err error
		if m.raw, err = h.raw(&m.member, at); err != nil {
			return err
		}
		p.sums = p.sums || strings.HasSuffix(m.member.path, sumsSuffix)
		pad := -m.member.size & (block - 1)
		at = m.off + m.member.size + pad
		m.entry = entry{path: m.member.path, size: m.member.size,
			new: io.NewSectionReader(h.r, m.off, m.member.size+pad)}
		if pad > 0 {
			b := make([]byte, pad)
			if err := readFull(h.r, b, m.off+m.member.size); err != nil {
				return err
			}
			m.padded = bytes.Count(b, []byte{0}) == len(b)
		}
	}
	if !e.opt.FilesOnly {
		e.planRefs(h, p)
	}
	for i := range p.members {
		if m := &p.members[i]; m.member.size > 0 {
			todo = append(todo, &m.entry)
			offs = append(offs, m.off)
		}
	}
	return e.planContents(todo, offs, h)
}

// planContents chooses an operation for each content of h, which lies at offs.
func (e *encoder) planContents(todo []*entry, offs []int64, h *hostObject) error {
	sums := make([][32]byte, len(todo))
	err := each(e.ctx, e.opt.Workers, len(todo), func(i int) (err error) {
		if e.idx.sizes[todo[i].size] {
			sums[i], err = hashSection(h.r, offs[i], todo[i].size)
		}
		return err
	})
	if err != nil {
		return err
	}
	var changed []int
	for i, en := range todo {
		en.op = opLiteral
		if f := e.idx.exact(en, sums[i]); f != nil {
			en.src = source{f.obj, f.path}
			en.op = opCopy
			if en.ref != nil && *en.ref == en.src {
				en.op = opSame
			}
		} else {
			changed = append(changed, i)
		}
	}
	cands := make([][]*oldFile, len(todo))
	for _, i := range changed {
		if cands[i], err = e.candidates(todo[i], offs[i], h); err != nil {
			return err
		}
	}
	err = each(e.ctx, e.opt.Workers, len(changed), func(i int) error {
		i = changed[i]
		if done, err := e.planPacked(todo[i], offs[i], h, cands[i]); done || err != nil {
			return err
		}
		if err := e.planChange(todo[i], offs[i], h, cands[i]); err != nil {
			return err
		}
		return todo[i].weigh()
	})
	if err == nil {
		spend(todo, h.Size)
	}
	return err
}

// What is modelled byte by byte costs the decoder some hundred times the
// processor time of what is copied, so that only so much of it is allowed in an
// object: the base, and a share of its size. What goes beyond is left to zstd,
// the largest first.
const (
	modelBase  = 192 << 10
	modelShare = 512
	literalMax = 64 << 10
)

func spend(todo []*entry, size int64) {
	left := modelBase + size/modelShare
	type item struct {
		e *entry
		n int64
	}
	var items []item
	for _, e := range todo {
		switch e.op {
		case opLiteral, opBulk:
			items = append(items, item{e, e.length()})
		case opDiff, opDiffOf:
			items = append(items, item{e, e.uncovered()})
		}
	}
	sort.SliceStable(items, func(i, j int) bool { return items[i].n < items[j].n })
	for _, it := range items {
		literal := it.e.op == opLiteral || it.e.op == opBulk
		model := it.n <= left && (!literal || it.n <= literalMax && !it.e.dense)
		if model {
			left -= it.n
		}
		switch {
		case !literal:
			it.e.bulk = !model
		case model:
			it.e.op = opLiteral
		default:
			it.e.op = opBulk
		}
	}
}

// weigh finds out whether a new file is too dense to be worth modelling:
// compressed already.
func (e *entry) weigh() error {
	if e.pack != nil || e.op != opLiteral || e.size > literalMax {
		return nil
	}
	b := make([]byte, e.size)
	if err := readFull(e.new, b, 0); err != nil {
		return err
	}
	z, err := flate.NewWriter(io.Discard, flate.HuffmanOnly)
	if err != nil {
		return err
	}
	var n countWriter
	z.Reset(&n)
	if _, err := z.Write(b); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	e.dense = e.size > 256 && int64(n) > e.size-e.size/32
	return nil
}

type countWriter int64

func (c *countWriter) Write(b []byte) (int, error) {
	*c += countWriter(len(b))
	return len(b), nil
}

// length is that of what is coded: of what is in streams, not of the streams.
func (e *entry) length() int64 {
	if e.pack == nil {
		return e.size
	}
	n := e.pack.between(e.size)
	for _, st := range e.pack.streams {
		n += st.size
	}
	return n
}

// uncovered is how much of that no cover covers.
func (e *entry) uncovered() int64 {
	n := e.length() - script.Covered(e.covers)
	if e.pack != nil {
		for _, st := range e.pack.streams {
			n -= script.Covered(st.covers)
		}
	}
	return n
}
