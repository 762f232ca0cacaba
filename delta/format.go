package delta

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/mender-app/mender-app/delta/deflate"
)

// The constants of FORMAT.md.
const (
	magic   = "\xd5appdlt\n"
	version = 1

	maxHeader   = 1 << 20 // bytes of the header
	maxObjects  = 1 << 12 // objects, and bases
	maxFeatures = 32
	maxName     = 1 << 10 // bytes of an image's or a feature's name
	maxObject   = 1 << 50 // bytes of one object

	maxCoded = 1 << 20  // bytes of a frame's coded part
	maxBulk  = 16 << 20 // bytes of a frame's bulk part
	bulkWin  = 1 << 20  // zstd window of a bulk part

	maxMeta = 1 << 18 // bytes of all header blocks of one tar member
	maxPath = 1 << 12 // bytes of a path
	maxRefs = 4       // header streams an object is merged from

	// decoderMemory is what Apply allocates at most: models, buffers, windows.
	decoderMemory = 24 << 20
)

// Names of features a decoder must know to read a delta that lists them.
const (
	featElf     = "elf1"
	featZstd    = "zstd"
	featDeflate = "deflate1"
	featGo      = "goflate1"
)

// known says of each whether this decoder knows it.
var known = map[string]func() bool{featElf: always, featZstd: always, featDeflate: always, featGo: deflate.GoKnown}

func always() bool { return true }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var kinds = []Kind{Tar, Blob}
var encodings = []Encoding{Omitted, Delta, Verbatim}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendHeader appends the magic and the header in their final form.
func appendHeader(b []byte, h Header) ([]byte, error) {
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
		sum, err := o.Digest.raw()
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
		sum, err := o.Digest.raw()
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
	b = append(b, magic...)
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(p)))
	b = append(b, p...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(p, castagnoli)), nil
}

// readHeader reads what appendHeader wrote.
func readHeader(r *bufio.Reader) (h Header, err error) {
	var m [len(magic) + 1]byte
	if _, err := io.ReadFull(r, m[:]); err != nil {
		return h, formatError("no magic: %v", err)
	}
	if string(m[:len(magic)]) != magic {
		return h, formatError("wrong magic")
	}
	if v := m[len(magic)]; v != version {
		return h, &FeatureError{fmt.Sprintf("format version %d", v)}
	}
	n, err := binary.ReadUvarint(r)
	if err != nil || n > maxHeader {
		return h, formatError("bad header size")
	}
	// Grow with what arrives, not with what is promised.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)+4); err != nil {
		return h, formatError("header cut short: %v", err)
	}
	p := buf.Bytes()
	p, sum := p[:n], p[n:]
	if crc32.Checksum(p, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return h, formatError("header is damaged")
	}
	d := headerBytes{p: p}
	nf := d.count(maxFeatures, 1)
	for range nf {
		f := d.str(maxName)
		if d.bad {
			break
		}
		if ok := known[f]; ok == nil || !ok() {
			return h, &FeatureError{f}
		}
		h.Features = append(h.Features, f)
	}
	h.Image = d.str(maxName)
	h.Memory = d.size(math.MaxInt64)
	h.Temp = d.size(math.MaxInt64)
	nb := d.count(maxObjects, 34)
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
	no := d.count(maxObjects, 34)
	for i := range no {
		k := d.byte()
		if int(k>>1) >= len(encodings) {
			d.bad = true
			break
		}
		h.Objects = append(h.Objects, ObjectInfo{Index: i, Digest: d.digest(), Size: d.size(maxObject), Kind: kinds[k&1], Encoding: encodings[k>>1]})
	}
	if d.bad || len(d.p) != 0 {
		return h, formatError("header does not parse")
	}
	return h, nil
}

// headerBytes takes a header apart; bad is set, and stays, on the first fault.
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
	return digestOf(sum)
}
