package delta_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
)

// encodeAt makes the delta of an image over nothing in which a byte costs so much, and decodes it.
func encodeAt(t *testing.T, byteCost int64, next delta.Image, want ...[]byte) (*encoder.Report, []byte) {
	var d bytes.Buffer
	rep, err := encoder.Encode(t.Context(), &d, nil, next, encoder.Options{Effort: encoder.Quick, ByteCost: byteCost})
	require.NoError(t, err)
	require.EqualValues(t, d.Len(), rep.Size)
	sinks, err := apply(d.Bytes(), storeOf(t))
	require.NoError(t, err)
	for i, w := range want {
		require.True(t, bytes.Equal(w, sinks[i].Bytes()))
	}
	return rep, d.Bytes()
}

// An object is coded in the way of which a device has it first: where bytes arrive fast, zstd
// compresses it, and where they arrive slowly, the models do. The choice flips where the sums
// of both are equal.
func TestByteCost(t *testing.T) {
	config, text := []byte(`{"config":1}`), makeTar(tarFile{name: "text", typ: '0', data: prose(3, 210<<10)})
	next := delta.Image{Name: "app:1", Objects: []delta.Object{bytesObject(delta.Blob, config), bytesObject(delta.Tar, text)}}

	plain, coded := encodeAt(t, 0, next, config, text)
	require.NotContains(t, plain.Header.Features, delta.FeaturePacked)
	fast, _ := encodeAt(t, 1, next, config, text)
	require.Contains(t, fast.Header.Features, delta.FeaturePacked)
	require.False(t, fast.Objects[0].Packed)
	require.True(t, fast.Objects[1].Packed)

	p, q := plain.Objects[1], fast.Objects[1]
	require.Greater(t, q.Total(), p.Total())
	flip := (p.Work.Instructions() - q.Work.Instructions()) / (q.Total() - p.Total())
	require.Positive(t, flip)
	below, _ := encodeAt(t, flip-flip/20, next)
	require.True(t, below.Objects[1].Packed)
	above, same := encodeAt(t, flip+flip/20, next)
	require.False(t, above.Objects[1].Packed)
	require.True(t, bytes.Equal(coded, same))
}

// Each object is chosen for by itself. One that zstd compresses may take several frames.
func TestByteCostOfEach(t *testing.T) {
	random := makeTar(tarFile{name: "noise", typ: '0', data: noise(2, 5<<20)})
	text := makeTar(tarFile{name: "text", typ: '0', data: prose(3, 210<<10)})
	next := delta.Image{Name: "app:1", Objects: []delta.Object{bytesObject(delta.Tar, random), bytesObject(delta.Tar, text)}}
	rep, _ := encodeAt(t, 1e6, next, random, text)
	require.True(t, rep.Objects[0].Packed, "it takes no more bytes, and less time")
	require.False(t, rep.Objects[1].Packed)
}

// What an old image has is not sent again for the sake of time.
func TestByteCostOfOldContent(t *testing.T) {
	a := prose(3, 210<<10)
	b := append(bytes.Clone(a), "a line at the end\n"...)
	image := func(b []byte) delta.Image {
		return imageOf("app", delta.Tar, makeTar(tarFile{name: "text", typ: '0', data: b}))
	}
	var d bytes.Buffer
	rep, err := encoder.Encode(t.Context(), &d, []delta.Image{image(a)}, image(b), encoder.Options{ByteCost: 1})
	require.NoError(t, err)
	require.False(t, rep.Objects[0].Packed)
}
