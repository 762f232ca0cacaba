// Package vcdiff decodes VCDIFF deltas (RFC 3284) as xdelta3 writes them, in bounded
// memory. The generator of the shell reference makes such deltas with
// `xdelta3 -e -s OLD NEW`.
//
// It decodes windows with and without a source segment, the default code table, and
// xdelta3's extensions: the Adler-32 of each window, which it verifies, the
// application header, and secondary compression. Debian's xdelta3 3.0.11 compresses
// with LZMA by default, which this package decodes. Deltas with DJW and FGK (-S djw)
// need the xdelta3 command, if Options names it. VCD_TARGET windows and custom code
// tables, which xdelta3 does not write, are refused, and the error names them.
//
// The package knows nothing of container images. Package archive does.
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
	DefaultMaxWindow = 16 << 20 // the greatest that xdelta3 allows; it uses 8 MiB
	DefaultMaxMemory = 24 << 20
)

// Options are the bounds of a decode. The zero value has good defaults.
type Options struct {
	// MaxWindow is the largest window that is decoded, in bytes. 0 means
	// DefaultMaxWindow.
	MaxWindow int64
	// MaxMemory bounds the buffers whose sizes the delta chooses, in bytes: the
	// window, its instructions, and the dictionaries of the secondary compression.
	// About 1.5 MiB are needed in addition. 0 means DefaultMaxMemory: with it, a
	// process that does nothing else stays under 32 MiB.
	MaxMemory int64
	// MaxTarget is the largest target, in bytes. 0 means no bound. The target is
	// not kept in memory.
	MaxTarget int64
	// Xdelta3 is the xdelta3 command, as a path or a name in PATH, for secondary
	// compressors that this package does not decode. It is run as
	// `xdelta3 recode`, with a fixed environment. That needs neither the old file
	// nor temporary files, and takes about 20 MiB of memory. With "" it is never
	// run.
	Xdelta3 string
}

func (o Options) maxWindow() int64 {
	if o.MaxWindow > 0 {
		return o.MaxWindow
	}
	return DefaultMaxWindow
}

// A Reader reads the target of a delta. It verifies each window before it returns
// its first byte. It is not safe for concurrent use.
//
// A delta that is truncated exactly between two windows gives a shorter target
// without an error; see Scan.
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
// is the old file and srcSize its size. The context ends the decode and the xdelta3
// command, if that is run. Close ends the command. It does not close src or delta.
func NewReader(ctx context.Context, src io.ReaderAt, srcSize int64, delta io.Reader, opts Options) (*Reader, error) {
	r := &Reader{opts: opts}
	if err := r.Reset(ctx, src, srcSize, delta); err != nil {
		return nil, err
	}
	return r, nil
}

// Reset makes r read another delta with the same options. It keeps the buffers, so
// several deltas, one after the other, take the memory of one. It closes r first. It
// also works on the zero Reader.
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
		r.wire = wire{} // the command still uses the old buffer
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

// Header returns the delta's header. After an xdelta3 recode, Secondary is
// NoSecondary.
func (r *Reader) Header() Header { return r.hdr }

// Close ends the xdelta3 command if it runs. Read fails afterwards.
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

// Read reads the next bytes of the target.
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

// WriteTo writes the rest of the target to w, one window in each write.
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

// fail keeps the error that ends the decode, with where it happened. An error of
// xdelta3 is used instead if there is one, because it is the cause.
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
// The data section is read to the end of the window's buffer. Every byte of it
// becomes at least one byte of the target. So the target, which grows from the
// buffer's beginning, never overwrites data that was not used, and the data needs no
// other memory. Only the instructions must be kept. The addresses come last and are
// read as they are used.
func (r *Reader) decode(w window) error {
	r.out = nil // it is part of r.win
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

// section returns a reader of a section's content, and its size.
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
