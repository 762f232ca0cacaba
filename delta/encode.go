package delta

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
)

// Encode writes one delta that rebuilds every object of new from the old
// images. An object of new that is, by digest, in an old image is omitted.
//
// The same input gives the same bytes. Encode reads every object that is not
// omitted and every old one whole, and checks their digests. It needs about
// Options.Memory of memory and, for objects that cannot be read in place, their
// size in Options.TempDir.
func Encode(ctx context.Context, w io.Writer, old []Image, new Image, o Options) (*Report, error) {
	e := &encoder{ctx: ctx, opt: o}
	e.memory.free.L = &e.memory.mu
	if e.memory.most = o.Memory; o.Memory <= 0 {
		e.memory.most = 900 << 20
	}
	defer e.close()
	if err := e.open(old, new); err != nil {
		return nil, err
	}
	if err := e.plan(); err != nil {
		return nil, err
	}
	return e.write(w)
}

type encoder struct {
	ctx  context.Context
	opt  Options
	name string

	old   []*hostObject
	new   []*hostObject // nil where omitted
	info  []ObjectInfo
	idx   *index
	store *Store // of all old objects, for trials
	bases []Base

	memory memory

	plans []*objectPlan // by new object; bases are indexes into old
	total int64
	done  int64
}

func (e *encoder) close() {
	for _, h := range append(e.old, e.new...) {
		if h != nil {
			h.close()
		}
	}
}

func (e *encoder) open(old []Image, new Image) error {
	e.name = new.Name
	have := map[Digest]bool{}
	type todo struct {
		o     Object
		image string
	}
	var olds []todo
	for _, im := range old {
		for _, o := range im.Objects {
			if !have[o.Digest] {
				have[o.Digest] = true
				olds = append(olds, todo{o, im.Name})
			}
		}
	}
	e.new = make([]*hostObject, len(new.Objects))
	seen := map[Digest]bool{}
	var work []int
	for i, o := range new.Objects {
		in := ObjectInfo{Index: i, Digest: o.Digest, Size: o.Size, Kind: o.Kind, Encoding: Omitted}
		if o.Kind != Tar && o.Kind != Blob {
			return fmt.Errorf("object %d has unknown kind %q", i, o.Kind)
		}
		if !have[o.Digest] && !seen[o.Digest] {
			in.Encoding = Verbatim
			seen[o.Digest] = true
			work = append(work, i)
			e.total += o.Size
		}
		e.info = append(e.info, in)
	}
	if len(e.info) > maxObjects {
		return fmt.Errorf("%d objects are too many", len(e.info))
	}
	if len(work) == 0 {
		return nil
	}
	e.old = make([]*hostObject, len(olds))
	return each(e.ctx, e.opt.Workers, len(olds)+len(work), func(i int) (err error) {
		if i < len(olds) {
			e.old[i], err = openObject(e.ctx, olds[i].o, olds[i].image, e.opt.TempDir)
			return err
		}
		i = work[i-len(olds)]
		e.new[i], err = openObject(e.ctx, new.Objects[i], new.Name, e.opt.TempDir)
		return err
	})
}

func (e *encoder) write(w io.Writer) (*Report, error) {
	// Only the old objects that are used become bases.
	used := make([]int, len(e.old))
	var h Header
	h.Image = e.name
	h.Memory = decoderMemory
	use := func(i *int) {
		if used[*i] == 0 {
			o := e.old[*i]
			h.Bases = append(h.Bases, Base{o.image, o.Digest, o.Size, o.Kind})
			used[*i] = len(h.Bases)
		}
		*i = used[*i] - 1
	}
	uses := func(en *entry) bool {
		if en.op != opLiteral && en.op != opBulk {
			use(&en.src.base)
			return true
		}
		return false
	}
	var files int64
	for i, p := range e.plans {
		if p == nil {
			continue
		}
		n := len(h.Bases)
		any := false
		for j := range p.refs {
			use(&p.refs[j])
			any = true
		}
		for j := range p.members {
			if m := &p.members[j]; m.member.size > 0 && uses(&m.entry) {
				files++
				any = true
			}
		}
		if !p.tar && e.info[i].Size > 0 && uses(&p.whole) {
			files++
			any = true
		}
		if any || len(h.Bases) > n {
			e.info[i].Encoding = Delta
		}
	}
	if len(h.Bases) > maxObjects {
		return nil, fmt.Errorf("%d old objects are too many", len(h.Bases))
	}
	h.Objects = e.info
	h.Features = []string{featElf, featZstd}
	head, err := appendHeader(nil, h)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	f, err := newFrameWriter(w)
	if err != nil {
		return nil, err
	}
	defer f.close()
	s := newSession(e.ctx, f, e.store, h.Bases)
	rep := &Report{Header: h, OldFiles: files}
	for i, in := range e.info {
		or := ObjectReport{ObjectInfo: in, Bytes: map[string]int64{}, Files: map[string]int{}}
		if p := e.plans[i]; p != nil {
			if err := e.code(s, in, p, &or); err != nil {
				return nil, fmt.Errorf("object %d (%s): %w", i, in.Digest, err)
			}
		}
		rep.Objects = append(rep.Objects, or)
	}
	if f.begun {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	rep.Size = int64(len(head)) + f.size
	return rep, nil
}

// code runs the session over one object and accounts for what it costs.
func (e *encoder) code(s *session, in ObjectInfo, p *objectPlan, or *ObjectReport) error {
	lastSize, lastBulk := s.size-s.bulkSize+int64(len(s.coder.out)), s.bulkSize
	s.stat = func(kind string) {
		now := s.size - s.bulkSize + int64(len(s.coder.out))
		or.Bytes[kind] += now - lastSize
		lastSize = now
		if s.bulkSize > lastBulk {
			or.Bytes["bulk"] += s.bulkSize - lastBulk
			lastBulk = s.bulkSize
		}
		if e.opt.Progress != nil {
			e.opt.Progress(e.done+s.wrote, e.total)
		}
	}
	for i := range p.members {
		if m := &p.members[i]; m.member.size > 0 {
			or.Files[opNames[m.op]]++
		}
	}
	if !p.tar && in.Size > 0 {
		or.Files[opNames[p.whole.op]]++
	}
	if err := s.object(in, p); err != nil {
		return err
	}
	s.stat("headers")
	e.done += in.Size
	return nil
}

var opNames = [numOps]string{"same", "copied", "changed", "changed", "new", "new"}

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
	e.planRefs(h, p)
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
			items = append(items, item{e, e.size})
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
	if e.op != opLiteral || e.size > literalMax {
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

// uncovered is how many bytes no cover covers.
func (e *entry) uncovered() int64 {
	n := e.size
	for _, c := range e.covers {
		n -= c.length
	}
	return n
}
