package delta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/align"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Files of these sizes are looked through for streams: new ones of minPacked up
// to a window, old ones up to maxPackedOld.
const (
	minPacked    = 18
	maxPackedOld = window * 3 / 2
)

// foundStream is one that a scan found.
type foundStream struct {
	framing
	at, end int64
	size    int64 // of what is in it
	head    []byte
	name    string   // in an archive
	nth     int      // of that name
	sum     [32]byte // of the stream with its framing
	variant deflate.Variant
	tried   bool // variant was looked for,
	made    bool // and found
}

// planPacked codes a content by what is in its streams, if it has some that the
// decoder can make again and that no old file has.
func (e *encoder) planPacked(en *entry, off int64, h *hostObject, cands []*oldFile) (bool, error) {
	if en.size < minPacked || en.size > window {
		return false, nil
	}
	var magic [4]byte
	if err := readFull(h.r, magic[:], off); err != nil || string(magic[:]) == "\x7fELF" {
		return false, err
	}
	b, found, err := e.lookThrough(h.r, off, en.size, maxPlain)
	if err != nil || len(found) == 0 {
		return false, err
	}
	var best *entry
	for _, f := range cands {
		if f.size > maxPackedOld {
			continue
		}
		try := *en
		if err := e.tryPacked(&try, b, found, f); err != nil {
			return false, err
		}
		if try.pack != nil && (best == nil || try.uncovered() < best.uncovered()) {
			best = &try
		}
	}
	if best == nil {
		try := *en
		try.op = opLiteral
		defer e.memory.take(en.size + 2*largest(found))()
		if try.pack, err = e.takeApart(b, found, nil, nil); err != nil {
			return false, err
		}
		best = &try
	}
	if len(best.pack.streams) == 0 {
		return false, nil
	}
	*en = *best
	return true, nil
}

// lookThrough reads a file and finds its streams with at most so much in each.
func (e *encoder) lookThrough(r io.ReaderAt, off, size, most int64) ([]byte, []foundStream, error) {
	defer e.memory.take(2 * size)()
	b := make([]byte, size)
	if err := readFull(r, b, off); err != nil {
		return nil, nil, err
	}
	return b, scanStreams(b, most), nil
}

// largest returns how much is in the stream that has the most in it.
func largest(found []foundStream) (n int64) {
	for i := range found {
		n = max(n, found[i].size)
	}
	return n
}

// tryPacked plans to change f into the content; try.pack is nil if there is
// nothing in it.
func (e *encoder) tryPacked(try *entry, b []byte, found []foundStream, f *oldFile) error {
	old, foundOld, err := e.lookThrough(e.old[f.obj].r, f.off, f.size, maxPackedOld)
	if err != nil {
		return err
	}
	// A suffix array takes 13 bytes a byte of what is old.
	defer e.memory.take(16*max(f.size, largest(foundOld)) + f.size + 2*try.size + 2*largest(found))()
	try.op, try.src, try.osize = opDiffOf, source{f.obj, f.path}, f.size
	if try.ref != nil && *try.ref == try.src {
		try.op = opDiff
	}
	if try.pack, err = e.takeApart(b, found, old, foundOld); err != nil {
		return err
	}
	var between []byte
	at := int64(0)
	for _, st := range try.pack.streams {
		between = append(between, b[at:st.at]...)
		at = st.at + st.length
	}
	if try.covers, err = align.Find(e.ctx, old, append(between, b[at:]...)); err != nil {
		return err
	}
	if n := try.length(); len(try.covers) > maxCovers || try.uncovered() >= n-n/8 {
		try.pack = nil
	}
	return nil
}

// takeApart chooses the streams that are worth it, and what each is changed
// from.
func (e *encoder) takeApart(b []byte, found []foundStream, old []byte, foundOld []foundStream) (*packing, error) {
	type key struct {
		framing
		name string
		nth  int
	}
	same := map[[32]byte]bool{}
	named := map[key]*foundStream{}
	for i := range foundOld {
		f := &foundOld[i]
		same[f.sum] = true
		named[key{f.framing, f.name, f.nth}] = f
	}
	p := &packing{}
	size := int64(len(b))
	left := maxPlain + size*plainShare
	at := int64(0)
	var hint deflate.Variant
	for i := range found {
		if err := e.ctx.Err(); err != nil {
			return nil, err
		}
		f := &found[i]
		if same[f.sum] || f.size > left || int64(len(p.streams)) > size/minStream {
			continue
		}
		in, err := f.inflate(bytes.NewReader(b), f.at, size, nil, maxPlain)
		if err != nil {
			return nil, err
		}
		if !f.tried {
			f.tried = true
			raw := b[f.at+int64(len(f.head)) : f.end-int64(len(f.appendTail(nil, f.framing.sum(), 0)))]
			f.variant, f.made = findVariant(f.framing, f.head, raw, in.plain, hint)
		}
		if !f.made {
			continue
		}
		hint = f.variant
		st := packedStream{framing: f.framing, gap: f.at - at, head: f.head, variant: f.variant, size: f.size, old: -1, at: f.at, length: f.end - f.at}
		left -= f.size
		if o := named[key{f.framing, f.name, f.nth}]; o != nil && o.size <= left {
			was, err := o.inflate(bytes.NewReader(old), o.at, int64(len(old)), nil, o.size)
			if err != nil {
				return nil, err
			}
			covers, err := align.Find(e.ctx, was.plain, in.plain)
			if err != nil {
				return nil, err
			}
			var forward int64
			if o.size > maxOldPlain {
				covers, forward = ahead(covers), o.size
			}
			if len(covers) <= maxCovers && f.size-script.Covered(covers) < f.size-f.size/8 {
				st.old, st.oldSize, st.covers = o.at, forward, covers
				left -= o.size
			}
		}
		p.streams = append(p.streams, st)
		at = f.end
	}
	return p, nil
}

// ahead leaves out covers that are too far behind for a forwardFile.
func ahead(covers []script.Match) []script.Match {
	var end int64
	return slices.DeleteFunc(covers, func(c script.Match) bool {
		if c.Old < end+chunk-maxOldPlain { // a chunk more may have been read
			return true
		}
		end = max(end, c.Old+c.Length)
		return false
	})
}

// zipLocal begins the header of an entry of a zip archive (PKWARE's APPNOTE.TXT,
// 4.3.7).
var zipLocal = []byte("PK\x03\x04")

const zipHead = 30 // bytes of it before the name

// scanStreams finds the streams of a file: members of gzip and deflated entries
// of zip archives anywhere, a zlib stream at its beginning.
func scanStreams(b []byte, most int64) []foundStream {
	var out []foundStream
	count := map[string]int{}
	r := bytes.NewReader(b)
	size := int64(len(b))
	// add looks for a stream whose framing begins at an offset.
	add := func(k framing, at int64, name string) (end int64, ok bool) {
		in, err := k.inflate(r, at, size, nil, most)
		if err != nil {
			return at, false
		}
		id := string(rune('0'+k)) + name
		out = append(out, foundStream{framing: k, at: at, end: in.end, size: int64(len(in.plain)),
			head: in.head, name: name, nth: count[id], sum: sha256.Sum256(b[at:in.end])})
		count[id]++
		return in.end, true
	}
	at, ok := int64(0), false
	if at, ok = add(zlibbed, 0, ""); ok {
		return out
	}
	g, z := int64(-1), int64(-1) // the next of each; looked for anew only once it is behind
	for at < size {
		if g < at {
			g = indexFrom(b, gzipHead[:3], at)
		}
		if z < at {
			z = indexFrom(b, zipLocal, at)
		}
		switch {
		case g == size && z == size:
			return out
		case g < z:
			if at, ok = add(gzipped, g, ""); !ok {
				at = g + 1
			}
		default:
			at = z + int64(len(zipLocal))
			h := b[z:]
			if len(h) < zipHead || h[6]&1 != 0 || binary.LittleEndian.Uint16(h[8:]) != 8 {
				continue // cut short, encrypted, or not deflated
			}
			n := zipHead + int(binary.LittleEndian.Uint16(h[26:]))
			m := n + int(binary.LittleEndian.Uint16(h[28:]))
			if m >= len(h) {
				continue
			}
			if end, ok := add(bare, z+int64(m), string(h[zipHead:n])); ok {
				at = end
			}
		}
	}
	return out
}

// indexFrom returns where b has sep at or after an offset, or its length.
func indexFrom(b, sep []byte, at int64) int64 {
	if i := bytes.Index(b[at:], sep); i >= 0 {
		return at + int64(i)
	}
	return int64(len(b))
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

// findVariant finds out how plain was compressed to raw; hint is tried first.
func findVariant(k framing, head, raw, plain []byte, hint deflate.Variant) (deflate.Variant, bool) {
	try := []deflate.Variant{hint}
	var rest []deflate.Variant
	for l := 9; l >= 1; l-- {
		v := []deflate.Variant{deflate.GNU(l), deflate.Zlib(l)}
		if deflate.GoKnown() {
			v = append(v, deflate.Go(l))
		}
		if likely(k, head, l) {
			try = append(try, v...)
		} else {
			rest = append(rest, v...)
		}
	}
	z := new(deflate.Writer)
	for _, v := range append(try, rest...) {
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

// likely tells whether the head of a stream fits a level: gzip and zlib say
// whether they were to be slow or fast.
func likely(k framing, head []byte, level int) bool {
	switch k {
	case gzipped:
		return head[8] == [10]byte{1: 4, 9: 2}[level]
	case zlibbed:
		return head[1]>>6 == [10]byte{1: 0, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2, 7: 3, 8: 3, 9: 3}[level]
	}
	return level == 5 || level == 6
}
