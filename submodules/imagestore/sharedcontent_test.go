package imagestore

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
	"github.com/mender-app/mender-app/submodules"
)

// memoryTarget is an engine that keeps what it is given; it stands for a store
// with damage in it that a real one could not be brought to have at will.
type memoryTarget struct {
	store  *tarstore.Store
	loaded []byte
}

func (m *memoryTarget) Present(context.Context, []image.Digest) (map[image.Digest]image.Descriptor, error) {
	return map[image.Digest]image.Descriptor{}, nil
}
func (m *memoryTarget) Has(context.Context, Identity) (bool, error) { return false, nil }
func (m *memoryTarget) Load(_ context.Context, r io.Reader) (err error) {
	m.loaded, err = io.ReadAll(r)
	return err
}
func (m *memoryTarget) Old(context.Context, []image.Digest) (Old, error) {
	return memoryOld{m.store}, nil
}
func (m *memoryTarget) Room(context.Context) (int64, error) { return NoRoomLimit, nil }
func (m *memoryTarget) Save(context.Context, string) (*os.File, int64, error) {
	return nil, 0, submodules.ErrNotFound
}

type memoryOld struct{ *tarstore.Store }

func (memoryOld) Layer(context.Context, image.Digest) (io.ReadCloser, int64, error) {
	return nil, 0, delta.ErrNoObject
}
func (memoryOld) Close() error { return nil }

func object(kind delta.Kind, b []byte) delta.Object {
	return delta.Object{Digest: digest.Of(b), Size: int64(len(b)), Kind: kind, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

func encode(t *testing.T, next delta.Image, olds ...delta.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := encoder.Encode(t.Context(), &b, olds, next, encoder.Options{TempDir: t.TempDir()})
	require.NoError(t, err)
	return b.Bytes()
}

// An image over a base of two layers, with shared content made from files of
// both: the upper layer hides a file of the lower one.
func TestReceiveShared(t *testing.T) {
	part := func(seed uint64) []byte { return noise(seed, 30_000) }
	changed := func(b []byte) []byte {
		c := bytes.Clone(b)
		copy(c[1000:], "changed")
		return c
	}
	lower := pack(t, member{"lib/a", part(1)}, member{"lib/b", part(2)})
	upper := pack(t, member{"lib/b", part(3)}, member{"lib/own", part(4)})
	merged := pack(t, member{"lib/a", part(1)}, member{"lib/b", part(3)})
	content := pack(t, member{"0", changed(part(1))}, member{"1", changed(part(3))}, member{"2", part(5)})
	layer := pack(t, member{"lib/a", changed(part(1))}, member{"lib/b", changed(part(3))}, member{"lib/new", part(5)}, member{"lib/own", changed(part(4))})
	config, err := json.Marshal(map[string]any{
		"architecture": "arm64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []delta.Digest{digest.Of(layer)}},
	})
	require.NoError(t, err)

	shared := encode(t, delta.Image{Name: delta.SharedContent, Objects: []delta.Object{object(delta.Tar, content)}},
		delta.Image{Name: delta.SharedBase, Objects: []delta.Object{object(delta.Tar, merged)}})
	own := encode(t, delta.Image{Name: "web:3", Objects: []delta.Object{object(delta.Blob, config), object(delta.Tar, layer)}},
		delta.Image{Name: "web:1", Objects: []delta.Object{object(delta.Tar, lower), object(delta.Tar, upper)}},
		delta.Image{Name: delta.SharedContent, Objects: []delta.Object{object(delta.Tar, content)}})
	require.Less(t, len(own), 5000, "it takes the common files from the shared content")
	base := []image.Digest{digest.Of(lower), digest.Of(upper)}

	receive := func(t *testing.T, in []byte, base []image.Digest, damage func(lower, upper []byte)) (*memoryTarget, error) {
		l, u := bytes.Clone(lower), bytes.Clone(upper)
		if damage != nil {
			damage(l, u)
		}
		m := &memoryTarget{store: tarstore.New()}
		require.NoError(t, m.store.Add(digest.Of(lower), delta.Tar, bytes.NewReader(l), int64(len(l))))
		require.NoError(t, m.store.Add(digest.Of(upper), delta.Tar, bytes.NewReader(u), int64(len(u))))
		dir := t.TempDir()
		_, _, err := Receive(t.Context(), m, bytes.NewReader(in), LoadRequest{
			Current: "web:1@" + string(digest.Of([]byte("web:1"))), Base: base, TempDir: dir, Log: t.Logf,
			Want: Identity{Config: digest.Of(config), DiffIDs: []image.Digest{digest.Of(layer)}},
		}, func(image.Digest) []string { return []string{"x:1"} })
		left, rerr := os.ReadDir(dir)
		require.NoError(t, rerr)
		require.Empty(t, left)
		return m, err
	}
	both := append(bytes.Clone(shared), own...)

	m, err := receive(t, both, base, nil)
	require.NoError(t, err)
	r := tar.NewReader(bytes.NewReader(m.loaded))
	found := false
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if b, _ := io.ReadAll(r); bytes.Equal(b, layer) {
			found = true
			require.Contains(t, h.Name, digest.Of(layer).Hex())
		}
	}
	require.True(t, found)

	for name, c := range map[string]struct {
		in     []byte
		base   []image.Digest
		damage func(lower, upper []byte)
		is     error
		says   string
	}{
		"no base is named":       {both, nil, nil, submodules.ErrBase, "does not name the one that is present"},
		"another base":           {both, base[:1], nil, submodules.ErrBase, "lib/b"},
		"a layer is missing":     {both, append(base[:1:1], digest.Of([]byte("x"))), nil, submodules.ErrBase, "is not there"},
		"damaged below":          {both, base, func(l, _ []byte) { l[512+2000] ^= 1 }, submodules.ErrBase, `"lib/a"`},
		"damaged above":          {both, base, func(_, u []byte) { u[512+2000] ^= 1 }, submodules.ErrBase, `old image "web:1" is damaged`},
		"damaged, of the second": {both, base, func(_, u []byte) { u[2*512+30_208+2000] ^= 1 }, submodules.ErrBase, `"lib/own"`},
		"the second is missing":  {shared, base, nil, submodules.ErrContent, ""},
		"the first twice":        {append(bytes.Clone(shared), both...), base, nil, submodules.ErrContent, ""},
		"the first is missing":   {own, base, nil, submodules.ErrBase, delta.SharedContent},
		"cut in the first":       {both[:len(shared)-100], base, nil, submodules.ErrContent, ""},
		"cut in the second":      {both[:len(both)-100], base, nil, submodules.ErrContent, ""},
		"shared content of images": {append(encode(t, delta.Image{Name: delta.SharedContent, Objects: []delta.Object{object(delta.Blob, config)}}), own...),
			base, nil, submodules.ErrContent, "shared content is one tar"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := receive(t, c.in, c.base, c.damage)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
		})
	}
}
