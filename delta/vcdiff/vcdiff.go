// Package vcdiff decodes VCDIFF deltas (RFC 3284) as xdelta3 writes them, in
// bounded memory: what the archived shell module's generator put into its
// artifacts, made with `xdelta3 -e -s OLD NEW`.
//
// Understood are windows with and without a source segment, the default code
// table, and xdelta3's extensions: the Adler-32 of each window (verified),
// the application header, and secondary compression. Debian's xdelta3 3.0.11
// compresses with LZMA unless told otherwise; that is decoded here. DJW and
// FGK, which must be asked for (-S djw), go through the xdelta3 command if
// Options names it. VCD_TARGET windows and custom code tables, which xdelta3
// does not write, are refused by name.
//
// The package knows nothing of container images; the package archive beside
// it does.
package vcdiff

import (
	"context"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
)

// Defaults of Options.
const (
	DefaultMaxWindow = 16 << 20 // what xdelta3 allows at most; it uses 8 MiB
	DefaultMaxMemory = 24 << 20
)

// Options bound a decode. The zero value is a good choice.
type Options struct {
	// MaxWindow is the largest window that is decoded, in bytes. 0 means
	// DefaultMaxWindow.
	MaxWindow int64
	// MaxMemory bounds the buffers that the delta sizes: the window, its
	// instructions, and the dictionaries of the secondary compression. What
	// is needed beside them is about 1.5 MiB. 0 means DefaultMaxMemory, with
	// which a process that does nothing else stays under 32 MiB.
	MaxMemory int64
	// MaxTarget is the largest target, in bytes. 0 means no bound: the
	// target is not kept.
	MaxTarget int64
	// Xdelta3 is the xdelta3 command, as a path or a name to look up in
	// PATH, for the secondary compressors that are not decoded here. It is
	// run with a fixed environment as `xdelta3 recode`, which needs neither
	// the old file nor temporary files, and takes about 20 MiB of its own.
	// "" means never to run it.
	Xdelta3 string
}

func (o Options) maxWindow() int64 {
	if o.MaxWindow > 0 {
		return o.MaxWindow
	}
	return DefaultMaxWindow
}

// A Reader gives the target of a delta. Each window is verified before its
// first byte is given out. It is not safe for concurrent use.
//
// A delta cut off exactly between two windows reads as a shorter target
// without an error, see Scan.
type Reader struct {
	opts Options
	ctx  context.Context
	wire wire
	src  source
	hdr  Header
	cmd  *recoder // nil unless the delta goes through xdelta3
	sec  secondary
	mem  budget

	win  []byte // the window: target, and at its end what is left of the data
	inst []byte
	addr [4 << 10]byte
	out  []byte // verified and not yet read

	windows int64
	target  int64
	err     error
}

// NewReader reads the delta's header and returns a Reader of its target. src
// is the old file and srcSize its size. The context governs the decode and
// the xdelta3 command, should it be run. Close frees what that takes; it does
// not close src or delta.
func NewReader(ctx context.Context, src io.ReaderAt, srcSize int64, delta io.Reader, opts Options) (*Reader, error) {
	r := &Reader{opts: opts}
	if err := r.Reset(ctx, src, srcSize, delta); err != nil {
		return nil, err
	}
	return r, nil
}

// Reset makes r read another delta with the same options, and keeps its
// buffers: whoever decodes several deltas in a row stays within the memory of
// one. r is closed first if need be. The zero Reader may be Reset too.
func (r *Reader) Reset(ctx context.Context, src io.ReaderAt, srcSize int64, delta io.Reader) error {
	if err := r.Close(); err != nil {
		return err
	}
	r.mem.limit = r.opts.MaxMemory
	if r.mem.limit <= 0 {
		r.mem.limit = DefaultMaxMemory
	}
	r.ctx, r.err, r.out, r.windows, r.target = ctx, nil, nil, 0, 0
	r.src.reset(src, srcSize)
	r.wire.reset(delta)
	if r.hdr, r.err = readHeader(&r.wire); r.err != nil {
		return r.err
	}
	app := r.hdr.App
	if id := r.hdr.Secondary; (id == DJW || id == FGK) && r.opts.Xdelta3 != "" {
		if r.cmd, r.err = recode(ctx, r.opts.Xdelta3, r.hdr, r.wire.br); r.err != nil {
			return r.err
		}
		r.wire = wire{} // the command keeps the old one's buffer
		r.wire.reset(r.cmd.out)
		var err error
		if r.hdr, err = readHeader(&r.wire); err != nil {
			return r.fail(err)
		}
	}
	r.hdr.App = app
	r.sec.reset(r.hdr.Secondary, &r.mem)
	return nil
}

// Header gives the delta's header. After an xdelta3 recode, Secondary is
// NoSecondary.
func (r *Reader) Header() Header { return r.hdr }

// Close ends the xdelta3 command if one runs. Read fails afterwards.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("vcdiff: reader is closed")
	}
	r.out = nil
	r.src.reset(nil, 0)
	if r.cmd == nil {
		return nil
	}
	r.cmd.kill()
	r.cmd = nil
	return nil
}

// Read gives the next bytes of the target.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		if err := r.next(); err != nil {
			return 0, r.fail(err)
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// WriteTo writes the rest of the target to w, a window a write.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if len(r.out) > 0 {
			m, err := w.Write(r.out)
			n += int64(m)
			r.out = r.out[m:]
			if err != nil {
				return n, err
			}
			continue
		}
		if r.err == nil {
			if err := r.next(); err != nil {
				_ = r.fail(err)
			}
			continue
		}
		if r.err == io.EOF {
			return n, nil
		}
		return n, r.err
	}
}

// fail notes the error that ends the decode, and says where it happened. A
// failure of xdelta3 comes first: it is the cause of what was read from it.
func (r *Reader) fail(err error) error {
	if err != io.EOF {
		err = fmt.Errorf("window %d: %w", r.windows, err)
	}
	if r.cmd != nil {
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if werr := r.cmd.wait(ended); werr != nil {
			err = werr
		}
		r.cmd = nil
	}
	if cerr := r.ctx.Err(); cerr != nil && err != io.EOF {
		err = fmt.Errorf("%w (%w)", cerr, err)
	}
	r.err = err
	return err
}

// next decodes the next window into r.out.
func (r *Reader) next() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	w, err := readWindow(&r.wire, r.hdr)
	if err != nil {
		return err
	}
	if w.target > r.opts.maxWindow() {
		return fmt.Errorf("%w: window of %d bytes, limit %d", ErrTooLarge, w.target, r.opts.maxWindow())
	}
	if m := r.opts.MaxTarget; m > 0 && w.target > m-r.target {
		return fmt.Errorf("%w: target larger than %d bytes", ErrTooLarge, m)
	}
	if err := r.decode(w); err != nil {
		return err
	}
	r.windows++
	r.target += w.target
	return nil
}

// decode reads the sections of a window and executes it.
//
// The data section goes to the end of the window's own buffer. Every byte of
// it becomes at least one byte of target, so the target, which grows from the
// buffer's beginning, never reaches data that is still to be used: that needs
// no memory of its own. The instructions are the only section that must be
// kept; the addresses come last and are read as they are used.
func (r *Reader) decode(w window) error {
	r.out = nil // lies in r.win
	if err := r.mem.grow(&r.win, w.target); err != nil {
		return fmt.Errorf("window of %d bytes: %w", w.target, err)
	}
	win := r.win[:w.target]

	data, size, err := r.section(w, dataSection)
	if err != nil {
		return err
	}
	if size > w.target {
		return fmt.Errorf("%w: more data than target", ErrCorrupt)
	}
	if err := r.finish(dataSection, data, win[w.target-size:]); err != nil {
		return err
	}
	m := machine{win: win, data: int(w.target - size), w: w, src: &r.src}

	insts, size, err := r.section(w, instSection)
	if err != nil {
		return err
	}
	if err := r.mem.grow(&r.inst, size); err != nil {
		return fmt.Errorf("%d bytes of instructions: %w", size, err)
	}
	m.inst = r.inst[:size]
	if err := r.finish(instSection, insts, m.inst); err != nil {
		return err
	}

	addrs, size, err := r.section(w, addrSection)
	if err != nil {
		return err
	}
	fix := func(err error) error { return r.sectionError(addrSection, err) }
	m.addr = pieces{r: addrs, fix: fix, left: size, buf: r.addr[:]}
	if err := m.run(); err != nil {
		return err
	}
	if m.addr.rest() != 0 {
		return fmt.Errorf("%w: addresses left over", ErrCorrupt)
	}
	if w.hasSum {
		if sum := adler32.Checksum(win); sum != w.sum {
			return fmt.Errorf("%w: adler32 %08x instead of %08x", ErrChecksum, sum, w.sum)
		}
	}
	r.out = win
	return nil
}

// section gives a reader of a section's content and its size.
func (r *Reader) section(w window, i int) (io.Reader, int64, error) {
	n := w.size[i]
	if w.compressed>>i&1 == 0 {
		return &r.wire, n, nil
	}
	before := r.wire.off
	size, err := r.wire.size()
	if err != nil {
		return nil, 0, err
	}
	n -= r.wire.off - before
	if n < 0 {
		return nil, 0, fmt.Errorf("%w: %s section", ErrCorrupt, sectionNames[i])
	}
	sec, err := r.sec.section(i, &r.wire, n, size)
	if err != nil {
		return nil, 0, fmt.Errorf("%s section: %w", sectionNames[i], err)
	}
	return sec, size, nil
}

// finish reads a section into p, which has its size.
func (r *Reader) finish(i int, from io.Reader, p []byte) error {
	_, err := io.ReadFull(from, p)
	return r.sectionError(i, err)
}

func (r *Reader) sectionError(i int, err error) error {
	if err = r.wire.cut(secondaryError(err)); err != nil {
		return fmt.Errorf("%s section: %w", sectionNames[i], err)
	}
	return nil
}
