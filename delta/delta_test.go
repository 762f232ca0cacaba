package delta_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
	"github.com/mender-app/mender-app/delta/tarstore"
)

func bytesObject(kind delta.Kind, b []byte) delta.Object {
	return delta.Object{Digest: digest.Of(b), Size: int64(len(b)), Kind: kind, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b)), nil
	}}
}

// memSink keeps an object in memory and remembers how it ended.
type memSink struct {
	bytes.Buffer
	committed bool
	cause     error
}

func (m *memSink) Commit() error     { m.committed = true; return nil }
func (m *memSink) Abort(cause error) { m.cause = cause }

func storeOf(t testing.TB, images ...delta.Image) *tarstore.Store {
	s := tarstore.New()
	for _, im := range images {
		for _, o := range im.Objects {
			r, err := o.Open()
			require.NoError(t, err)
			b, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, s.Add(o.Digest, o.Kind, bytes.NewReader(b), o.Size))
		}
	}
	return s
}

func apply(d []byte, old delta.Old) ([]*memSink, error) {
	r, err := decoder.New(bytes.NewReader(d))
	if err != nil {
		return nil, err
	}
	var sinks []*memSink
	err = r.Apply(context.Background(), old, "", func(delta.ObjectInfo) (delta.Sink, error) {
		s := &memSink{}
		sinks = append(sinks, s)
		return s, nil
	})
	return sinks, err
}

// roundTrip encodes, decodes, compares, and returns the delta.
func roundTrip(t testing.TB, old []delta.Image, new delta.Image) ([]byte, *encoder.Report) {
	var d bytes.Buffer
	rep, err := encoder.Encode(context.Background(), &d, old, new, encoder.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(d.Len()), rep.Size)
	sinks, err := apply(d.Bytes(), storeOf(t, old...))
	require.NoError(t, err)
	n := 0
	for i, o := range rep.Objects {
		if o.Encoding == delta.Omitted {
			continue
		}
		r, err := new.Objects[i].Open()
		require.NoError(t, err)
		want, err := io.ReadAll(r)
		require.NoError(t, err)
		require.True(t, sinks[n].committed)
		require.True(t, bytes.Equal(want, sinks[n].Bytes()), "object %d", i)
		n++
	}
	require.Len(t, sinks, n)
	return d.Bytes(), rep
}

type tarFile struct {
	name string
	typ  byte
	data []byte
	mod  func(h []byte)
}

// makeTar writes a plain ustar archive.
func makeTar(files ...tarFile) []byte {
	var b bytes.Buffer
	for _, f := range files {
		h := make([]byte, tarheader.Block)
		copy(h, f.name)
		copy(h[100:], "0000644\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", len(f.data), 1700000000))
		h[156] = f.typ
		copy(h[257:], "ustar\x0000")
		if f.mod != nil {
			f.mod(h)
		}
		copy(h[148:156], tarheader.Checksum(h))
		b.Write(h)
		b.Write(f.data)
		b.Write(make([]byte, -len(f.data)&(tarheader.Block-1)))
	}
	b.Write(make([]byte, 2*tarheader.Block))
	return b.Bytes()
}

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

func TestRoundTripSmall(t *testing.T) {
	a, b, c := noise(1, 5000), noise(2, 70000), noise(3, 200000)
	old := delta.Image{Name: "app:1", Objects: []delta.Object{
		bytesObject(delta.Blob, []byte(`{"config":1}`)),
		bytesObject(delta.Tar, makeTar(tarFile{name: "bin/", typ: '5'}, tarFile{name: "bin/a", typ: '0', data: a}, tarFile{name: "bin/b", typ: '0', data: b})),
		bytesObject(delta.Tar, makeTar(tarFile{name: "bin/c", typ: '0', data: c})),
	}}
	b2 := append(append(append([]byte{}, b[:30000]...), "something new"...), b[30000:]...)
	binary.LittleEndian.PutUint32(b2[100:], 7)
	new := delta.Image{Name: "app:2", Objects: []delta.Object{
		bytesObject(delta.Blob, []byte(`{"config":2}`)),
		bytesObject(delta.Tar, makeTar(
			tarFile{name: "bin/", typ: '5'}, tarFile{name: "bin/a", typ: '0', data: a}, tarFile{name: "bin/b", typ: '0', data: b2},
			tarFile{name: "moved/c", typ: '0', data: c}, tarFile{name: "empty", typ: '0'}, tarFile{name: "new", typ: '0', data: noise(9, 100)},
		)),
		old.Objects[2],
		bytesObject(delta.Tar, nil),
		bytesObject(delta.Tar, noise(4, 12345)),
	}}
	d, rep := roundTrip(t, []delta.Image{old}, new)
	require.Equal(t, delta.Omitted, rep.Objects[2].Encoding)
	t.Log(len(d), rep.Objects)

	t.Run("damaged", func(t *testing.T) {
		store := storeOf(t, old)
		for cut := 0; cut < len(d); cut += 1 + cut/20 {
			_, err := apply(d[:cut], store)
			require.ErrorIs(t, err, delta.ErrFormat, cut)
		}
	})
	t.Run("missing base", func(t *testing.T) {
		_, err := apply(d, tarstore.New())
		var oe *delta.OldError
		require.ErrorAs(t, err, &oe)
		require.Equal(t, delta.NoBase, oe.Problem)
	})
	t.Run("damaged base", func(t *testing.T) {
		bad := old
		bad.Objects = append([]delta.Object{}, old.Objects...)
		raw := makeTar(tarFile{name: "bin/", typ: '5'}, tarFile{name: "bin/a", typ: '0', data: noise(5, 5000)}, tarFile{name: "bin/b", typ: '0', data: b})
		bad.Objects[1] = bytesObject(delta.Tar, raw)
		bad.Objects[1].Digest = old.Objects[1].Digest
		sinks, err := apply(d, storeOf(t, bad))
		var oe *delta.OldError
		require.ErrorAs(t, err, &oe)
		require.Equal(t, delta.DamagedFile, oe.Problem)
		require.Equal(t, "bin/a", oe.Path)
		require.False(t, sinks[len(sinks)-1].committed)
		require.True(t, errors.Is(sinks[len(sinks)-1].cause, oe))
	})
}
