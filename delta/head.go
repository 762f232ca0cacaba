package delta

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/mender-app/mender-app/artifact/digest"
)

// Encoding says how a delta has an object of the new image.
type Encoding string

const (
	// Omitted: the same object is in an old image; the delta only names it.
	Omitted Encoding = "omitted"
	// Delta: rebuilt with the help of old content.
	Delta Encoding = "delta"
	// Verbatim: the delta holds it whole and reads nothing old for it.
	Verbatim Encoding = "verbatim"
)

// ObjectInfo describes one object of the new image.
type ObjectInfo struct {
	Index    int // in the new image
	Digest   Digest
	Size     int64
	Kind     Kind
	Encoding Encoding
}

// Base is an old object that the decoder reads.
type Base struct {
	Image  string // name of the old image it was found in, for messages
	Digest Digest
	Size   int64
	Kind   Kind
	// Headers says that the headers of the tar are read too (Old.Headers), and
	// not only the contents of its files.
	Headers bool
}

// Header is what a delta says about itself, before any content.
type Header struct {
	Image    string // name of the new image
	Objects  []ObjectInfo
	Bases    []Base
	Features []string
	// Memory is the most that Apply allocates, in bytes, not counting Old and
	// the sinks.
	Memory int64
	// Temp is the size of the temporary files that Apply needs, in bytes.
	Temp int64
}

// Size returns the total size of the objects that the delta makes, in bytes.
func (h *Header) Size() (n int64) {
	for _, o := range h.Objects {
		if o.Encoding != Omitted {
			n += o.Size
		}
	}
	return n
}

// A delta begins with Magic and Version.
const (
	Magic   = "\xd5appdlt\n"
	Version = 1
)

// Names of features that a decoder must know to read a delta that lists them.
const (
	FeatureELF     = "elf1"
	FeatureLZ      = "lz1"
	FeatureDeflate = "deflate1"
	FeatureGo      = "goflate1"
	FeatureFar     = "far1"
	FeatureUnwind  = "unwind1"
	FeatureSums    = "lz2"
	FeaturePacked  = "zstd1"
	FeatureApart   = "elf2"
	FeatureShow    = "elf3"
	FeatureParts   = "elf4"
)

// Features are all features that a decoder of this version may know.
var Features = []string{FeatureELF, FeatureLZ, FeatureDeflate, FeatureGo, FeatureFar, FeatureUnwind, FeatureSums, FeaturePacked, FeatureApart, FeatureShow, FeatureParts}

// Limits of the head.
const (
	maxHeader = 1 << 20 // bytes of the header
	// MaxObjects bounds the objects of a delta, and its bases.
	MaxObjects  = 1 << 12
	maxFeatures = 32
	maxName     = 1 << 10 // bytes of an image's or a feature's name
	maxObject   = 1 << 50 // bytes of one object
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // made at its first use

var kinds = []Kind{Tar, Blob}
var encodings = []Encoding{Omitted, Delta, Verbatim}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendHeader appends the magic and the header in their final form.
func AppendHeader(b []byte, h Header) ([]byte, error) {
	var p []byte
	p = binary.AppendUvarint(p, uint64(len(h.Features)))
	for _, f := range h.Features {
		p = appendString(p, f)
	}
	p = appendString(p, h.Image)
	p = binary.AppendUvarint(p, uint64(h.Memory))
	p = binary.AppendUvarint(p, uint64(h.Temp))
	p = binary.AppendUvarint(p, uint64(len(h.Bases)))
	image := ""
	for _, o := range h.Bases {
		sum, err := o.Digest.Sum()
		if err != nil {
			return nil, err
		}
		k := byte(0)
		if o.Kind == Blob {
			k = 1
		}
		if o.Image != image {
			k |= 2
			image = o.Image
		}
		if o.Headers {
			k |= 4
		}
		p = append(p, k)
		if k&2 != 0 {
			p = appendString(p, o.Image)
		}
		p = append(p, sum[:]...)
		p = binary.AppendUvarint(p, uint64(o.Size))
	}
	p = binary.AppendUvarint(p, uint64(len(h.Objects)))
	for _, o := range h.Objects {
		sum, err := o.Digest.Sum()
		if err != nil {
			return nil, err
		}
		var k byte
		if o.Kind == Blob {
			k = 1
		}
		for i, e := range encodings {
			if e == o.Encoding {
				k |= byte(i) << 1
			}
		}
		p = append(p, k)
		p = append(p, sum[:]...)
		p = binary.AppendUvarint(p, uint64(o.Size))
	}
	if len(p) > maxHeader {
		return nil, fmt.Errorf("header of %d bytes is too large", len(p))
	}
	b = append(b, Magic...)
	b = append(b, Version)
	b = binary.AppendUvarint(b, uint64(len(p)))
	b = append(b, p...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(p, castagnoli())), nil
}

// ReadHeader reads what AppendHeader wrote, and no byte more. The error is a
// *FeatureError for an unknown feature or version; every other error wraps
// ErrFormat.
func ReadHeader(r *bufio.Reader, known func(feature string) bool) (h Header, err error) {
	var m [len(Magic) + 1]byte
	if _, err := io.ReadFull(r, m[:]); err != nil {
		return h, FormatErrorf("no magic: %v", err)
	}
	if string(m[:len(Magic)]) != Magic {
		return h, FormatErrorf("wrong magic")
	}
	if v := m[len(Magic)]; v != Version {
		return h, &FeatureError{fmt.Sprintf("format version %d", v)}
	}
	n, err := binary.ReadUvarint(r)
	if err != nil || n > maxHeader {
		return h, FormatErrorf("bad header size")
	}
	// Grow with what arrives, not with what is announced.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)+4); err != nil {
		return h, FormatErrorf("header cut short: %v", err)
	}
	p := buf.Bytes()
	p, sum := p[:n], p[n:]
	if crc32.Checksum(p, castagnoli()) != binary.LittleEndian.Uint32(sum) {
		return h, FormatErrorf("header is damaged")
	}
	d := headerBytes{p: p}
	nf := d.count(maxFeatures, 1)
	for range nf {
		f := d.str(maxName)
		if d.bad {
			break
		}
		if !known(f) {
			return h, &FeatureError{f}
		}
		h.Features = append(h.Features, f)
	}
	h.Image = d.str(maxName)
	h.Memory = d.size(math.MaxInt64)
	h.Temp = d.size(math.MaxInt64)
	nb := d.count(MaxObjects, 34)
	image := ""
	for range nb {
		k := d.byte()
		if k > 7 || k&5 == 5 {
			d.bad = true
			break
		}
		if k&2 != 0 {
			image = d.str(maxName)
		}
		h.Bases = append(h.Bases, Base{Image: image, Digest: d.digest(), Size: d.size(maxObject), Kind: kinds[k&1], Headers: k&4 != 0})
	}
	no := d.count(MaxObjects, 34)
	for i := range no {
		k := d.byte()
		if int(k>>1) >= len(encodings) {
			d.bad = true
			break
		}
		h.Objects = append(h.Objects, ObjectInfo{Index: i, Digest: d.digest(), Size: d.size(maxObject), Kind: kinds[k&1], Encoding: encodings[k>>1]})
	}
	if d.bad || len(d.p) != 0 {
		return h, FormatErrorf("header does not parse")
	}
	return h, nil
}

// headerBytes parses a header. The first fault sets bad, which stays set.
type headerBytes struct {
	p   []byte
	bad bool
}

func (d *headerBytes) take(n int) []byte {
	if d.bad || n > len(d.p) {
		d.bad = true
		return make([]byte, min(n, 64))
	}
	b := d.p[:n]
	d.p = d.p[n:]
	return b
}

func (d *headerBytes) byte() byte { return d.take(1)[0] }

func (d *headerBytes) size(most uint64) int64 {
	v, n := binary.Uvarint(d.p)
	if d.bad || n <= 0 || v > most {
		d.bad = true
		return 0
	}
	d.p = d.p[n:]
	return int64(v)
}

// count reads a number of items of at least each bytes.
func (d *headerBytes) count(most, each uint64) int {
	v := d.size(most)
	if uint64(v)*each > uint64(len(d.p)) {
		d.bad = true
		return 0
	}
	return int(v)
}

func (d *headerBytes) str(most uint64) string {
	n := d.size(most)
	if d.bad {
		return ""
	}
	return string(d.take(int(n)))
}

func (d *headerBytes) digest() Digest {
	var sum [32]byte
	copy(sum[:], d.take(32))
	return digest.FromSum(sum)
}
