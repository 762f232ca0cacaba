package delta_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

type oddTar struct {
	name string
	data []byte
}

func stdTar(headers ...*tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body := h.Gname // the content: the header has no other place for it
		h.Gname = "root"
		h.Size = int64(len(body))
		if h.Typeflag != tar.TypeReg {
			h.Size, body = 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// oddTars are tars of everything that layers have been seen to hold.
func oddTars() []oddTar {
	at := time.Unix(1700000000, 0)
	text := strings.Repeat("some text that is long enough\n", 40)
	reg := func(name, body string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: at, Gname: body}
	}
	sparse := func() []byte {
		// Old GNU sparse: a map of 4 in the header, an extension block with more.
		b := makeTar(tarFile{name: "sparse", typ: 'S', data: noise(7, 1024), mod: func(h []byte) {
			copy(h[257:], "ustar  \x00")
			copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", 0, 512))
			h[482] = 1
			copy(h[483:], fmt.Sprintf("%011o\x00", 1<<20))
		}})
		ext := make([]byte, tarheader.Block)
		copy(ext, fmt.Sprintf("%011o\x00%011o\x00", 1<<19, 512))
		return append(append(append([]byte{}, b[:tarheader.Block]...), ext...), b[tarheader.Block:]...)
	}
	long := strings.Repeat("long/", 60) + "name"
	gnuLong := makeTar(tarFile{name: "././@LongLink", typ: 'L', data: append([]byte(long), 0)}, tarFile{name: long[:100], typ: '0', data: []byte(text)})
	setuid := reg("bin/su", text)
	setuid.Mode = 0o4755
	xattr := reg("bin/ping", text)
	xattr.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00", "SCHILY.xattr.user.x": "y"}
	sub := reg("sub-second", text)
	sub.ModTime = time.Unix(1700000000, 123456789)
	sub.Format = tar.FormatPAX
	plain := stdTar(reg("a", text), reg("b", text))
	big := makeTar(tarFile{name: "base256", typ: '0', data: []byte(text), mod: func(h []byte) {
		h[124] = 0x80
		clear(h[125:136])
		binary.BigEndian.PutUint32(h[132:], uint32(len(text)))
	}})
	padded := append([]byte{}, makeTar(tarFile{name: "p", typ: '0', data: []byte("x")})...)
	copy(padded[tarheader.Block+5:], "not zero") // padding that is not zeros
	badSum := makeTar(tarFile{name: "sum", typ: '0', data: []byte(text)})
	copy(badSum[148:], "0000000\x00")
	return []oddTar{
		{"nothing", nil},
		{"only the end", make([]byte, 2*tarheader.Block)},
		{"no end", plain[:len(plain)-2*tarheader.Block]},
		{"long end", append(append([]byte{}, plain...), make([]byte, 20*tarheader.Block)...)},
		{"odd end", append(append([]byte{}, plain...), noise(1, 777)...)},
		{"cut", plain[:len(plain)-3*tarheader.Block-100]},
		{"no tar", noise(2, 5000)},
		{"types", stdTar(
			&tar.Header{Typeflag: tar.TypeDir, Name: "dev/", Mode: 0o755, ModTime: at},
			&tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Mode: 0o666, Devmajor: 1, Devminor: 3, ModTime: at},
			&tar.Header{Typeflag: tar.TypeBlock, Name: "dev/sda", Mode: 0o660, Devmajor: 8, ModTime: at},
			&tar.Header{Typeflag: tar.TypeFifo, Name: "dev/fifo", Mode: 0o600, ModTime: at},
			reg("file", text),
			&tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "file", ModTime: at},
			&tar.Header{Typeflag: tar.TypeSymlink, Name: "soft", Linkname: "file", ModTime: at},
			reg("dir/.wh.gone", ""), reg("dir/.wh..wh..opq", ""), reg("empty", ""))},
		{"setuid", stdTar(setuid)},
		{"xattr", stdTar(xattr)},
		{"pax time", stdTar(sub)},
		{"pax name", stdTar(reg(long, text), reg("naïve ünïcode", text))},
		{"gnu name", gnuLong},
		{"sparse", sparse()},
		{"base 256", big},
		{"padding", padded},
		{"bad checksum", badSum},
		{"dots", stdTar(reg("./a", text), reg("../b", text), reg("/c", text), reg("a", text+"again"))},
		{"same name twice", stdTar(reg("a", text), reg("a", text+"2"), reg("a", text+"3"))},
		{"file becomes directory", stdTar(reg("a", text), &tar.Header{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o755, ModTime: at}, reg("a/b", text))},
		{"global header", append(makeTar(tarFile{name: "g", typ: 'g', data: []byte("19 comment=hi there")}, tarFile{name: "a", typ: '0', data: []byte(text)}), 0)},
	}
}

// Every odd tar must come back byte for byte, from nothing, from itself a
// little changed, and from every other.
func TestOddTars(t *testing.T) {
	odd := oddTars()
	other := bytesObject(delta.Tar, stdTar(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Gname: strings.Repeat("some text that is long enough\n", 39)}))
	for i, o := range odd {
		t.Run(o.name, func(t *testing.T) {
			new := delta.Image{Name: "new", Objects: []delta.Object{bytesObject(delta.Tar, o.data)}}
			if !testing.Short() {
				roundTrip(t, nil, new)
				roundTrip(t, []delta.Image{{Name: "other", Objects: []delta.Object{other}}}, new)
			}
			next := odd[(i+1)%len(odd)]
			roundTrip(t, []delta.Image{{Name: "next", Objects: []delta.Object{bytesObject(delta.Tar, next.data)}}}, new)
			if len(o.data) > 2*tarheader.Block {
				old := append([]byte{}, o.data...)
				old[len(old)/2] ^= 1
				roundTrip(t, []delta.Image{{Name: "changed", Objects: []delta.Object{bytesObject(delta.Tar, old)}}}, new)
			}
		})
	}
}

// One old tar for all odd ones, and all of them in one image.
func TestOddTarsTogether(t *testing.T) {
	var old, new delta.Image
	for i, o := range oddTars() {
		new.Objects = append(new.Objects, bytesObject(delta.Tar, o.data))
		if i%2 == 0 {
			old.Objects = append(old.Objects, bytesObject(delta.Tar, o.data))
		} else if len(o.data) > tarheader.Block {
			old.Objects = append(old.Objects, bytesObject(delta.Tar, o.data[:len(o.data)-tarheader.Block]))
		}
	}
	roundTrip(t, []delta.Image{old}, new)
}

func TestDeterministic(t *testing.T) {
	old, new := fuzzPair()
	var want []byte
	for workers := range 4 {
		var d bytes.Buffer
		_, err := encoder.Encode(context.Background(), &d, []delta.Image{old}, new, encoder.Options{Workers: workers, Memory: int64(workers) << 20})
		require.NoError(t, err)
		if want == nil {
			want = d.Bytes()
		}
		require.Equal(t, want, d.Bytes())
	}
}

func TestUnknownFeature(t *testing.T) {
	head, err := delta.AppendHeader(nil, delta.Header{Features: []string{"gzip9"}})
	require.NoError(t, err)
	_, err = decoder.New(bytes.NewReader(head))
	var fe *delta.FeatureError
	require.ErrorAs(t, err, &fe)
	require.Equal(t, "gzip9", fe.Feature)
}

// testELF is a small arm executable with branches and pointers, enough for
// every scanner of its machine.
func testELF() []byte {
	le := binary.LittleEndian
	b := make([]byte, 4096)
	copy(b, "\x7fELF\x01\x01\x01")
	le.PutUint16(b[16:], 2)
	le.PutUint16(b[18:], 40)
	le.PutUint32(b[28:], 52)
	le.PutUint16(b[42:], 32)
	le.PutUint16(b[44:], 1)
	p := b[52:]
	for i, v := range []uint32{1, 0, 0x10000, 0x10000, 4096, 8192, 5, 0x1000} {
		le.PutUint32(p[4*i:], v)
	}
	copy(b[128:], noise(11, 4096-128))
	for i := 256; i < 3000; i += 64 {
		le.PutUint32(b[i:], 0xeb000000|uint32(i&0xff))
		le.PutUint16(b[i+8:], 0xf000)
		le.PutUint16(b[i+10:], 0xf800|uint16(i&0x7f))
		le.PutUint32(b[i+16:], 0x10000+uint32(i))
	}
	return b
}
