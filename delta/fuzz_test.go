package delta_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// fuzzPair is a small image pair that makes use of every operation.
func fuzzPair() (old, new delta.Image) {
	a, b, c := noise(1, 600), noise(2, 3000), noise(3, 1000)
	exe := testELF()
	old = delta.Image{Name: "app:1", Objects: []delta.Object{
		bytesObject(delta.Blob, []byte(`{"config":1}`)),
		bytesObject(delta.Tar, makeTar(tarFile{name: "bin/", typ: '5'}, tarFile{name: "bin/a", typ: '0', data: a},
			tarFile{name: "bin/b", typ: '0', data: b}, tarFile{name: "bin/x", typ: '0', data: exe}, tarFile{name: "c", typ: '0', data: c},
			tarFile{name: "doc.gz", typ: '0', data: stdGzip(prose(1, 2000))},
			tarFile{name: "app.jar", typ: '0', data: fuzzZip("1")})),
	}}
	b2 := append(append(append([]byte{}, b[:1000]...), "something new"...), b[1100:]...)
	exe2 := append([]byte{}, exe...)
	for i := 200; i < len(exe2); i += 40 {
		exe2[i]++
	}
	new = delta.Image{Name: "app:2", Objects: []delta.Object{
		bytesObject(delta.Blob, []byte(`{"config":2}`)),
		bytesObject(delta.Tar, makeTar(tarFile{name: "bin/", typ: '5'}, tarFile{name: "bin/a", typ: '0', data: a},
			tarFile{name: "bin/b", typ: '0', data: b2}, tarFile{name: "bin/x", typ: '0', data: exe2}, tarFile{name: "moved/c", typ: '0', data: c},
			tarFile{name: "empty", typ: '0'}, tarFile{name: "new", typ: '0', data: []byte("a new file\n")},
			tarFile{name: "doc.gz", typ: '0', data: stdGzip(append([]byte("new\n"), prose(1, 2000)...))},
			tarFile{name: "app.jar", typ: '0', data: fuzzZip("2")})),
	}}
	return old, new
}

// fuzzZip is an archive with one entry that depends on s.
func fuzzZip(s string) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i, b := range [][]byte{prose(7, 900), append(prose(8, 600), s...), prose(9, 500)} {
		w, err := z.Create(string(rune('a' + i)))
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			panic(err)
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// stdGzip is what gzip -9n makes of b.
func stdGzip(b []byte) []byte {
	out := bytes.NewBuffer(bytes.Clone(deflate.GzipHead))
	z := deflate.NewWriter(out, deflate.GNU(9))
	if _, err := z.Write(b); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	tail := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b))
	return append(append(out.Bytes(), tail...), byte(len(b)), byte(len(b)>>8), byte(len(b)>>16), byte(len(b)>>24))
}

// countedOld counts the bytes that are read of it.
type countedOld struct {
	delta.Old
	read int64
}

type countedFile struct {
	delta.File
	old *countedOld
}

func (c *countedOld) OpenFile(ctx context.Context, in delta.Digest, path string) (delta.File, error) {
	f, err := c.Old.OpenFile(ctx, in, path)
	if err != nil {
		return nil, err
	}
	return countedFile{f, c}, nil
}

func (f countedFile) ReadAt(b []byte, off int64) (int, error) {
	f.old.read += int64(len(b))
	return f.File.ReadAt(b, off)
}

type countedHeaders struct {
	delta.HeaderReader
	old *countedOld
}

func (c *countedOld) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	h, err := c.Old.Headers(ctx, in)
	if err != nil {
		return nil, err
	}
	return countedHeaders{h, c}, nil
}

func (h countedHeaders) Next() ([]byte, error) {
	b, err := h.HeaderReader.Next()
	h.old.read += int64(len(b))
	return b, err
}

// FuzzApply gives the decoder a body that is not what its header promises. It
// must end, within its bounds, read no more old content than FORMAT.md allows, and
// never commit what has not the right digest.
func FuzzApply(f *testing.F) {
	old, new := fuzzPair()
	fuzzBody(f, old, new, encoder.Options{})
}

// FuzzUnwind does the same where the delta says what it knows about unwind tables, of a
// changed and of a new library.
func FuzzUnwind(f *testing.F) {
	old, new := contents(f, unwindDir)
	fuzzBody(f, imageOf("old", delta.Tar, old), imageOf("new", delta.Tar, new), encoder.Options{})
}

// FuzzApart does the same where the delta predicts addresses whose parts stand apart.
func FuzzApart(f *testing.F) {
	old, new := contents(f, apartDir)
	fuzzBody(f, imageOf("old", delta.Tar, old), imageOf("new", delta.Tar, new), apartOptions)
}

// FuzzParts does the same where changed instructions are coded by their parts.
func FuzzParts(f *testing.F) {
	old, new := contents(f, partsDir)
	fuzzBody(f, imageOf("old", delta.Tar, old), imageOf("new", delta.Tar, new), partsOptions)
}

// FuzzShown does the same where new bytes in bulk follow old ones.
func FuzzShown(f *testing.F) {
	old, new := contents(f, shownDir)
	fuzzBody(f, imageOf("old", delta.Tar, old), imageOf("new", delta.Tar, new), shownOptions)
}

// FuzzPacked does the same where zstd compresses an object.
func FuzzPacked(f *testing.F) {
	old, new := contents(f, "elf-arm64")
	fuzzBody(f, imageOf("old", delta.Tar, old[:1024]), imageOf("new", delta.Tar, new), encoder.Options{NoUnwind: true, ByteCost: 1})
}

func fuzzBody(f *testing.F, old, new delta.Image, o encoder.Options) {
	var d bytes.Buffer
	_, err := encoder.Encode(context.Background(), &d, []delta.Image{old}, new, o)
	require.NoError(f, err)
	r := bufio.NewReader(bytes.NewReader(d.Bytes()))
	h, err := delta.ReadHeader(r, anyFeature)
	require.NoError(f, err)
	head, err := delta.AppendHeader(nil, h)
	require.NoError(f, err)
	body := d.Bytes()[len(head):]
	f.Add(body)
	f.Add(body[:len(body)/2])
	store := storeOf(f, old)
	bases := int64(0)
	for _, o := range old.Objects {
		bases += o.Size
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		work := &countedOld{Old: store}
		sinks, err := apply(append(head[:len(head):len(head)], body...), work)
		require.LessOrEqual(t, work.read, codec.ReadLimit(h.Size(), bases)+4*bases)
		for i, s := range sinks {
			require.False(t, s.committed && s.cause != nil)
			require.LessOrEqual(t, int64(s.Len()), new.Objects[i].Size)
			if s.committed {
				require.Equal(t, new.Objects[i].Digest, digest.Of(s.Bytes()))
			}
		}
		if err == nil {
			require.Len(t, sinks, len(new.Objects))
		}
	})
}

// FuzzHeader gives the header's parser anything.
func FuzzHeader(f *testing.F) {
	old, new := fuzzPair()
	var d bytes.Buffer
	_, err := encoder.Encode(context.Background(), &d, []delta.Image{old}, new, encoder.Options{})
	require.NoError(f, err)
	f.Add(d.Bytes()[:200])
	f.Add([]byte(delta.Magic + "\x01\x00\x00\x00\x00\x00"))
	f.Add([]byte(delta.Magic + "\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decoder.New(bytes.NewReader(b))
		if err != nil {
			var fe *delta.FeatureError
			require.True(t, errors.Is(err, delta.ErrFormat) || errors.As(err, &fe))
			return
		}
		again, err := delta.AppendHeader(nil, r.Header())
		require.NoError(t, err)
		r2, err := decoder.New(bytes.NewReader(again))
		require.NoError(t, err)
		require.Equal(t, r.Header(), r2.Header())
	})
}

// FuzzTar gives the tar reader anything: what it makes of it must add up to the
// whole, and must come through the codec.
func FuzzTar(f *testing.F) {
	for _, c := range oddTars() {
		if len(c.data) < 1<<16 {
			f.Add(c.data)
		}
	}
	old, _ := fuzzPair()
	f.Fuzz(func(t *testing.T, b []byte) {
		w := tarheader.NewWalk(bytes.NewReader(b), int64(len(b)))
		var end int64
		for {
			m, err := w.Next()
			if err != nil {
				break
			}
			require.Equal(t, end+int64(len(m.Raw)), m.Off)
			require.GreaterOrEqual(t, m.Size, int64(0))
			end = m.Off + m.Size + -m.Size&(tarheader.Block-1)
			require.LessOrEqual(t, end, int64(len(b)))
		}
		if len(b) < 1<<14 {
			roundTrip(t, []delta.Image{old}, delta.Image{Name: "x", Objects: []delta.Object{bytesObject(delta.Tar, b)}})
		}
	})
}

// FuzzStreams gives the search for streams anything: what it makes of it must
// come back, whichever way the change went.
func FuzzStreams(f *testing.F) {
	old := fuzzZip("1")
	f.Add(fuzzZip("2"))
	f.Add(old[:len(old)/2])
	f.Add(stdGzip(prose(1, 300)))
	f.Add(append(stdGzip(prose(8, 600)), fuzzZip("3")...))
	f.Add(append([]byte{0x78, 0x9c}, old[40:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<14 {
			return
		}
		a, z := delta.Image{Name: "1", Objects: []delta.Object{bytesObject(delta.Blob, old)}}, delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, b)}}
		roundTrip(t, []delta.Image{a}, z)
		roundTrip(t, []delta.Image{z}, a)
	})
}
