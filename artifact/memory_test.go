package artifact

import (
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImagesMemory streams a payload far larger than the memory that may be
// taken.
func TestImagesMemory(t *testing.T) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 32 << 20
	}
	pattern := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(pattern)
	pr, pw := io.Pipe()
	go func() {
		iw := NewImagesWriter(pw)
		g := want("old", "new", KindDelta)
		err := iw.Add(g.info, size, io.LimitReader(repeat{pattern}, size))
		if err == nil {
			err = iw.Close()
		}
		pw.CloseWithError(err)
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var n int64
	err := ReadImages(pr, ReadOptions{}, func(_ ImageInfo, r io.Reader) (err error) {
		n, err = io.Copy(io.Discard, r)
		return err
	})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	// Reading and writing together; the writer's stored blocks need a window.
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3<<20))
}

// repeat is a pattern without end; it forgets where in it it was.
type repeat struct{ pattern []byte }

func (r repeat) Read(p []byte) (int, error) { return copy(p, r.pattern), nil }

// BenchmarkImagesWriter packs full images.
func BenchmarkImagesWriter(b *testing.B) {
	text := strings.Repeat("a line of text that is not all that long\n", 1<<19)
	g := want("", "full", KindFull)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		iw := NewImagesWriter(io.Discard)
		require.NoError(b, iw.Add(g.info, int64(len(text)), strings.NewReader(text)))
		require.NoError(b, iw.Close())
	}
}
