package encoder

import (
	"bytes"
	"io"
	"slices"

	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/align"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Files of these sizes are searched for streams: new ones of minSearched up to a
// window, old ones up to maxSearchedOld.
const (
	minSearched    = 18
	maxSearchedOld = codec.Window * 3 / 2
)

// foundStream is one that a scan found.
type foundStream struct {
	envelope deflate.Envelope
	at, end  int64
	size     int64 // of what is in it
	head     []byte
	name     string   // in an archive
	nth      int      // of that name
	sum      [32]byte // of the stream with its envelope
	variant  deflate.Variant
	tried    bool // variant was looked for,
	made     bool // and found
}

// planStreams plans a content with the uncompressed bytes of its streams, if it has
// streams that the decoder can make again and that no old file has.
func (e *encoder) planStreams(t *target, h *object, cands []*oldFile) (bool, error) {
	if e.opt.NoDeflate || t.Size < minSearched || t.Size > codec.Window {
		return false, nil
	}
	var magic [4]byte
	if err := readFull(h.r, magic[:], t.off); err != nil || string(magic[:]) == "\x7fELF" {
		return false, err
	}
	b, found, err := e.search(h.r, t.off, t.Size, codec.MaxPlain)
	if err != nil || len(found) == 0 {
		return false, err
	}
	var best *script.Content
	for _, f := range cands {
		if f.size > maxSearchedOld {
			continue
		}
		try, err := e.tryStreams(t, b, found, f)
		if err != nil {
			return false, err
		}
		if try != nil && (best == nil || try.Uncovered(t.Size) < best.Uncovered(t.Size)) {
			best = try
		}
	}
	if best == nil {
		try := *t.plan
		try.Op = script.Literal
		defer e.memory.take(t.Size + 2*largest(found))()
		if try.Streams, err = e.chooseStreams(b, found, nil, nil); err != nil {
			return false, err
		}
		best = &try
	}
	if len(best.Streams) == 0 {
		return false, nil
	}
	*t.plan = *best
	return true, nil
}

// search reads a file and finds its streams that have at most most uncompressed
// bytes.
func (e *encoder) search(r io.ReaderAt, off, size, most int64) ([]byte, []foundStream, error) {
	defer e.memory.take(2 * size)()
	b := make([]byte, size)
	if err := readFull(r, b, off); err != nil {
		return nil, nil, err
	}
	return b, scanStreams(b, most), nil
}

// largest returns the uncompressed size of the largest stream.
func largest(found []foundStream) (n int64) {
	for i := range found {
		n = max(n, found[i].size)
	}
	return n
}

// tryStreams plans to change f into the content. It returns nil if that saves
// nothing.
func (e *encoder) tryStreams(t *target, b []byte, found []foundStream, f *oldFile) (*script.Content, error) {
	old, foundOld, err := e.search(e.old[f.obj].r, f.off, f.size, maxSearchedOld)
	if err != nil {
		return nil, err
	}
	// Sorting takes up to six bytes a byte of what is old.
	defer e.memory.take(8*max(f.size, largest(foundOld)) + f.size + 2*t.Size + 2*largest(found))()
	try := t.from(f)
	if try.Streams, err = e.chooseStreams(b, found, old, foundOld); err != nil {
		return nil, err
	}
	var between []byte
	at := int64(0)
	for i := range try.Streams {
		st := &try.Streams[i]
		between = append(between, b[at:st.At]...)
		at = st.At + st.Length
	}
	if try.Matches, err = align.Find(e.ctx, old, append(between, b[at:]...)); err != nil {
		return nil, err
	}
	if n := try.Uncompressed(t.Size); len(try.Matches) > codec.MaxMatches || try.Uncovered(t.Size) >= n-n/8 {
		return nil, nil
	}
	return &try, nil
}

// chooseStreams chooses the streams whose uncompressed bytes are coded, and the old
// stream that each is changed from.
func (e *encoder) chooseStreams(b []byte, found []foundStream, old []byte, foundOld []foundStream) ([]script.Stream, error) {
	type key struct {
		envelope deflate.Envelope
		name     string
		nth      int
	}
	same := map[[32]byte]bool{}
	named := map[key]*foundStream{}
	for i := range foundOld {
		f := &foundOld[i]
		same[f.sum] = true
		named[key{f.envelope, f.name, f.nth}] = f
	}
	var out []script.Stream
	size := int64(len(b))
	left := codec.MaxPlain + size*codec.PlainShare
	at := int64(0)
	var hint deflate.Variant
	for i := range found {
		if err := e.ctx.Err(); err != nil {
			return nil, err
		}
		f := &found[i]
		if same[f.sum] || f.size > left || int64(len(out)) > size/codec.MinStream {
			continue
		}
		in, err := f.envelope.Inflate(bytes.NewReader(b), f.at, size, codec.MaxPlain)
		if err != nil {
			return nil, err
		}
		if !f.identify(b, in.Plain, hint, deflate.GoKnown() && !e.opt.NoGo) {
			continue
		}
		hint = f.variant
		st := script.Stream{At: f.at, Length: f.end - f.at, StreamHead: script.StreamHead{
			Envelope: f.envelope, Gap: f.at - at, Head: f.head, Variant: f.variant, Size: f.size, Old: -1}}
		left -= f.size
		if o := named[key{f.envelope, f.name, f.nth}]; o != nil && o.size <= left {
			was, err := o.envelope.Inflate(bytes.NewReader(old), o.at, int64(len(old)), o.size)
			if err != nil {
				return nil, err
			}
			matches, err := align.Find(e.ctx, was.Plain, in.Plain)
			if err != nil {
				return nil, err
			}
			var forward int64
			if o.size > codec.MaxOldPlain {
				matches, forward = ahead(matches), o.size
			}
			if len(matches) <= codec.MaxMatches && f.size-script.Covered(matches) < f.size-f.size/8 {
				st.Old, st.OldSize, st.Matches = o.at, forward, matches
				left -= o.size
			}
		}
		out = append(out, st)
		at = f.end
	}
	return out, nil
}

// ahead leaves out matches that lie too far back in an old stream, which is read
// only forward.
func ahead(matches []script.Match) []script.Match {
	var end int64
	return slices.DeleteFunc(matches, func(c script.Match) bool {
		if c.Old < end+codec.Chunk-codec.MaxOldPlain { // a chunk more may have been read
			return true
		}
		end = max(end, c.Old+c.Length)
		return false
	})
}
