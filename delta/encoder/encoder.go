// Package encoder makes deltas on the build host: it opens the objects, plans how
// each content is made, codes the plan, and proves the delta by decoding it.
//
// It is not for the device: it holds whole files in memory, sorts them, and needs
// temporary files.
package encoder

import (
	"context"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// Options steer Encode. The zero value is ready to use.
type Options struct {
	// Workers is the number of files processed in parallel; 0 means one for each
	// CPU. It does not change the result.
	Workers int
	// Memory bounds the encoder's working memory in bytes, roughly; 0 means
	// 900 MiB. It does not change the result unless a single file of the window
	// size does not fit.
	Memory int64
	// TempDir holds copies of objects that cannot be read in place; "" means
	// the system's.
	TempDir string
	// FilesOnly makes a delta that reads only the contents of old files, and no
	// headers of old tars. It is for stores that keep a layer's unpacked files
	// and not its tar. Such a delta is up to a fifth larger.
	FilesOnly bool
	// Thrift makes a delta that takes less time to decode and is larger, in steps from
	// 0 to MaxThrift. What costs the fewest bytes for the time that it saves comes
	// first: bytes are not modelled, then deflate streams travel as they are.
	Thrift int
	// Effort is how much is tried to make the delta small.
	Effort Effort
	// NoDeflate and NoGo make a delta without streams that the decoder compresses, and
	// without those of Go's compress/flate.
	NoDeflate, NoGo bool
	// NoFar makes a delta that needs no temporary file.
	NoFar bool
	// NoUnwind makes a delta that knows nothing about unwind tables.
	NoUnwind bool
	// NoApart makes a delta that does not predict addresses whose parts stand apart in code.
	NoApart bool
	// NoShow makes a delta whose new bytes in bulk are coded without old ones.
	NoShow bool
	// NoParts makes a delta whose changed instructions are not coded by their parts.
	NoParts bool
	// Sums makes a delta whose literals in bulk take about half the time to decode, and have
	// 0.7 % more bytes.
	Sums bool
	// ByteCost is how many instructions (package budget) a device could execute in the time in
	// which a byte of the delta arrives. If it is more than 0, zstd compresses each object of
	// which a device has more in less time so: it takes more bytes and is quicker to decode.
	ByteCost int64
	// Progress, if set, is called from time to time, never concurrently, with
	// the bytes of the new image that are done, and their total.
	Progress func(done, total int64)
	// Shares, if set, gets what the delta is made of: bits by class. Literals in
	// bulk are not in it.
	Shares map[string]float64
}

// An Effort is how much is tried to make a delta small.
type Effort int

const (
	// Standard searches less once there are 64 MiB of new content.
	Standard Effort = iota
	// Quick always searches less: about a third of the time, and 4 to 7 % more bytes of new content.
	Quick
	// Best never does.
	Best
	// Stored searches for nothing: what is no unchanged old file is stored as it is. The
	// delta is for a compressor.
	Stored
)

// Encode writes one delta that rebuilds every object of new from the old
// images. An object of new that is, by digest, in an old image is omitted.
//
// The same input gives the same bytes. Encode reads every object that is not
// omitted and every old one completely, and checks their digests. It decodes what
// it writes: if it returns no error, the delta rebuilds the image. It uses about
// Options.Memory; debug.SetMemoryLimit bounds the garbage beyond that. Objects that
// cannot be read in place need their size in Options.TempDir.
func Encode(ctx context.Context, w io.Writer, old []delta.Image, new delta.Image, o Options) (*Report, error) {
	if o.ByteCost > 0 && o.Effort != Stored {
		return encodeByTime(ctx, w, old, new, o)
	}
	e := &encoder{opt: o}
	return e.encode(ctx, w, old, new)
}

func (e *encoder) encode(ctx context.Context, w io.Writer, old []delta.Image, new delta.Image) (*Report, error) {
	e.ctx = ctx
	e.memory.free.L = &e.memory.mu
	if e.memory.most = e.opt.Memory; e.opt.Memory <= 0 {
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

// proven writes the delta, and decodes it at the same time as a device will.
func (e *encoder) proven(w io.Writer) (*Report, error) {
	pr, pw := io.Pipe()
	proof := make(chan error, 1)
	go func() {
		err := e.prove(pr)
		// The encoder continues to write, and must not wait for a decoder that has
		// stopped.
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
	d, err := decoder.New(r)
	if err != nil {
		return err
	}
	old := e.store
	if old == nil {
		old = tarstore.New()
	}
	return d.Apply(e.ctx, old, e.opt.TempDir, func(delta.ObjectInfo) (delta.Sink, error) { return nowhere{}, nil })
}

// nowhere is a delta.Sink that drops the objects.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Commit() error               { return nil }
func (nowhere) Abort(error)                 {}

type encoder struct {
	ctx  context.Context
	opt  Options
	name string

	old   []*object
	new   []*object // nil where omitted
	info  []delta.ObjectInfo
	idx   *index
	store *tarstore.Store // of all old objects, for trials
	bases []delta.Base

	memory memory

	plans  []*objectPlan // by new object; bases are indexes into old
	packed map[int]bool  // the new objects that zstd compresses
	total  int64
	done   int64
}

func (e *encoder) close() {
	for _, h := range append(e.old, e.new...) {
		if h != nil {
			h.close()
		}
	}
}

func (e *encoder) open(old []delta.Image, new delta.Image) error {
	e.name = new.Name
	have := map[delta.Digest]bool{}
	type todo struct {
		o     delta.Object
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
	e.new = make([]*object, len(new.Objects))
	seen := map[delta.Digest]bool{}
	var work []int
	for i, o := range new.Objects {
		in := delta.ObjectInfo{Index: i, Digest: o.Digest, Size: o.Size, Kind: o.Kind, Encoding: delta.Omitted}
		if o.Kind != delta.Tar && o.Kind != delta.Blob {
			return fmt.Errorf("object %d has unknown kind %q", i, o.Kind)
		}
		if !have[o.Digest] && !seen[o.Digest] {
			in.Encoding = delta.Verbatim
			seen[o.Digest] = true
			work = append(work, i)
			e.total += o.Size
		}
		e.info = append(e.info, in)
	}
	if len(e.info) > delta.MaxObjects {
		return fmt.Errorf("%d objects are too many", len(e.info))
	}
	if len(work) == 0 {
		return nil
	}
	e.old = make([]*object, len(olds))
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
	var h delta.Header
	h.Image = e.name
	h.Memory = codec.Memory
	use := func(i *int) {
		if used[*i] == 0 {
			o := e.old[*i]
			h.Bases = append(h.Bases, delta.Base{Image: o.image, Digest: o.Digest, Size: o.Size, Kind: o.Kind})
			used[*i] = len(h.Bases)
		}
		*i = used[*i] - 1
	}
	streams, byGo, unwind, apart, show, parts := false, false, false, false, false, false
	uses := func(c *script.Content) bool {
		unwind = unwind || c.Unwind != nil
		apart = apart || c.Apart
		parts = parts || c.Split && c.Mode != elf.Off
		show = show || c.Show && c.Bulk && c.Mode != elf.Off
		for i := range c.Streams {
			streams = true
			byGo = byGo || c.Streams[i].Variant.IsGo()
		}
		if c.Op.Copies() || c.Op.Changes() {
			use(&c.Source.Base)
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
		for j := range p.Refs {
			use(&p.Refs[j])
			h.Bases[p.Refs[j]].Headers = true
			any = true
		}
		for _, t := range p.contents {
			if uses(t.plan) {
				files++
				any = true
			}
		}
		if any || len(h.Bases) > n {
			e.info[i].Encoding = delta.Delta
		}
	}
	if len(h.Bases) > delta.MaxObjects {
		return nil, fmt.Errorf("%d old objects are too many", len(h.Bases))
	}
	h.Objects = e.info
	h.Features = []string{delta.FeatureELF, delta.FeatureLZ}
	if streams {
		h.Features = append(h.Features, delta.FeatureDeflate)
	}
	if byGo {
		h.Features = append(h.Features, delta.FeatureGo)
	}
	literals, temp, sums := e.bulkWriter()
	if temp > 0 {
		h.Features = append(h.Features, delta.FeatureFar)
		h.Temp = temp
	}
	if unwind {
		h.Features = append(h.Features, delta.FeatureUnwind)
	}
	if sums {
		h.Features = append(h.Features, delta.FeatureSums)
	}
	if len(e.packed) > 0 {
		h.Features = append(h.Features, delta.FeaturePacked)
	}
	if apart {
		h.Features = append(h.Features, delta.FeatureApart)
	}
	if show {
		h.Features = append(h.Features, delta.FeatureShow)
	}
	if parts {
		h.Features = append(h.Features, delta.FeatureParts)
	}
	head, err := delta.AppendHeader(nil, h)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	c := codec.NewEncoder(e.ctx, w, literals, e.store, h.Bases, h.Size())
	if unwind {
		c.KnowUnwind()
	}
	if len(e.packed) > 0 {
		c.Pack(newPacker)
	}
	if apart {
		c.Apart()
	}
	if show {
		c.Show()
	}
	if parts {
		c.Parts()
	}
	if e.opt.Shares != nil {
		c.Shares(e.opt.Shares)
	}
	rep := &Report{Header: h, OldFiles: files}
	for i, in := range e.info {
		or := ObjectReport{ObjectInfo: in, Bytes: map[string]int64{}, Files: map[string]int{}}
		if p := e.plans[i]; p != nil {
			if err := e.code(c, in, p, &or); err != nil {
				return nil, fmt.Errorf("object %d (%s): %w", i, in.Digest, err)
			}
		}
		rep.Objects = append(rep.Objects, or)
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	coded, bulk := c.Sizes()
	rep.Size = int64(len(head)) + coded + bulk
	rep.Work = c.Work()
	return rep, nil
}

// code codes one object and records its cost.
func (e *encoder) code(c *codec.Codec, in delta.ObjectInfo, p *objectPlan, or *ObjectReport) error {
	before := c.Work()
	lastCoded, lastBulk := c.Sizes()
	account := func(kind string) {
		coded, bulk := c.Sizes()
		or.Bytes[kind] += coded - lastCoded
		lastCoded = coded
		if bulk > lastBulk {
			or.Bytes["bulk"] += bulk - lastBulk
			lastBulk = bulk
		}
		if e.opt.Progress != nil {
			e.opt.Progress(e.done+c.Written(), e.total)
		}
	}
	c.OnCoded(account)
	for _, t := range p.contents {
		or.Files[opNames[t.plan.Op]]++
	}
	if err := c.Encode(in, &p.Object); err != nil {
		return err
	}
	account("headers")
	or.Work, or.Packed = c.Work().Minus(before), e.packed[in.Index]
	e.done += in.Size
	return nil
}

var opNames = [script.NumOps]string{"same", "copied", "changed", "changed", "new", "new", "packed"}
