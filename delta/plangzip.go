package delta

import (
	"bytes"
	"errors"
	"io"

	"github.com/mender-app/mender-app/delta/deflate"
)

// planGzip codes a content by what is in it, if it is a gzip member that the
// decoder can make again.
func (e *encoder) planGzip(en *entry, off int64, h *hostObject, cands []*oldFile) (bool, error) {
	var magic [18]byte
	if en.size < int64(len(magic)) || en.size > maxPlain {
		return false, nil
	}
	if err := readFull(h.r, magic[:], off); err != nil || !isGzip(magic[:]) {
		return false, err
	}
	defer e.memory.take(3 * maxPlain)()
	raw := make([]byte, en.size)
	if err := readFull(h.r, raw, off); err != nil {
		return false, err
	}
	plain, head, err := gunzip(bytes.NewReader(raw), nil, maxPlain)
	if err != nil {
		return false, nil
	}
	v, ok := findVariant(head, raw[len(head):len(raw)-8], plain)
	if !ok {
		return false, nil
	}
	p := &packing{head: head, variant: v, size: int64(len(plain))}
	best := *en
	best.op, best.pack = opLiteral, p
	for _, f := range cands {
		try := best
		b, _, err := gunzip(io.NewSectionReader(e.old[f.obj].r, f.off, f.size), nil, maxOldPlain)
		if err != nil {
			continue
		}
		try.op, try.src, try.osize = opDiffOf, source{f.obj, f.path}, f.size
		if try.ref != nil && *try.ref == try.src {
			try.op = opDiff
		}
		if try.covers, err = align(e.ctx, b, plain); err != nil {
			return false, err
		}
		if len(try.covers) > maxCovers {
			continue
		}
		if n := try.uncovered(); n < p.size-p.size/8 && n < best.uncovered() {
			best = try
		}
	}
	*en = best
	return true, nil
}

var errDiffers = errors.New("differs")

// comparer fails at the first byte that differs.
type comparer struct{ want []byte }

func (c *comparer) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(c.want, b) {
		return 0, errDiffers
	}
	c.want = c.want[len(b):]
	return len(b), nil
}

// findVariant finds out how plain was compressed to raw.
func findVariant(head, raw, plain []byte) (deflate.Variant, bool) {
	var first, rest []deflate.Variant
	for l := 9; l >= 1; l-- {
		// Both programs say whether they were to be slow or fast.
		xfl := byte(0)
		switch l {
		case 9:
			xfl = 2
		case 1:
			xfl = 4
		}
		if head[8] == xfl {
			first = append(first, deflate.GNU(l), deflate.Zlib(l))
		} else {
			rest = append(rest, deflate.GNU(l), deflate.Zlib(l))
		}
	}
	z := new(deflate.Writer)
	for _, v := range append(first, rest...) {
		c := &comparer{raw}
		z.Reset(c, v)
		if _, err := z.Write(plain); err != nil {
			continue
		}
		if z.Close() == nil && len(c.want) == 0 {
			return v, true
		}
	}
	return 0, false
}
