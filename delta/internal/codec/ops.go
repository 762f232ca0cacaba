package codec

import (
	"strings"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// content is one content that is being coded, and what the decoder knows about it.
type content struct {
	script.Place
	op      script.Op
	src     script.Source
	oldSize int64 // of src
	streams bool  // it has streams whose uncompressed bytes are coded
	noELF   bool  // addresses are not predicted
	whole   bool  // it is an object that is not split into members
	// plan is what the encoder decided; it is empty when decoding.
	plan *script.Content
}

var noPlan = new(script.Content)

// opCoder codes how a content is made, and from which old file.
type opCoder struct {
	*run
	bases      int
	op         [script.NumOps * 4 * 2][8]model.Prob
	last       script.Op
	base       []model.Prob
	names      *model.ByteModel // paths and the heads of streams
	asNamed    model.Prob       // an old file has the member's path
	oldSize    *model.UintModel
	hasStreams [2]model.Prob // by the name
	packs      bool          // whole objects may be packed
}

func newOpCoder(r *run, bases int, names *model.ByteModel) *opCoder {
	c := &opCoder{run: r, bases: bases, base: model.FreshProbs(1 << bitsFor(bases)), names: names,
		asNamed: model.FreshProb, oldSize: model.NewUintModel()}
	copy(c.hasStreams[:], model.FreshProbs(2))
	for i := range c.op {
		copy(c.op[i][:], model.FreshProbs(8))
	}
	return c
}

// code codes the operation of a content of at most left bytes.
func (c *opCoder) code(e *content, left int64) error {
	if e.Size == 0 {
		return nil
	}
	if e.Size > left {
		return delta.FormatErrorf("a member is larger than its object")
	}
	class := script.Op(0)
	if e.Ref != nil {
		class = 1
		if e.RefSize == e.Size {
			class = 2
		}
	}
	e.op = script.Op(c.Tree(c.op[(c.last<<2|class)<<1][:], 3, int(e.plan.Op)))
	if e.op >= script.NumOps || e.op == script.Packed && !(c.packs && e.whole) {
		return delta.FormatErrorf("unknown operation")
	}
	c.last = e.op
	switch e.op {
	case script.Same, script.Change:
		if e.Ref == nil {
			return delta.FormatErrorf("a member has no reference")
		}
		e.src = *e.Ref
	case script.Copy, script.ChangeOther:
		var err error
		if e.src, err = c.source(e.plan.Source, e.Path); err != nil {
			return err
		}
	}
	if e.op.Changes() {
		if e.Ref != nil && *e.Ref == e.src {
			e.oldSize = e.RefSize
		} else {
			e.oldSize = int64(c.Uint(c.oldSize, uint64(e.plan.OldSize)))
		}
	}
	if !e.op.Copies() && e.op != script.Packed {
		k := 0
		if strings.HasSuffix(e.Path, ".gz") {
			k = 1
		}
		e.streams = c.Flag(&c.hasStreams[k], len(e.plan.Streams) > 0)
	}
	c.stat("ops")
	c.share("operations")
	return nil
}

// source codes which old file is used, for a member at path.
func (c *opCoder) source(src script.Source, path string) (script.Source, error) {
	src.Base = c.Tree(c.base, bitsFor(c.bases), src.Base)
	if src.Base >= c.bases {
		return src, delta.FormatErrorf("unknown base")
	}
	if c.Flag(&c.asNamed, src.Path == path) {
		src.Path = path
		return src, nil
	}
	for i := range len(path) {
		c.names.See(path[i])
	}
	c.names.See(0)
	got := make([]byte, 0, 64)
	for n := 0; ; n++ {
		var v byte
		if n < len(src.Path) {
			v = src.Path[n]
		}
		v = c.names.Byte(c.Coder, v, 0, 0)
		if v == 0 {
			break
		}
		if got = append(got, v); len(got) > tarheader.MaxPath || c.Short {
			return src, delta.FormatErrorf("a path is too long")
		}
	}
	src.Path = string(got)
	if src.Path != "" && tarheader.CleanPath(src.Path) != src.Path {
		return src, delta.FormatErrorf("a path is not clean")
	}
	return src, nil
}
