// Package deflate compresses exactly as GNU gzip, zlib and Go do (RFC 1951). At
// every level the output is the same, byte for byte. So the build host can
// uncompress a gzip member, a zlib stream or an entry of a zip archive, and a
// device can compress it again to the same bytes.
//
// To just compress, use compress/flate: it chooses other matches and blocks than
// gzip and zlib. The Variants of Go use it, as long as it has not changed
// (GoKnown). gzip and zlib share the algorithm that Jean-loup Gailly and Mark Adler
// wrote for gzip 1.0: chains of hashed strings, lazy matching, Huffman trees built
// on a heap. They differ in when a block ends, and near the end of the input. This
// package does what gzip 1.12 and zlib 1.2.13 do, and its tests compare it with
// sums of their output. Both have been stable for decades. Programs with another
// algorithm (pigz, zopfli, zlib-ng) are not supported: an encoder must compare the
// output with the stream.
package deflate

import (
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	mathbits "math/bits"
)

// Variant is a program and its level.
type Variant uint8

// NumVariants is one more than the largest Variant.
const NumVariants Variant = 27

// GNU is what gzip -LEVEL does; level is 1 to 9.
func GNU(level int) Variant { return Variant(level - 1) }

// Zlib is what zlib does at a level of 1 to 9, with its default strategy, window
// and memory, and without a flush before the end. Info-ZIP, Python's zipfile and
// gzip modules and Java's Deflater use it so.
func Zlib(level int) Variant { return Variant(level + 8) }

// Go is what Go's compress/flate does at a level of 1 to 9, without a flush before
// the end. Its gzip and zlib packages have the default level 6, archive/zip 5. Use
// this Variant only if GoKnown says so.
func Go(level int) Variant { return Variant(level + 17) }

// Level is the level of compression, from 1 to 9.
func (v Variant) Level() int { return int(v)%9 + 1 }

func (v Variant) gnu() bool { return v < 9 }

// IsGo reports whether v is Go's.
func (v Variant) IsGo() bool { return v >= 18 }

func (v Variant) String() string {
	switch {
	case v.gnu():
		return fmt.Sprintf("gzip -%d", v.Level())
	case v.IsGo():
		return fmt.Sprintf("Go %d", v.Level())
	}
	return fmt.Sprintf("zlib %d", v.Level())
}

const (
	windowSize = 1 << 15
	hashBits   = 15
	hashShift  = 5 // three bytes make a hash
	minMatch   = 3
	maxMatch   = 258
	// With less input ahead than this, the writer waits for more.
	minAhead = maxMatch + minMatch + 1
	maxDist  = windowSize - minAhead
	tooFar   = 4096 // a match of three bytes at this distance is not used
)

// effort has the parameters of a level.
type effort struct{ good, lazy, nice, chain int }

var efforts = [10]effort{
	1: {4, 4, 8, 4}, {4, 5, 16, 8}, {4, 6, 32, 32}, // up to here without lazy matching
	{4, 4, 16, 16}, {8, 16, 32, 32}, {8, 16, 128, 128}, {8, 32, 128, 256}, {32, 128, 258, 1024}, {32, 258, 258, 4096},
}

const lastEager = 3

// farChain is the effort, as a number of strings in a chain, from which strings with
// the same first farBytes bytes have chains of their own.
const (
	farChain = 1024
	farBytes = 5
	farBits  = 15
)

// Writer compresses what is written to it, as a raw deflate stream. It takes about
// 500 KiB of memory, and 800 KiB more after a Variant of Go. Its output is complete
// after Close.
type Writer struct {
	gnu   bool
	level int
	effort
	out bits

	window [2 * windowSize]byte
	head   [1 << hashBits]uint16
	prev   [windowSize]uint16
	hash   uint32
	far    *farther // nil for low levels
	useFar bool     // now
	at     int      // the current string
	ahead  int      // bytes of the window from at on
	want   int      // bytes of input to wait for

	block int // start of the block in the window; may be negative
	pending

	trees trees

	std     *flate.Writer // for a Variant of Go
	isGo    bool
	goLevel int // of std
}

// pending has the match of the current string and that of the string before it. The
// latter is used if it is not shorter.
type pending struct {
	matchAt   int
	matchLen  int // of the current string
	prevLen   int // of the string before
	prevAt    int
	available bool // the string before is not coded yet
}

// NewWriter returns a Writer that compresses as v does.
func NewWriter(w io.Writer, v Variant) *Writer {
	d := new(Writer)
	d.Reset(w, v)
	return d
}

// Reset makes d a new Writer to w with the Variant v, and keeps its memory.
func (d *Writer) Reset(w io.Writer, v Variant) {
	if d.isGo = v.IsGo(); d.isGo {
		d.resetGo(w, v.Level())
		return
	}
	d.gnu, d.level, d.effort = v.gnu(), v.Level(), efforts[v.Level()]
	d.out = bits{w: w, buf: d.out.buf[:0]}
	clear(d.window[:])
	clear(d.head[:])
	clear(d.prev[:])
	d.hash, d.at, d.ahead, d.want = 0, 0, 0, len(d.window)
	d.block, d.matchAt, d.prevAt, d.available = 0, 0, 0, false
	d.matchLen, d.prevLen = minMatch-1, minMatch-1
	if d.chain < farChain {
		d.far = nil
	} else if d.far == nil {
		d.far = new(farther)
	} else {
		clear(d.far.head[:])
	}
	d.trees.limit = 1<<14 - 1
	if d.gnu {
		d.trees.limit = 1<<15 - 1
	}
	d.trees.begin()
}

// Write implements io.Writer. It compresses only when the window is full. So the
// output does not depend on how the input is divided into writes.
func (d *Writer) Write(p []byte) (int, error) {
	if d.isGo {
		return d.std.Write(p)
	}
	n := len(p)
	for len(p) > 0 {
		k := min(d.want, len(p))
		copy(d.window[d.at+d.ahead:], p[:k])
		d.ahead += k
		d.want -= k
		p = p[k:]
		if d.want == 0 {
			d.run()
		}
		if d.out.err != nil {
			return 0, d.out.err
		}
	}
	return n, nil
}

// Close ends the stream. It does not close the underlying writer.
func (d *Writer) Close() error {
	if d.isGo {
		return d.std.Close()
	}
	d.run()
	if end := d.at + d.ahead; d.gnu && end+minMatch-1 <= len(d.window) {
		clear(d.window[end : end+minMatch-1])
	}
	for d.ahead > 0 {
		// gzip does not move the window after the end of the input.
		if !d.gnu && d.ahead < minAhead {
			d.move()
		}
		d.step()
	}
	if d.available {
		d.tally(0, int(d.window[d.at-1]))
	}
	d.flush(true)
	d.out.align()
	d.out.write()
	return d.out.err
}

// run compresses as much of the input as it can, and makes room for more.
func (d *Writer) run() {
	if d.at == 0 {
		d.hash = (uint32(d.window[0])<<hashShift ^ uint32(d.window[1])) & (1<<hashBits - 1)
	}
	d.useFar = d.far != nil
	for d.ahead >= minAhead {
		d.step()
	}
	d.useFar = false // there may be fewer than farBytes left
	d.move()
	d.want = len(d.window) - d.at - d.ahead
}

func (d *Writer) step() {
	if d.level <= lastEager {
		d.eager()
	} else {
		d.lazyStep()
	}
}

// move moves the window if the current string is near its end.
func (d *Writer) move() {
	if d.at < windowSize+maxDist {
		return
	}
	copy(d.window[:windowSize], d.window[windowSize:])
	d.matchAt -= windowSize
	d.at -= windowSize
	d.block -= windowSize
	slide(d.head[:])
	slide(d.prev[:])
	if d.far != nil {
		slide(d.far.head[:])
		slide(d.far.prev[:])
	}
}

func slide(t []uint16) {
	for i, v := range t {
		t[i] = max(v, windowSize) - windowSize
	}
}

// insert puts the string at i into its chain and returns the one before it; 0
// is none, and the string at 0 is never found.
func (d *Writer) insert(i int) int {
	d.hash = (d.hash<<hashShift ^ uint32(d.window[(i+minMatch-1)&(2*windowSize-1)])) & (1<<hashBits - 1)
	h := d.head[d.hash]
	d.prev[i&(windowSize-1)] = h
	d.head[d.hash] = uint16(i)
	if d.useFar {
		d.far.insert(&d.window, i, int(h))
	}
	return int(h)
}

// longest searches the chain from cur for a match longer than prevLen.
func (d *Writer) longest(cur int) int {
	chain, nice, best := d.chain, d.nice, d.prevLen
	if best >= d.good {
		chain >>= 2
	}
	if !d.gnu {
		nice = min(nice, d.ahead)
	}
	limit := max(d.at-maxDist, 0)
	w := &d.window
	scan := w[d.at+minMatch : d.at+maxMatch]
	if d.useFar {
		least := max(best, farBytes-1)
		at, n, ok := d.farther(cur, chain, nice, least, limit)
		switch {
		case ok && n > least:
			d.matchAt = at
			return n
		case ok && best == least:
			return best
		case ok:
			nice = least // no longer match is possible
		}
	}
	for ends := pair(w, d.at+best-1); ; chain-- {
		if pair(w, cur+best-1) == ends && pair(w, cur) == pair(w, d.at) {
			// The third byte is the same because the hash is the same.
			if n := minMatch + common(w[cur+minMatch:cur+maxMatch], scan); n > best {
				d.matchAt, best = cur, n
				if n >= nice {
					break
				}
				ends = pair(w, d.at+best-1)
			}
		}
		if cur = int(d.prev[cur&(windowSize-1)]); cur <= limit || chain == 1 {
			break
		}
	}
	return min(best, d.ahead)
}

// pair returns the two bytes at i.
func pair(w *[2 * windowSize]byte, i int) uint16 {
	return uint16(w[uint16(i)]) | uint16(w[uint16(i+1)])<<8
}

// common returns how many bytes a and b, of equal length, begin with alike.
func common(a, b []byte) int {
	n := 0
	for ; n+8 <= len(a) && n+8 <= len(b); n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + mathbits.TrailingZeros64(x)/8
		}
	}
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// find returns the length of the match of the current string, whose chain begins
// at head.
func (d *Writer) find(head int) int {
	if head == 0 || d.at-head > maxDist || d.at > len(d.window)-minAhead {
		return minMatch - 1
	}
	return d.longest(head)
}

// eager takes one step without lazy matching.
func (d *Writer) eager() {
	head := 0
	if d.gnu || d.ahead >= minMatch {
		head = d.insert(d.at)
	}
	d.prevLen = minMatch - 1
	n := d.find(head)
	if n < minMatch {
		full := d.tally(0, int(d.window[d.at]))
		d.ahead--
		d.at++
		if full {
			d.flush(false)
		}
		return
	}
	full := d.tally(d.at-d.matchAt, n-minMatch)
	d.ahead -= n
	if n <= d.lazy && (d.gnu || d.ahead >= minMatch) {
		for range n - 1 {
			d.at++
			d.insert(d.at)
		}
		d.at++
	} else {
		d.at += n
		d.hash = (uint32(d.window[d.at&(2*windowSize-1)])<<hashShift ^ uint32(d.window[(d.at+1)&(2*windowSize-1)])) & (1<<hashBits - 1)
	}
	if full {
		d.flush(false)
	}
}

// lazyStep takes one step with lazy matching: it uses a match only if the next
// string has no longer one.
func (d *Writer) lazyStep() {
	head := 0
	if d.gnu || d.ahead >= minMatch {
		head = d.insert(d.at)
	}
	d.prevLen, d.prevAt = d.matchLen, d.matchAt
	d.matchLen = minMatch - 1
	if d.prevLen < d.lazy {
		d.matchLen = d.find(head)
		if d.matchLen == minMatch && d.at-d.matchAt > tooFar {
			d.matchLen--
		}
	}
	switch {
	case d.prevLen >= minMatch && d.matchLen <= d.prevLen:
		last := d.at + d.ahead - minMatch
		full := d.tally(d.at-1-d.prevAt, d.prevLen-minMatch)
		d.ahead -= d.prevLen - 1
		for range d.prevLen - 2 {
			d.at++
			if d.gnu || d.at <= last {
				d.insert(d.at)
			}
		}
		d.available = false
		d.matchLen = minMatch - 1
		d.at++
		if full {
			d.flush(false)
		}
	case d.available:
		if d.tally(0, int(d.window[d.at-1])) {
			d.flush(false)
		}
		d.at++
		d.ahead--
	default:
		d.available = true
		d.at++
		d.ahead--
	}
}

// tally adds a literal (dist 0) or a match to the block and says whether the block
// is full. n is the literal, or the length of the match less minMatch.
func (d *Writer) tally(dist, n int) bool {
	t := &d.trees
	t.add(dist, n)
	if d.gnu && d.level > 2 && t.n&0xfff == 0 && t.cheap(d.at-d.block) {
		return true
	}
	return t.n == t.limit
}

// flush codes the block.
func (d *Writer) flush(last bool) {
	var raw []byte
	if d.block >= 0 {
		raw = d.window[d.block:d.at]
	}
	d.trees.code(&d.out, raw, d.at-d.block, last)
	d.trees.begin()
	d.block = d.at
}
