package encoder

import (
	"bytes"
	"compress/flate"
	"io"
	"sort"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// target is one content that is planned.
type target struct {
	script.Place
	off   int64 // in the new object
	dense bool  // seems to be compressed already
	plan  *script.Content

	unwind *elf.Unwind // what is known about its unwind tables, or nil
}

// objectPlan is the plan of one object.
type objectPlan struct {
	script.Object
	contents []*target // that are not empty
}

// plan decides how every object is made.
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
		p := &objectPlan{Object: script.Object{Tar: h.tar && !e.packed[i], R: h.r, Size: h.Size, Tail: h.tail}}
		switch {
		case e.packed[i]:
			p.Whole.Op, p.Whole.New = script.Packed, h.r
			p.contents = []*target{{Place: script.Place{Size: h.Size}, plan: &p.Whole}}
		case h.tar:
			if err := e.planTar(h, p); err != nil {
				return err
			}
		default:
			p.Whole.New = h.r
			t := &target{Place: script.Place{Size: h.Size}, plan: &p.Whole}
			if h.Size > 0 {
				p.contents = []*target{t}
			}
			if err := e.planContents([]*target{t}, h); err != nil {
				return err
			}
		}
		e.plans[i] = p
	}
	return nil
}

func (e *encoder) planTar(h *object, p *objectPlan) error {
	p.Members = make([]script.Member, len(h.members))
	targets := make([]*target, len(h.members))
	var at int64
	for i := range h.members {
		m, in := &p.Members[i], &h.members[i]
		var err error
		if m.Raw, err = h.raw(in, at); err != nil {
			return err
		}
		p.Sums = p.Sums || codec.HasSums(in.Path)
		pad := -in.Size & (tarheader.Block - 1)
		at = in.Off + in.Size + pad
		m.New = io.NewSectionReader(h.r, in.Off, in.Size+pad)
		targets[i] = &target{Place: script.Place{Path: in.Path, Size: in.Size}, off: in.Off, plan: &m.Content}
		if pad > 0 {
			b := make([]byte, pad)
			if err := readFull(h.r, b, in.Off+in.Size); err != nil {
				return err
			}
			m.Padded = bytes.Count(b, []byte{0}) == len(b)
		}
	}
	if !e.opt.FilesOnly {
		e.planRefs(h, p, targets)
	}
	for _, t := range targets {
		if t.Size > 0 {
			p.contents = append(p.contents, t)
		}
	}
	return e.planContents(p.contents, h)
}

// planContents chooses an operation for each content of h.
func (e *encoder) planContents(todo []*target, h *object) error {
	sums := make([][32]byte, len(todo))
	err := each(e.ctx, e.opt.Workers, len(todo), func(i int) (err error) {
		if e.idx.sizes[todo[i].Size] {
			sums[i], err = hashSection(h.r, todo[i].off, todo[i].Size)
		}
		return err
	})
	if err != nil {
		return err
	}
	var changed []int
	for i, t := range todo {
		t.plan.Op = script.Literal
		if f := e.idx.exact(t, sums[i]); f != nil {
			t.plan.Source = f.source()
			t.plan.Op = script.Copy
			if t.Ref != nil && *t.Ref == t.plan.Source {
				t.plan.Op = script.Same
			}
		} else {
			changed = append(changed, i)
		}
	}
	if e.opt.Effort == Stored {
		spend(todo, h.Size, modelSteps)
		return nil
	}
	cands := make([][]*oldFile, len(todo))
	for _, i := range changed {
		if cands[i], err = e.candidates(todo[i], h); err != nil {
			return err
		}
	}
	plain := func(i int) error { // without streams
		todo[i].readUnwind(e.opt.NoUnwind)
		if err := e.planChange(todo[i], h, cands[i]); err != nil {
			return err
		}
		return todo[i].weigh()
	}
	blank := make([]script.Content, len(todo))
	err = each(e.ctx, e.opt.Workers, len(changed), func(i int) error {
		i = changed[i]
		blank[i] = *todo[i].plan
		if done, err := e.planStreams(todo[i], h, cands[i]); done || err != nil {
			return err
		}
		return plain(i)
	})
	if err != nil {
		return err
	}
	dear := dearStreams(todo, e.opt.Thrift)
	err = each(e.ctx, e.opt.Workers, len(dear), func(i int) error {
		i = dear[i]
		*todo[i].plan = blank[i]
		return plain(i)
	})
	if err == nil {
		spend(todo, h.Size, e.opt.Thrift)
	}
	return err
}

// Decoding a modelled byte takes about a hundred times the processor time of a
// copied one. An object may therefore have only modelBase modelled bytes and a share
// of its size; the largest contents beyond that are coded in bulk.
const (
	modelBase  = 192 << 10
	modelShare = 512
	literalMax = 64 << 10
)

func spend(todo []*target, size int64, thrift int) {
	left := (modelBase + size/modelShare) * int64(max(modelSteps-thrift, 0)) / modelSteps
	type item struct {
		t *target
		n int64
	}
	var items []item
	for _, t := range todo {
		switch {
		case t.plan.Op.Changes():
			items = append(items, item{t, t.plan.Uncovered(t.Size)})
		case !t.plan.Op.Copies():
			items = append(items, item{t, t.plan.Uncompressed(t.Size)})
		}
	}
	sort.SliceStable(items, func(i, j int) bool { return items[i].n < items[j].n })
	for _, it := range items {
		literal := !it.t.plan.Op.Changes()
		model := it.n <= left && (!literal || it.n <= literalMax && !it.t.dense)
		if model {
			left -= it.n
		}
		switch {
		case !literal:
			it.t.plan.Bulk = !model
		case model:
			it.t.plan.Op = script.Literal
		default:
			it.t.plan.Op = script.Bulk
			it.t.plan.Unwind = it.t.unwind
			it.t.plan.Parts = it.t.parts()
		}
	}
}

// quickFrom is how many literals in bulk make the encoder take the quicker way: for
// 45 MiB of packages the other one took 64 s instead of 41, and saved 1.3 % of the delta.
const quickFrom = 64 << 20

// of returns how much is tried for that many literals in bulk.
func (e Effort) of(size int64) parse.Effort {
	switch {
	case e == Stored:
		return parse.None
	case e == Quick:
		return parse.Swift
	case e == Standard && size > quickFrom:
		return parse.Quick
	}
	return parse.Thorough
}

// bulk returns the most bytes that literals in bulk can have, with what aligns them, and
// whether they are of a tar.
func bulk(plans []*objectPlan) (size int64, ofTar bool) {
	for _, p := range plans {
		if p == nil {
			continue
		}
		n := int64(0)
		if p.Tar {
			n = p.Size - p.Tail // mostly zeros, which are not coded
		}
		for _, t := range p.contents {
			switch {
			case t.plan.Op == script.Bulk:
				n += t.plan.Uncompressed(t.Size)
			case t.plan.Op.Changes() && t.plan.Bulk:
				n += t.plan.Uncovered(t.Size)
				if t.plan.Show {
					n += codec.Shown(t.plan.Matches, t.Size, t.plan.OldSize)
				}
			default:
				continue
			}
			// Each stream is a file in bulk, and what is between two streams.
			n += int64(1+2*len(t.plan.Streams)) * lz.Alignment
		}
		size += n
		ofTar = ofTar || p.Tar
	}
	return size, ofTar
}

// bulkWriter returns what codes the literals in bulk, and the temporary space that a
// device needs for matches farther back than its window; 0 if it needs none. Only
// deltas of images have such matches: the process that applies the delta of a file can
// open no other file. It also returns whether there are literals that lz.Sums predicts.
func (e *encoder) bulkWriter() (w *parse.Encoder, temp int64, sums bool) {
	size, ofTar := bulk(e.plans)
	effort := e.opt.Effort.of(size)
	if size <= lz.Window || !ofTar || e.opt.NoFar {
		w = parse.New(effort, lz.Window, size)
	} else {
		w, temp = parse.New(effort, lz.FarWindow, size), lz.FileSize(size)
	}
	if sums = e.opt.Sums && size > 0 && e.opt.Effort != Stored; sums {
		w.Sums()
	}
	return w, temp, sums
}

// weigh finds out whether a new file is compressed already, and so not worth
// modelling.
func (t *target) weigh() error {
	if len(t.plan.Streams) > 0 || t.plan.Op != script.Literal || t.Size > literalMax {
		return nil
	}
	b := make([]byte, t.Size)
	if err := readFull(t.plan.New, b, 0); err != nil {
		return err
	}
	z, err := flate.NewWriter(io.Discard, flate.HuffmanOnly)
	if err != nil {
		return err
	}
	var n metered.Counter
	z.Reset(&n)
	if _, err := z.Write(b); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	t.dense = t.Size > 256 && int64(n) > t.Size-t.Size/32
	return nil
}

// parts returns the parts of a content that are converted: code, and tables.
func (t *target) parts() []script.Part {
	if len(t.plan.Streams) > 0 {
		return nil
	}
	var parts []script.Part
	for _, p := range elf.Parts(t.plan.New, t.Size) {
		if p.Kind == elf.Pairs && t.unwind != nil && p.Off >= t.unwind.Head && p.Off < t.unwind.Head+int64(t.unwind.Table) {
			continue // nothing is left of it
		}
		if p.Size >= minPart && len(parts) < codec.MaxParts {
			parts = append(parts, script.Part{Off: p.Off, Size: p.Size, Kind: codec.PartKinds[p.Kind]})
		}
	}
	return parts
}

// minPart is the size below which converting a part gains less than saying where it
// is costs.
const minPart = 64
