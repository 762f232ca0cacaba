package codec

import (
	"bytes"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// A content may contain deflate streams (RFC 1951): it is a gzip member, a zlib
// stream or a zip archive. If delta/deflate can make a stream again byte for byte,
// its uncompressed bytes are coded, against those of a stream of the old file, and
// the decoder compresses them. The bytes between such streams are coded as they
// are. A stream that the old file has too is copied along with them.

// Limits of the streams of a content. Their sizes are uncompressed.
const (
	MaxPlain    = 32 << 20 // bytes of a new stream
	MaxOldPlain = 4 << 20  // bytes of an old one that the decoder holds in memory
	MinStream   = 256      // a content of n bytes has at most 1+n/MinStream streams,
	PlainShare  = 64       // with MaxPlain+n*PlainShare bytes, old and new together
)

// envelopes is how many kinds of envelopes fit in the two bits that code them.
const envelopes = 4

// streamCoder codes contents that have streams.
type streamCoder struct {
	*run
	out      *output
	old      *oldChecks
	literals *literalCoder
	changes  *changeCoder

	more     [2]model.Prob // another stream follows: for the first, for further ones
	gap      *model.UintModel
	envelope [envelopes]model.Prob
	variant  [32]model.Prob
	size     *model.UintModel
	sameHead [envelopes]model.Prob
	lastHead [envelopes][]byte
	headSize *model.UintModel
	names    *model.ByteModel
	fromOld  model.Prob
	seekOld  *model.UintModel
	oldSize  *model.UintModel

	oldPlain plainFile // of the last old stream; the memory is reused
}

func newStreamCoder(r *run, out *output, old *oldChecks, literals *literalCoder, changes *changeCoder) *streamCoder {
	c := &streamCoder{run: r, out: out, old: old, literals: literals, changes: changes,
		gap: model.NewUintModel(), size: model.NewUintModel(), fromOld: model.FreshProb, seekOld: model.NewUintModel(), oldSize: model.NewUintModel(),
		lastHead: [envelopes][]byte{deflate.GzipEnvelope: deflate.GzipHead, deflate.ZlibEnvelope: deflate.ZlibHead}}
	for _, p := range [][]model.Prob{c.more[:], c.envelope[:], c.variant[:], c.sameHead[:]} {
		copy(p, model.FreshProbs(len(p)))
	}
	return c
}

// code codes a content with streams, whose operation is known.
func (c *streamCoder) code(e *content) (err error) {
	var f delta.File
	if e.op.Changes() {
		if f, err = c.old.open(e.src, e.oldSize); err != nil {
			return err
		}
		defer f.Close()
	}
	p := &streamsOf{streamCoder: c, e: e, f: f, end: c.out.written + e.Size, left: MaxPlain + e.Size*PlainShare}
	planned := e.plan.Streams
	for i := 0; ; i++ {
		if err := c.boundary(); err != nil {
			return err
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if !c.Flag(&c.more[min(i, 1)], i < len(planned)) {
			break
		}
		if int64(i) > e.Size/MinStream {
			return delta.FormatErrorf("a file has too many streams")
		}
		st := new(script.Stream)
		if c.Encoding {
			st = &planned[i]
		}
		h := st.StreamHead
		h.Gap = int64(c.Uint(c.gap, uint64(h.Gap)))
		if err := p.between(h.Gap); err != nil {
			return err
		}
		if err := p.stream(&h, st); err != nil {
			return err
		}
		if c.out.written > p.end {
			return delta.FormatErrorf("the streams of a file are larger than it")
		}
	}
	return p.between(p.end - c.out.written)
}

// streamsOf is the state of coding a content with streams.
type streamsOf struct {
	*streamCoder
	e      *content
	f      delta.File // what it is changed from, or nil
	end    int64      // where it ends in the object
	oldAt  int64      // where the last used bytes of the old file end
	left   int64      // bytes that streams may still have
	passed int64      // encoding: bytes between streams so far
}

// between codes the next n bytes of a content, up to a stream or the end.
func (p *streamsOf) between(n int64) error {
	if n > p.end-p.out.written {
		return delta.FormatErrorf("a stream is out of bounds")
	}
	if n == 0 {
		return nil
	}
	part := content{Place: script.Place{Path: p.e.Path, Size: n}, op: p.e.op, src: p.e.src, noELF: true, plan: noPlan}
	if p.Encoding {
		part.plan = &script.Content{
			New:     io.NewSectionReader(p.e.plan.New, p.out.written-(p.end-p.e.Size), n),
			Bulk:    p.e.plan.Bulk,
			Matches: script.Clip(p.e.plan.Matches, p.passed, p.passed+n),
		}
		p.passed += n
	}
	if p.f == nil {
		return p.literals.code(&part, p.e.op == script.Bulk)
	}
	err := p.changes.code(&part, p.f, p.oldAt)
	p.oldAt = p.changes.matches.ends[0]
	return err
}

// stream codes one stream, whose gap is known. plan is empty when decoding.
func (p *streamsOf) stream(h *script.StreamHead, plan *script.Stream) error {
	if err := p.head(h); err != nil {
		return err
	}
	p.left -= h.Size
	plain := content{Place: script.Place{Path: p.e.Path, Size: h.Size}, op: p.e.op, src: p.e.src, plan: noPlan}
	if p.Encoding {
		in, err := h.Envelope.Inflate(p.e.plan.New, plan.At, p.e.Size, MaxPlain)
		if err != nil {
			return err
		}
		plain.plan = &script.Content{New: bytes.NewReader(in.Plain), Bulk: p.e.plan.Bulk, Matches: plan.Matches}
	}
	var old delta.File
	if p.f != nil {
		if p.Flag(&p.fromOld, h.Old >= 0) {
			var err error
			if old, err = p.oldStream(h); err != nil {
				return err
			}
			defer old.Close()
			plain.noELF = h.OldSize > 0
		} else if plain.op = script.Literal; p.Flag(&p.literals.inBulk, plain.plan.Bulk) {
			plain.op = script.Bulk
		}
	}
	p.work.Deflated += h.Size
	if h.Variant.Level() < 6 {
		p.work.Deflated -= h.Size / 2
	}
	if err := p.out.beginStream(h.Envelope, h.Variant, h.Head); err != nil {
		return err
	}
	var err error
	switch {
	case h.Size == 0:
	case old != nil:
		err = p.changes.code(&plain, old, 0)
	default:
		err = p.literals.code(&plain, plain.op == script.Bulk)
	}
	if err != nil {
		return err
	}
	return p.out.endStream(h.Envelope)
}

// head codes how a stream is made.
func (p *streamsOf) head(h *script.StreamHead) error {
	h.Envelope = deflate.Envelope(p.Tree(p.envelope[:], 2, int(h.Envelope)))
	h.Variant = deflate.Variant(p.Tree(p.variant[:], 5, int(h.Variant)))
	h.Size = int64(p.Uint(p.size, uint64(h.Size)))
	if h.Envelope > deflate.ZlibEnvelope || h.Variant >= deflate.NumVariants {
		return delta.FormatErrorf("unknown compression")
	}
	if h.Size > min(MaxPlain, p.left) {
		return delta.FormatErrorf("a stream is too large")
	}
	if h.Envelope == deflate.NoEnvelope {
		return nil
	}
	last := &p.lastHead[h.Envelope]
	if p.Flag(&p.sameHead[h.Envelope], bytes.Equal(h.Head, *last)) {
		h.Head = *last
		return nil
	}
	n := p.Uint(p.headSize, uint64(len(h.Head)))
	if n > deflate.MaxHead {
		return delta.FormatErrorf("the head of a stream is too long")
	}
	head := make([]byte, n)
	copy(head, h.Head)
	for i := range head {
		head[i] = p.names.Byte(p.Coder, head[i], 1, 0)
	}
	h.Head, *last = head, head
	return nil
}

// oldStream codes which stream of the old file is used, and opens its uncompressed
// bytes.
func (p *streamsOf) oldStream(h *script.StreamHead) (delta.File, error) {
	h.Old = p.oldAt + p.Int(p.seekOld, h.Old-p.oldAt)
	if p.Short || h.Old < 0 || h.Old >= p.e.oldSize {
		return nil, delta.FormatErrorf("an old stream is out of bounds")
	}
	if h.OldSize = int64(p.Uint(p.oldSize, uint64(h.OldSize))); h.OldSize > 0 {
		if h.OldSize > p.left {
			return nil, delta.FormatErrorf("an old stream is too large")
		}
		p.left -= h.OldSize
		p.oldPlain = plainFile{} // free it: the ring uses its share of the memory
		return openForward(h.Envelope, p.f, h.Old, p.e.oldSize, h.OldSize, make([]byte, MaxOldPlain))
	}
	in, err := h.Envelope.InflateTo(&p.oldPlain, p.f, h.Old, p.e.oldSize, min(MaxOldPlain, p.left))
	if err != nil {
		return nil, delta.FormatErrorf("an old file lacks the expected stream: %v", err)
	}
	p.left -= p.oldPlain.size
	p.oldAt = in.End
	return &p.oldPlain, nil
}
