package delta_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/tarstore"
	"github.com/mender-app/mender-app/delta/vcdiff"
)

// mutantMemory is what decoding one mutant may allocate, in bytes. The golden
// deltas are small; what they allocate is the models.
const mutantMemory = 64 << 20

// mutant changes a copy of b after its first keep bytes: bits, bytes, lengths,
// pieces that are cut out, doubled, or come from another place.
func mutant(rnd *rand.Rand, b []byte, keep int) []byte {
	b = bytes.Clone(b)
	for range 1 + rnd.IntN(3) {
		n := len(b) - keep
		if n < 2 {
			return b
		}
		at := keep + rnd.IntN(n)
		size := min(1+rnd.IntN(40), len(b)-at)
		switch rnd.IntN(7) {
		case 0:
			b[at] ^= 1 << rnd.IntN(8)
		case 1:
			b[at] = byte(rnd.IntN(256))
		case 2:
			b[at] = []byte{0, 0x7f, 0x80, 0xff}[rnd.IntN(4)]
		case 3: // a varint as large as can be
			for i := range size {
				b[at+i] = 0xff
			}
		case 4:
			b = b[:at]
		case 5:
			b = append(b[:at:at], b[at+size:]...)
		case 6:
			from := keep + rnd.IntN(n)
			b = append(b[:at:at], append(bytes.Clone(b[from:min(from+size, len(b))]), b[at:]...)...)
		}
	}
	return b
}

// mutants is how many mutants a test decodes: MENDER_APP_MUTANTS, or a few.
func mutants(t *testing.T) (count int, rnd *rand.Rand) {
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 32)
		require.NoError(t, err, name)
		return n
	}
	seed := number("MENDER_APP_SEED", 1)
	few := uint64(400)
	if testing.Short() {
		few = 50
	}
	return int(number("MENDER_APP_MUTANTS", few)), rand.New(rand.NewPCG(seed, 0))
}

// within asserts that f allocates no more than a mutant may.
func within(t *testing.T, name string, f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(mutantMemory), name)
}

// Mutants of the golden deltas, of their bodies alone and of all of them: the
// decoder ends, reads and allocates no more than it may, and commits nothing that
// has not the digest that the header says.
func TestMutantsOfDeltas(t *testing.T) {
	count, rnd := mutants(t)
	type origin struct {
		name  string
		delta []byte
		head  int
		old   delta.Old
		bases int64
	}
	var origins []origin
	for _, g := range goldens {
		if g.shared || g.slow {
			continue // two deltas in one file, or a large one: the others have all that is in them
		}
		b, err := os.ReadFile(g.file())
		require.NoError(t, err)
		h, err := delta.ReadHeader(bufio.NewReader(bytes.NewReader(b)), anyFeature)
		require.NoError(t, err)
		head, err := delta.AppendHeader(nil, h)
		require.NoError(t, err)
		o := origin{name: g.name, delta: b, head: len(head)}
		store := tarstore.New()
		passes, _ := g.passes(t)
		for _, obj := range passes[0].old[0].Objects {
			r, err := obj.Open()
			require.NoError(t, err)
			content, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, store.Add(obj.Digest, obj.Kind, bytes.NewReader(content), obj.Size))
			o.bases += obj.Size
		}
		o.old = store
		origins = append(origins, o)
	}
	refused := 0
	for i := range count {
		o := origins[i%len(origins)]
		keep := 0
		if i/len(origins)%4 > 0 {
			keep = o.head
		}
		d := mutant(rnd, o.delta, keep)
		h, herr := delta.ReadHeader(bufio.NewReader(bytes.NewReader(d)), anyFeature)
		work := &countedOld{Old: o.old}
		within(t, o.name, func() {
			sinks, err := apply(d, work)
			if herr != nil {
				require.Error(t, err, "%s, mutant %d", o.name, i)
			}
			if err != nil {
				refused++
			}
			require.LessOrEqual(t, work.read, codec.ReadLimit(h.Size(), o.bases)+4*o.bases, "%s, mutant %d", o.name, i)
			for n, s := range sinks {
				require.False(t, s.committed && s.cause != nil)
				require.LessOrEqual(t, int64(s.Len()), h.Objects[n].Size, "%s, mutant %d", o.name, i)
				if s.committed {
					require.Equal(t, h.Objects[n].Digest, digest.Of(s.Bytes()), "%s, mutant %d", o.name, i)
				}
			}
		})
	}
	require.Greater(t, refused, count*3/4, "a mutant is another delta")
	t.Logf("figures: %d mutants of deltas, %d refused", count, refused)
}

// Mutants of the shell reference's deltas.
func TestMutantsOfVCDIFF(t *testing.T) {
	count, rnd := mutants(t)
	dir := filepath.Join("vcdiff", "testdata")
	old, err := os.ReadFile(filepath.Join(dir, "old"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*.vcdiff"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	refused := 0
	const limit = 8 << 20
	for i := range count {
		file := files[i%len(files)]
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		d := mutant(rnd, whole, 0)
		within(t, file, func() {
			r, err := vcdiff.NewReader(t.Context(), bytes.NewReader(old), int64(len(old)), bytes.NewReader(d),
				vcdiff.Options{MaxWindow: 1 << 20, MaxMemory: 4 << 20, MaxTarget: limit})
			if err == nil {
				var n int64
				n, err = io.Copy(io.Discard, r)
				require.LessOrEqual(t, n, int64(limit))
				err = errors.Join(err, r.Close())
			}
			if err != nil {
				refused++
			}
		})
	}
	require.Greater(t, refused, count/2)
	t.Logf("figures: %d mutants of VCDIFF files, %d refused", count, refused)
}
