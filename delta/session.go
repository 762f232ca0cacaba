package delta

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"

	"github.com/mender-app/mender-app/delta/elf"

	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// A session codes one object after the other. The encoder and the decoder run
// the same session; what one decides, the other reads (see coder).
type session struct {
	*frames
	ctx     context.Context
	old     Old
	bases   []Base
	header  *headerModel
	op      [numOps * 4 * 2][8]model.Prob
	lastOp  int
	more    model.Prob
	ref     [maxRefs + 2][8]model.Prob
	skip    *model.UintModel
	from    [maxRefs + 2]model.Prob
	count   *model.UintModel
	base    []model.Prob
	path    *model.ByteModel
	asNamed model.Prob // an old file has the member's path
	same    model.Prob
	pad     model.Prob
	diff    *differ
	before  checks // of files that contents are changed from
	copies  checks
	heads   []headCheck
	batch   batch
	walk    walk
	useSums bool // remember MD5 sums, see sums.go
	md5     hash.Hash
	sums    map[uint64][md5.Size]byte
	buf     []byte

	hasStreams [2]model.Prob // by the name
	streams    [2]model.Prob // one more: the first, another
	gap        *model.UintModel
	framing    [framings]model.Prob
	variant    [32]model.Prob
	plainSize  *model.UintModel
	sameHead   [framings]model.Prob
	lastHead   [framings][]byte
	fromOld    model.Prob
	seekOld    *model.UintModel
	oldSize    *model.UintModel
	packer     *packer
	packing    bool
	oldPlain   []byte

	out   io.Writer // the object; nil when encoding
	sum   hash.Hash
	wrote int64
	limit int64 // size of the object

	stat func(kind string) // encoding: what was coded since the last call
}

const chunk = 64 << 10

func newSession(ctx context.Context, f *frames, old Old, bases []Base) *session {
	s := &session{
		frames: f, ctx: ctx, old: old, bases: bases,
		header: newHeaderModel(),
		more:   model.FreshProb, same: model.FreshProb, pad: model.FreshProb,
		skip: model.NewUintModel(), count: model.NewUintModel(),
		base: model.FreshProbs(1 << baseBits(len(bases))),
		path: model.NewByteModel(6, 11, 14, 1), asNamed: model.FreshProb, diff: newDiffer(),
		buf:  make([]byte, chunk),
		stat: func(string) {},

		gap: model.NewUintModel(), plainSize: model.NewUintModel(), fromOld: model.FreshProb, seekOld: model.NewUintModel(), oldSize: model.NewUintModel(),
		lastHead: [framings][]byte{gzipped: gzipHead, zlibbed: zlibHead},
	}
	for _, p := range [][]model.Prob{s.hasStreams[:], s.streams[:], s.framing[:], s.variant[:], s.sameHead[:]} {
		copy(p, model.FreshProbs(len(p)))
	}
	for i := range s.op {
		copy(s.op[i][:], model.FreshProbs(8))
	}
	for i := range s.ref {
		copy(s.ref[i][:], model.FreshProbs(8))
		s.from[i] = model.FreshProb
	}
	return s
}

func baseBits(n int) int {
	b := 0
	for 1<<b < n {
		b++
	}
	return b
}

// Operations that make the content of a member.
const (
	opSame    = iota // the old file of the reference
	opCopy           // another old file
	opDiff           // changed from the old file of the reference
	opDiffOf         // changed from another old file
	opLiteral        // modelled byte by byte
	opBulk           // in the frame's bulk part
	numOps
)

// source is an old file.
type source struct {
	base int
	path string
}

// entry is what a session knows, and what an encoder decided, of one content.
type entry struct {
	path  string
	size  int64
	ref   *source // the reference's file, if it has one
	rsize int64
	// Encoding only.
	op     int
	src    source
	new    io.ReaderAt // the content
	covers []script.Match
	osize  int64 // of src
	mode   elf.Mode
	dense  bool     // literals that are compressed already
	bulk   bool     // what is not covered goes to the bulk part
	noELF  bool     // addresses are not predicted
	pack   *packing // nil: it has no streams, or none that help
}

// write passes on rebuilt bytes of a content, or of what is in a stream of it.
func (s *session) write(b []byte) error {
	if s.packing {
		return s.packer.write(b)
	}
	return s.emit(b)
}

// emit passes on bytes of the object.
func (s *session) emit(b []byte) error {
	s.wrote += int64(len(b))
	if s.md5 != nil {
		s.md5.Write(b)
	}
	if s.wrote > s.limit {
		return formatError("an object is larger than announced")
	}
	if s.out == nil {
		return nil
	}
	s.sum.Write(b)
	_, err := s.out.Write(b)
	return err
}

// content codes one content and passes it on.
func (s *session) content(e *entry) error {
	if err := s.choice(e); err != nil {
		return err
	}
	if err := s.verify([]*entry{e}); err != nil {
		return err
	}
	return s.body(e)
}

// choice codes how a content is made and from which old file.
func (s *session) choice(e *entry) error {
	if e.size == 0 {
		return nil
	}
	if e.size > s.limit-s.wrote {
		return formatError("a member is larger than its object")
	}
	cls := 0
	if e.ref != nil {
		cls = 1
		if e.rsize == e.size {
			cls = 2
		}
	}
	op := s.Tree(s.op[(s.lastOp<<2|cls)<<1][:], 3, e.op)
	if op >= numOps {
		return formatError("unknown operation")
	}
	s.lastOp = op
	src := e.src
	switch op {
	case opSame, opDiff:
		if e.ref == nil {
			return formatError("a member has no reference")
		}
		src = *e.ref
	case opCopy, opDiffOf:
		var err error
		if src, err = s.source(src, e.path); err != nil {
			return err
		}
	}
	if op == opDiff || op == opDiffOf {
		if e.ref != nil && *e.ref == src {
			e.osize = e.rsize
		} else {
			e.osize = int64(s.Uint(s.diff.size, uint64(e.osize)))
		}
	}
	e.op, e.src = op, src
	if op != opSame && op != opCopy {
		k := 0
		if strings.HasSuffix(e.path, ".gz") {
			k = 1
		}
		if !s.Flag(&s.hasStreams[k], e.pack != nil) {
			e.pack = nil
		} else if e.pack == nil {
			e.pack = new(packing)
		}
	}
	s.stat("ops")
	return nil
}

// body passes a content on.
func (s *session) body(e *entry) error {
	if e.size == 0 {
		return nil
	}
	if e.size > s.limit-s.wrote {
		return formatError("a member is larger than its object")
	}
	// Copies are verified only later: no model may follow their sums.
	if s.useSums && e.op != opSame && e.op != opCopy && len(s.sums) < maxSums {
		s.md5 = md5.New()
		defer func() {
			var sum [md5.Size]byte
			s.md5.Sum(sum[:0])
			s.sums[pathKey(e.path)] = sum
			s.md5 = nil
		}()
	}
	switch {
	case e.op == opSame || e.op == opCopy:
		return s.copyFile(e.src, e.size)
	case e.pack != nil:
		return s.packed(e)
	case e.op == opDiff || e.op == opDiffOf:
		f, err := s.openOld(e.src, e.osize)
		if err != nil {
			return err
		}
		defer f.Close()
		return s.changed(e, f, 0)
	}
	return s.literal(e, e.op == opBulk)
}

// source codes which old file is meant, for a member at path.
func (s *session) source(src source, path string) (source, error) {
	src.base = s.Tree(s.base, baseBits(len(s.bases)), src.base)
	if src.base >= len(s.bases) {
		return src, formatError("unknown base")
	}
	if s.Flag(&s.asNamed, src.path == path) {
		src.path = path
		return src, nil
	}
	for i := range len(path) {
		s.path.See(path[i])
	}
	s.path.See(0)
	n := 0
	p := []byte(src.path)
	got := make([]byte, 0, 64)
	for ; ; n++ {
		var v byte
		if n < len(p) {
			v = p[n]
		}
		v = s.path.Byte(s.Coder, v, 0, 0)
		if v == 0 {
			break
		}
		if got = append(got, v); len(got) > maxPath || s.Short {
			return src, formatError("a path is too long")
		}
	}
	src.path = string(got)
	if src.path != "" && cleanPath(src.path) != src.path {
		return src, formatError("a path is not clean")
	}
	return src, nil
}

// openOld opens an old file; size < 0 takes any.
func (s *session) openOld(src source, size int64) (File, error) {
	b := s.bases[src.base]
	f, err := s.old.OpenFile(s.ctx, b.Digest, src.path)
	if err != nil {
		e := &OldError{Base: b, Path: src.path, Problem: NoFile, Err: err}
		if errors.Is(err, ErrNoObject) {
			e.Problem = NoBase
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open old file %q: %w", src.path, err)
		}
		return nil, e
	}
	if size >= 0 && f.Size() != size {
		err := fmt.Errorf("%d bytes, not %d", f.Size(), size)
		f.Close()
		return nil, &OldError{Base: b, Path: src.path, Problem: DamagedFile, Err: err}
	}
	return f, nil
}

// copyFile passes on an old file as it is.
func (s *session) copyFile(src source, size int64) error {
	f, err := s.openOld(src, size)
	if err != nil {
		return err
	}
	defer f.Close()
	crc := uint32(0)
	for off := int64(0); off < size; {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		b := s.buf[:min(chunk, size-off)]
		if err := s.readOld(f, src, b, off); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, b)
		if err := s.write(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	s.copies.add(src, crc)
	return nil
}

func (s *session) readOld(f File, src source, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, ErrFormat) {
		return err
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &OldError{Base: s.bases[src.base], Path: src.path, Problem: DamagedFile, Err: err}
}

// literal codes content that nothing old helps with.
func (s *session) literal(e *entry, bulk bool) error {
	for off := int64(0); off < e.size; {
		if off > 0 {
			if err := s.rest(); err != nil {
				return err
			}
			if err := s.ctx.Err(); err != nil {
				return err
			}
		}
		b := s.buf[:min(chunk, e.size-off)]
		if s.Encoding {
			if err := readFull(e.new, b, off); err != nil {
				return err
			}
		}
		if bulk {
			if err := s.literals(b); err != nil {
				return err
			}
		} else {
			s.diff.literals(s.Coder, b, off)
			s.stat("literals")
		}
		if err := s.write(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
