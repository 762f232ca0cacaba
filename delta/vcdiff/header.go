package vcdiff

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// Magic is the beginning of every delta that this package decodes. It distinguishes
// the shell reference's delta of a whole image (image.img without the marker
// deep_delta) from an archive.
const Magic = "\xd6\xc3\xc4\x00"

// Bits of the header indicator (RFC 3284 section 4.1; xdelta3 added the last).
const (
	hdrSecondary = 1 << 0
	hdrCodeTable = 1 << 1
	hdrApp       = 1 << 2
)

// Bits of the window indicator (section 4.2; xdelta3 added the last).
const (
	winSource = 1 << 0
	winTarget = 1 << 1
	winAdler  = 1 << 2
)

// The sections of a window, in the order of the delta; bit 1<<section of the
// delta indicator says that it is compressed (section 4.3).
const (
	dataSection = iota
	instSection
	addrSection
	sections
)

var sectionNames = [sections]string{"data", "instruction", "address"}

// maxAppHeader bounds the application header. xdelta3 writes two file names.
const maxAppHeader = 16 << 10

// A Header is the header of a delta, before the first window.
type Header struct {
	// Secondary is the compressor the sections may be compressed with.
	Secondary Secondary
	// App is the application header, nil if there is none. Names reads that of the
	// xdelta3 command.
	App []byte
}

// Names is what the xdelta3 command writes in the application header.
type Names struct {
	Target, Source string // base names of the files
	// The compression of each file: "" is none, "G" is gzip. xdelta3 compares the
	// uncompressed content, so the delta is applied to that and gives that.
	TargetCompressed, SourceCompressed string
}

// Names reads the application header; ok is false if it is not one that the
// xdelta3 command writes.
func (h Header) Names() (n Names, ok bool) {
	// "target/compression/" and the same again for the source. A base name
	// holds no slash.
	f := strings.Split(string(h.App), "/")
	switch len(f) {
	case 2:
		return Names{Target: f[0], TargetCompressed: f[1]}, true
	case 4:
		return Names{Target: f[0], TargetCompressed: f[1], Source: f[2], SourceCompressed: f[3]}, true
	}
	return Names{}, false
}

func readHeader(w *wire) (h Header, err error) {
	var b [5]byte
	if err := w.full(b[:]); err != nil {
		return h, err
	}
	if string(b[:3]) != Magic[:3] {
		return h, fmt.Errorf("%w: no VCDIFF header", ErrCorrupt)
	}
	if b[3] != Magic[3] {
		return h, fmt.Errorf("%w: VCDIFF version %#x", ErrUnsupported, b[3])
	}
	ind := b[4]
	if ind&^(hdrSecondary|hdrCodeTable|hdrApp) != 0 {
		return h, fmt.Errorf("%w: header indicator %#x", ErrUnsupported, ind)
	}
	if ind&hdrSecondary != 0 {
		id, err := w.ReadByte()
		if err != nil {
			return h, w.cut(err)
		}
		h.Secondary = Secondary(id)
		switch h.Secondary {
		case DJW, LZMA, FGK:
		default:
			return h, &SecondaryError{Secondary: h.Secondary}
		}
	}
	if ind&hdrCodeTable != 0 {
		return h, fmt.Errorf("%w: custom code table", ErrUnsupported)
	}
	if ind&hdrApp != 0 {
		n, err := w.size()
		if err != nil {
			return h, err
		}
		if n > maxAppHeader {
			return h, fmt.Errorf("%w: application header of %d bytes", ErrTooLarge, n)
		}
		h.App = make([]byte, n)
		if err := w.full(h.App); err != nil {
			return h, err
		}
	}
	return h, nil
}

// A window is the header of a window.
type window struct {
	srcLen, srcPos int64 // the source segment
	target         int64 // size of the window, in bytes
	compressed     byte  // bits of the compressed sections
	size           [sections]int64
	sum            uint32 // Adler-32 of the target
	hasSum         bool
}

// readWindow reads the next window's header; io.EOF if there is none.
func readWindow(w *wire, h Header) (win window, err error) {
	ind, err := w.ReadByte()
	if err != nil {
		return win, err // io.EOF is the delta's end
	}
	switch {
	case ind&^(winSource|winTarget|winAdler) != 0:
		return win, fmt.Errorf("%w: window indicator %#x", ErrCorrupt, ind)
	case ind&winTarget != 0:
		// No encoder in use writes one; it would need the whole target again.
		return win, fmt.Errorf("%w: VCD_TARGET window", ErrUnsupported)
	}
	var length int64
	fields := []*int64{&win.srcLen, &win.srcPos, &length}
	if ind&winSource == 0 {
		fields = fields[2:]
	}
	for _, f := range fields {
		if *f, err = w.size(); err != nil {
			return win, err
		}
	}
	if win.srcLen > math.MaxInt64-win.srcPos {
		return win, fmt.Errorf("%w: source segment overflows", ErrCorrupt)
	}
	begin := w.off
	if win.target, err = w.size(); err != nil {
		return win, err
	}
	if win.target > math.MaxInt64-win.srcLen {
		return win, fmt.Errorf("%w: window overflows", ErrCorrupt)
	}
	if win.compressed, err = w.ReadByte(); err != nil {
		return win, w.cut(err)
	}
	if win.compressed>>sections != 0 {
		return win, fmt.Errorf("%w: delta indicator %#x", ErrCorrupt, win.compressed)
	}
	if win.compressed != 0 && h.Secondary == NoSecondary {
		return win, fmt.Errorf("%w: compressed section without a compressor", ErrCorrupt)
	}
	for i := range win.size {
		if win.size[i], err = w.size(); err != nil {
			return win, err
		}
	}
	if ind&winAdler != 0 {
		var b [4]byte
		if err := w.full(b[:]); err != nil {
			return win, err
		}
		win.sum, win.hasSum = binary.BigEndian.Uint32(b[:]), true
	}
	// What is left of the encoding's length must be the sections.
	left := length - (w.off - begin)
	for _, n := range win.size {
		if left -= n; left < 0 {
			break
		}
	}
	if left != 0 {
		return win, fmt.Errorf("%w: section lengths disagree", ErrCorrupt)
	}
	return win, nil
}

// Info is the content of a delta's headers.
type Info struct {
	Header
	Windows   int64
	Target    int64 // size of the target, in bytes
	MaxWindow int64 // its largest window
	SourceEnd int64 // the old file has at least this many bytes
	Packed    bool  // a section is compressed with Header.Secondary
	Unsummed  bool  // a window has no checksum
}

// Scan reads the headers of a delta to its end, without decoding. It keeps nothing
// of the delta in memory.
//
// A VCDIFF delta has no end mark: one that is truncated exactly between two windows
// looks whole to Scan and to a Reader. Compare the target's size or digest to find
// that out.
func Scan(delta io.Reader) (Info, error) {
	var w wire
	w.reset(delta)
	h, err := readHeader(&w)
	if err != nil {
		return Info{}, err
	}
	info := Info{Header: h}
	for {
		win, err := readWindow(&w, h)
		if err == io.EOF {
			return info, nil
		}
		if err == nil {
			for _, n := range win.size {
				if err == nil {
					err = w.skip(n)
				}
			}
		}
		if err == nil && win.target > math.MaxInt64-info.Target {
			err = fmt.Errorf("%w: target overflows", ErrCorrupt)
		}
		if err != nil {
			return Info{}, fmt.Errorf("window %d: %w", info.Windows, err)
		}
		info.Windows++
		info.Target += win.target
		info.MaxWindow = max(info.MaxWindow, win.target)
		info.SourceEnd = max(info.SourceEnd, win.srcPos+win.srcLen)
		info.Packed = info.Packed || win.compressed != 0
		info.Unsummed = info.Unsummed || !win.hasSum
	}
}
