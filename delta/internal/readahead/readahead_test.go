package readahead

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// counting counts reads, and remembers whether one began before the end of the last.
type counting struct {
	io.ReaderAt
	reads int
	end   int64
	back  bool
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.reads++
	c.back = c.back || off < c.end
	c.end = off + int64(n)
	return n, err
}

// Whatever is asked for, the answers are those of the file itself.
func TestAsTheFile(t *testing.T) {
	content := make([]byte, 5*Size+123)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	rapid.Check(t, func(t *rapid.T) {
		file := bytes.NewReader(content)
		r := New(bytes.NewReader(make([]byte, 3*Size)), 3*Size)
		for range rapid.IntRange(0, maxKept+1).Draw(t, "reads of an earlier file") {
			_, err := r.ReadAt(make([]byte, 10), rapid.Int64Range(0, 2*Size).Draw(t, "offset"))
			require.NoError(t, err)
		}
		r.Reset(file, int64(len(content)))
		for range rapid.IntRange(1, 50).Draw(t, "reads") {
			size := rapid.SampledFrom([]int{0, 1, 16, 500, Size - 1, Size, Size + 1, 3 * Size}).Draw(t, "size")
			off := rapid.Int64Range(0, int64(len(content)+Size)).Draw(t, "offset")
			want, got := make([]byte, size), make([]byte, size)
			n, werr := file.ReadAt(want, off)
			k, gerr := r.ReadAt(got, off)
			require.Equal(t, n, k)
			require.Equal(t, want, got)
			if size > 0 {
				require.Equal(t, werr, gerr)
			}
		}
	})
}

// Small pieces in order take few reads, in order, also when some are left out.
func TestInOrder(t *testing.T) {
	c := &counting{ReaderAt: bytes.NewReader(make([]byte, 64*Size))}
	r := New(c, 64*Size)
	asked := 0
	for off := int64(0); off < 64*Size-200; asked++ {
		n, err := r.ReadAt(make([]byte, 20+asked%160), off)
		require.NoError(t, err)
		off += int64(n + asked%30)
	}
	require.Greater(t, asked, 1000)
	require.LessOrEqual(t, c.reads, 65)
	require.LessOrEqual(t, r.Taken, int64(64*Size))
	require.False(t, c.back)
}

// A few places that are read in turn are each read ahead.
func TestPlaces(t *testing.T) {
	c := &counting{ReaderAt: bytes.NewReader(make([]byte, 8*maxKept*Size))}
	r := New(c, 8*maxKept*Size)
	for off := range int64(Size / 64) {
		for place := range int64(maxKept) {
			_, err := r.ReadAt(make([]byte, 64), place*8*Size+off*64)
			require.NoError(t, err)
		}
	}
	require.Equal(t, maxKept, c.reads)
}

// What the file cannot give shows when it is asked for.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	r := New(failing{bytes.NewReader(make([]byte, 2*Size)), 100, broken}, 2*Size)
	n, err := r.ReadAt(make([]byte, 60), 0)
	require.NoError(t, err)
	require.Equal(t, 60, n)
	n, err = r.ReadAt(make([]byte, 60), 60)
	require.ErrorIs(t, err, broken)
	require.Equal(t, 40, n)
}

// failing fails from an offset on.
type failing struct {
	r   io.ReaderAt
	off int64
	err error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.off {
		return f.r.ReadAt(p, off)
	}
	n, _ := f.r.ReadAt(p[:max(0, f.off-off)], off)
	return n, f.err
}
