package delta_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// Images that are too large to be kept: each byte is computed when it is read.

// stream is content by a rule: its bytes are those of hashed indexes.
type stream uint64

func (s stream) ReadAt(b []byte, off int64) (int, error) {
	var w [8]byte
	n := len(b)
	for len(b) > 0 {
		x := (uint64(s)*0xd6e8feb86659fd93 ^ uint64(off>>3)) * 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		binary.LittleEndian.PutUint64(w[:], (x^x>>27)&0x0f3f0f3f0f3f0f3f)
		k := copy(b, w[off&7:])
		b = b[k:]
		off += int64(k)
	}
	return n, nil
}

// pieces is content put together.
type pieces struct {
	parts []piece
	size  int64
}

type piece struct {
	at, size, off int64
	r             io.ReaderAt
}

func (p *pieces) add(r io.ReaderAt, off, size int64) {
	p.parts = append(p.parts, piece{p.size, size, off, r})
	p.size += size
}

func (p *pieces) bytes(b []byte) { p.add(bytesAt(b), 0, int64(len(b))) }

type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) { return copy(p, b[off:]), nil }

func (p *pieces) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	i := sort.Search(len(p.parts), func(i int) bool { return p.parts[i].at > off }) - 1
	for n < len(b) && i < len(p.parts) && off < p.size {
		q := p.parts[i]
		k := int(min(int64(len(b)-n), q.at+q.size-off))
		if _, err := q.r.ReadAt(b[n:n+k], q.off+off-q.at); err != nil {
			return n, err
		}
		n += k
		off += int64(k)
		i++
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// file adds a tar member of the content.
func (p *pieces) file(name string, content *pieces) {
	h := makeTar(tarFile{name: name, typ: '0', mod: func(h []byte) {
		copy(h[124:], fmt.Sprintf("%011o", content.size))
	}})[:tarheader.Block]
	p.bytes(bytes.Clone(h)) // of a buffer that is larger
	p.add(content, 0, content.size)
	p.bytes(make([]byte, -content.size&(tarheader.Block-1)))
}

func (p *pieces) object() delta.Object {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(p, 0, p.size)); err != nil {
		panic(err)
	}
	return delta.Object{Digest: delta.Digest(fmt.Sprintf("sha256:%x", sum.Sum(nil))), Size: p.size, Kind: delta.Tar,
		Open: func() (io.ReadCloser, error) { return openSection{io.NewSectionReader(p, 0, p.size)}, nil }}
}

// largeLayers is a layer of mib MiB, old and new: a quarter of it, but at most
// 80 MiB, is one file that changed every half MiB; the rest are files of 1 MiB,
// of which some changed, some moved and one in a hundred is new.
func largeLayers(mib int) (a, b *pieces) {
	a, b = new(pieces), new(pieces)
	var big, big2 pieces
	first := min(mib/4, 80)
	for i := range int64(first) * 2 {
		big.add(stream(1), i<<19, 1<<19)
		big2.add(stream(1), i<<19, 1<<19-40)
		big2.add(stream(2), i<<10, 40+i%3)
	}
	a.file("big", &big)
	b.file("big", &big2)
	for i := range int64(mib - first) {
		var f, g pieces
		f.add(stream(1000+i<<32), 0, 1<<20)
		name := fmt.Sprintf("lib/%05d", i)
		a.file(name, &f)
		switch {
		case i%100 == 50:
			g.add(stream(3+i<<32), 0, 1<<20)
		case i%16 == 1:
			g.add(stream(1000+i<<32), 0, 1<<19)
			g.add(stream(5), i, 100)
			g.add(stream(1000+i<<32), 1<<19, 1<<19)
		default:
			g = f
		}
		if i%16 == 2 {
			name = "moved/" + name
		}
		b.file(name, &g)
	}
	a.bytes(make([]byte, 2*tarheader.Block))
	b.bytes(make([]byte, 2*tarheader.Block))
	return a, b
}

func largeImages(mib int) (old, new delta.Image) {
	a, b := largeLayers(mib)
	old = delta.Image{Name: "large:1", Objects: []delta.Object{a.object()}}
	new = delta.Image{Name: "large:2", Objects: []delta.Object{b.object()}}
	return old, new
}

// openSection can be read in place, and needs no closing.
type openSection struct{ *io.SectionReader }

func (openSection) Close() error { return nil }
