package codec

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// counting is an Old that counts the bytes that are read of its files.
type counting struct {
	delta.Old
	read *int64
}

type countingFile struct {
	delta.File
	read *int64
}

func (c counting) OpenFile(ctx context.Context, in delta.Digest, path string) (delta.File, error) {
	f, err := c.Old.OpenFile(ctx, in, path)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.read}, nil
}

func (f countingFile) ReadAt(b []byte, off int64) (int, error) {
	*f.read += int64(len(b))
	return f.File.ReadAt(b, off)
}

// tinyMembers is the plan of a tar of n members of one byte, each as plan says.
func tinyMembers(t *testing.T, n int, plan func(new io.ReaderAt) script.Content) (delta.ObjectInfo, *script.Object) {
	var whole bytes.Buffer
	p := &script.Object{Tar: true}
	for i := range n {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint("f", i), Size: 1, Mode: 0o644}))
		_, err := w.Write([]byte("0"))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		whole.Write(b.Bytes())
		p.Members = append(p.Members, script.Member{Raw: b.Bytes()[:tarheader.Block], Padded: true, Content: plan(bytes.NewReader([]byte("0")))})
	}
	p.Tail = int64(whole.Len())
	whole.Write(make([]byte, 2*tarheader.Block))
	p.R, p.Size = bytes.NewReader(whole.Bytes()), int64(whole.Len())
	return delta.ObjectInfo{Digest: digest.Of(whole.Bytes()), Size: p.Size, Kind: delta.Tar, Encoding: delta.Delta}, p
}

// body is the delta of a plan, however much the plan reads.
func body(t *testing.T, old delta.Old, bases []delta.Base, info delta.ObjectInfo, p *script.Object) []byte {
	var b bytes.Buffer
	c := NewEncoder(t.Context(), &b, parse.New(parse.Quick, lz.Window, 0), old, bases, info.Size)
	c.old.limit = math.MaxInt64
	require.NoError(t, c.Encode(info, p))
	require.NoError(t, c.Flush())
	return b.Bytes()
}

func oldTar(t *testing.T, name string, data []byte) (*tarstore.Store, []delta.Base) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644}))
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	s := tarstore.New()
	d := digest.Of(b.Bytes())
	require.NoError(t, s.Add(d, delta.Tar, bytes.NewReader(b.Bytes()), int64(b.Len())))
	return s, []delta.Base{{Image: "x", Digest: d, Size: int64(b.Len()), Kind: delta.Tar}}
}

// Many small members that are changed from one large file: it is read once for
// its checksum, not once for each.
func TestChecksumsAreRemembered(t *testing.T) {
	const n, size = 500, 1 << 20
	old, bases := oldTar(t, "big", noise(1, size))
	info, p := tinyMembers(t, n, func(new io.ReaderAt) script.Content {
		return script.Content{Op: script.ChangeOther, Source: script.Source{Path: "big"}, OldSize: size, New: new}
	})
	b := body(t, old, bases, info, p)
	require.Less(t, len(b), 6<<10)
	var read int64
	c := NewDecoder(t.Context(), bufio.NewReader(bytes.NewReader(b)), counting{old, &read}, bases, info.Size)
	require.NoError(t, c.Decode(info, io.Discard))
	require.LessOrEqual(t, read, int64(4*size))
}

// A delta that reads the same stream of an old file for each of many small
// members is refused by what it reads.
func TestReadsAreBounded(t *testing.T) {
	const n = 300
	stream := gzipOf(t, deflate.GNU(1), noise(1, 1<<20))
	old, bases := oldTar(t, "big.gz", stream)
	small := gzipOf(t, deflate.GNU(9), nil)
	info, p := tinyMembers(t, n, func(new io.ReaderAt) script.Content {
		return script.Content{Op: script.ChangeOther, Source: script.Source{Path: "big.gz"}, OldSize: int64(len(stream)), New: new,
			Streams: []script.Stream{{Length: int64(len(small)), StreamHead: script.StreamHead{
				Envelope: deflate.GzipEnvelope, Head: deflate.GzipHead, Variant: deflate.GNU(9), Old: 0}}}}
	})
	for i := range p.Members {
		m := &p.Members[i]
		m.New = bytes.NewReader(small)
		h := append([]byte(nil), m.Raw...)
		copy(h[124:136], fmt.Sprintf("%011o\x00", len(small)))
		copy(h[148:156], tarheader.Checksum(h))
		m.Raw = h
	}
	var whole bytes.Buffer
	for i := range p.Members {
		whole.Write(p.Members[i].Raw)
		whole.Write(small)
		whole.Write(make([]byte, -len(small)&(tarheader.Block-1)))
	}
	p.Tail = int64(whole.Len())
	whole.Write(make([]byte, 2*tarheader.Block))
	p.R, p.Size = bytes.NewReader(whole.Bytes()), int64(whole.Len())
	info.Size, info.Digest = p.Size, digest.Of(whole.Bytes())

	b := body(t, old, bases, info, p)
	var read int64
	c := NewDecoder(t.Context(), bufio.NewReader(bytes.NewReader(b)), counting{old, &read}, bases, info.Size)
	require.ErrorIs(t, c.Decode(info, io.Discard), delta.ErrTooMuchRead)
	require.LessOrEqual(t, read, ReadLimit(info.Size, bases[0].Size))
}
