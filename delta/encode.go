package delta

import (
	"context"
	"fmt"
	"io"
)

// Encode writes one delta that rebuilds every object of new from the old
// images. An object of new that is, by digest, in an old image is omitted.
//
// The same input gives the same bytes. Encode reads every object that is not
// omitted and every old one whole, and checks their digests. It decodes what it
// writes: when it returns without an error, the delta rebuilds the image. It
// has about Options.Memory in use at a time; how much garbage may come on top is
// for the program's debug.SetMemoryLimit to say. Objects that cannot be read in
// place need their size in Options.TempDir.
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
	return e.proven(w)
}

// proven writes the delta and decodes it beside, as a device will.
func (e *encoder) proven(w io.Writer) (*Report, error) {
	pr, pw := io.Pipe()
	proof := make(chan error, 1)
	go func() {
		err := e.prove(pr)
		// The encoder writes on, and must not wait for a reader that has gone.
		_, _ = io.Copy(io.Discard, pr)
		proof <- err
	}()
	rep, err := e.write(io.MultiWriter(w, pw))
	pw.CloseWithError(err)
	if perr := <-proof; err == nil && perr != nil {
		return nil, fmt.Errorf("the delta does not rebuild the image; this is a fault of the encoder: %w", perr)
	}
	return rep, err
}

func (e *encoder) prove(r io.Reader) error {
	d, err := NewReader(r)
	if err != nil {
		return err
	}
	old := e.store
	if old == nil {
		old = NewStore()
	}
	return d.Apply(e.ctx, old, func(ObjectInfo) (Sink, error) { return nowhere{}, nil })
}

// nowhere is a Sink for what is only checked.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Commit() error               { return nil }
func (nowhere) Abort(error)                 {}

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
			h.Bases = append(h.Bases, Base{Image: o.image, Digest: o.Digest, Size: o.Size, Kind: o.Kind})
			used[*i] = len(h.Bases)
		}
		*i = used[*i] - 1
	}
	packed, byGo := false, false
	uses := func(en *entry) bool {
		if en.pack != nil {
			packed = true
			for _, st := range en.pack.streams {
				byGo = byGo || st.variant.IsGo()
			}
		}
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
			h.Bases[p.refs[j]].Headers = true
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
	if packed {
		h.Features = append(h.Features, featDeflate)
	}
	if byGo {
		h.Features = append(h.Features, featGo)
	}
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
	lastSize, lastBulk := s.size-s.bulkSize+int64(s.Coder.Len()), s.bulkSize
	s.stat = func(kind string) {
		now := s.size - s.bulkSize + int64(s.Coder.Len())
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
