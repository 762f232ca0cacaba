package codec

import (
	"bytes"
	"io"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
	"github.com/mender-app/mender-app/delta/internal/script"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// gzipOf is a member as GNU gzip makes it.
func gzipOf(t testing.TB, v deflate.Variant, b []byte) []byte {
	out := bytes.NewBuffer(slices.Clone(deflate.GzipHead))
	z := deflate.NewWriter(out, v)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	sum := deflate.GzipEnvelope.Sum()
	sum.Write(b)
	return deflate.GzipEnvelope.AppendTail(out.Bytes(), sum, int64(len(b)))
}

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// What is read is what was put in last, whatever was in it before.
func TestPlainFile(t *testing.T) {
	var f plainFile
	for _, n := range []int{10, pieceSize - 1, pieceSize, pieceSize + 1, (keptPieces + 2) * pieceSize, 3, 0} {
		want := noise(int64(n), n)
		k, err := f.ReadFrom(iotest.OneByteReader(bytes.NewReader(want)))
		require.NoError(t, err)
		require.EqualValues(t, n, k)
		require.EqualValues(t, n, f.Size())
		b := make([]byte, pieceSize+10)
		for _, off := range []int{-1, 0, 5, n/2 - 1, n - 3, n, n + 1} {
			whole := bytes.NewReader(want)
			exact := make([]byte, len(b))
			k, err := whole.ReadAt(exact, int64(off))
			got, gerr := f.ReadAt(b, int64(off))
			require.Equal(t, k, got, "%d bytes at %d", n, off)
			require.Equal(t, exact[:k], b[:got])
			require.Equal(t, err == nil, gerr == nil)
		}
		require.NoError(t, f.Close())
		require.LessOrEqual(t, len(f.pieces), keptPieces)
	}
	_, err := f.ReadFrom(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("long enough"))))
	require.ErrorIs(t, err, iotest.ErrTimeout)
}

func TestForwardFile(t *testing.T) {
	plain := noise(1, 100000)
	b := gzipOf(t, deflate.GNU(1), plain)
	open := func(b []byte, size int64) *forwardFile {
		f, err := openForward(deflate.GzipEnvelope, bytes.NewReader(b), 0, int64(len(b)), size, make([]byte, 8192))
		require.NoError(t, err)
		return f
	}
	f := open(b, 100000)
	defer f.Close()
	buf := make([]byte, 5000)
	read := func(off, n int64) error {
		k, err := f.ReadAt(buf[:n], off)
		if err == nil {
			require.EqualValues(t, n, k)
			require.Equal(t, plain[off:off+n], buf[:n])
		}
		return err
	}
	require.ErrorIs(t, read(-1, 1), delta.ErrFormat)
	require.NoError(t, read(0, 5000))
	require.NoError(t, read(7000, 5000))
	require.NoError(t, read(12000-8192, 5000))
	require.NoError(t, read(12000-1, 1))
	require.ErrorIs(t, read(12000-8193, 1), delta.ErrFormat)
	require.NoError(t, read(99000, 1000))
	require.ErrorIs(t, read(99001, 1000), delta.ErrFormat)
	require.ErrorIs(t, read(-1, 1), delta.ErrFormat)
	long := open(b, 100001) // the stream ends before it is as long as announced
	defer long.Close()
	_, err := long.ReadAt(buf[:1], 100000)
	require.ErrorIs(t, err, delta.ErrFormat)
	cut := open(b[:len(b)/2], 100000)
	defer cut.Close()
	_, err = cut.ReadAt(buf[:1], 99999)
	require.ErrorIs(t, err, delta.ErrFormat)
	_, err = openForward(deflate.GzipEnvelope, bytes.NewReader(plain), 0, 100, 100, nil)
	require.ErrorIs(t, err, delta.ErrFormat)
}

// What the decoder refuses: the encoder runs the same code, so that a plan that
// breaks the bounds shows what a delta would get that does.
func TestStreamBounds(t *testing.T) {
	whole := gzipOf(t, deflate.GNU(9), bytes.Repeat([]byte("  * Fix number 7 (Closes: #1)\n"), 100))
	in, err := deflate.GzipEnvelope.Inflate(bytes.NewReader(whole), 0, int64(len(whole)), MaxPlain)
	require.NoError(t, err)
	good := script.Stream{Length: int64(len(whole)), StreamHead: script.StreamHead{
		Envelope: deflate.GzipEnvelope, Head: deflate.GzipHead, Variant: deflate.GNU(9), Size: int64(len(in.Plain)), Old: -1}}
	try := func(b []byte, streams ...script.Stream) error {
		c := NewEncoder(t.Context(), io.Discard, parse.New(parse.Quick, lz.Window, 0), tarstore.New(), nil, 1<<30)
		c.out.begin(nil, 1<<30)
		plan := &script.Content{Op: script.Literal, New: bytes.NewReader(b), Streams: streams}
		return c.contents.streams.code(&content{Place: script.Place{Size: int64(len(b))}, op: script.Literal, plan: plan})
	}
	require.NoError(t, try(whole))
	require.NoError(t, try(whole, good))
	for want, change := range map[string]func(*script.Stream){
		"unknown compression":         func(st *script.Stream) { st.Variant = deflate.NumVariants },
		"unknown compression ":        func(st *script.Stream) { st.Envelope = deflate.ZlibEnvelope + 1 },
		"a stream is too large":       func(st *script.Stream) { st.Size = MaxPlain + 1 },
		"a stream is out of bounds":   func(st *script.Stream) { st.Gap = good.Length + 1 },
		"the head of a stream is too": func(st *script.Stream) { st.Head = make([]byte, deflate.MaxHead+1) },
		"are larger than it":          func(st *script.Stream) { st.Gap = 1 },
	} {
		st := good
		change(&st)
		err := try(whole, st)
		require.ErrorIs(t, err, delta.ErrFormat, want)
		require.ErrorContains(t, err, strings.TrimSpace(want))
	}
	small := gzipOf(t, deflate.GNU(9), nil)
	none := good
	none.Size, none.Length = 0, int64(len(small))
	err = try(bytes.Repeat(small, 20), slices.Repeat([]script.Stream{none}, 20)...)
	require.ErrorIs(t, err, delta.ErrFormat)
	require.ErrorContains(t, err, "too many streams")
}
