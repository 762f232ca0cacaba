package delta_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/bits"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
)

// hostile are contents that compress badly, or look like what they are not.
func hostile() map[string][2][]byte {
	elf := testELF()
	broken := bytes.Clone(elf)
	copy(broken[40:], noise(1, 200))
	lines := []byte{}
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf("%x  usr/bin/%d\n", noise(int64(i), 16), i)...)
	}
	turned := noise(5, 60000)
	for i := range turned {
		turned[i] = bits.Reverse8(turned[i])
	}
	cut := func(b []byte) []byte { return append(bytes.Clone(b[len(b)/2:]), b[:len(b)/2]...) }
	return map[string][2][]byte{
		"nothing":            {nil, []byte("x")},
		"one byte":           {[]byte("y"), []byte("x")},
		"noise":              {noise(1, 300000), noise(2, 300000)},
		"noise from nothing": {nil, noise(3, 1<<20)},
		"every fourth byte":  {noise(6, 200000), every(noise(6, 200000), 4)},
		"every ninth byte":   {noise(7, 200000), every(noise(7, 200000), 9)},
		"ELF with noise":     {append(bytes.Clone(elf), noise(8, 50000)...), append(bytes.Clone(elf), noise(9, 50000)...)},
		"broken ELF":         {elf, broken},
		"sums":               {cut(lines), lines},
		"gzip of noise":      {stdGzip(noise(10, 100000)), stdGzip(noise(4, 100000))},
		"bits turned":        {noise(5, 60000), turned},
		"short records":      {records(1), records(2)},
	}
}

func every(b []byte, n int) []byte {
	for i := 0; i < len(b); i += n {
		b[i] ^= 0x5a
	}
	return b
}

// records are pieces of seven bytes in another order for each seed.
func records(seed int64) (b []byte) {
	for _, i := range rand.New(rand.NewSource(seed)).Perm(20000) {
		b = append(b, noise(int64(i), 7)...)
	}
	return b
}

// A delta is never larger than the objects it makes as gzip packs them, plus
// one percent; its head, of 200 bytes for each object, comes on top.
func TestNeverLarger(t *testing.T) {
	if testing.Short() {
		t.Skip("it encodes much that does not compress: not short")
	}
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []delta.Kind{delta.Tar, delta.Blob} {
				old, new := c[0], c[1]
				if kind == delta.Tar {
					old, new = makeTar(tarFile{name: "lib/x.md5sums", typ: '0', data: old}), makeTar(tarFile{name: "lib/x.md5sums", typ: '0', data: new})
				}
				d, _ := roundTrip(t, []delta.Image{{Name: "1", Objects: []delta.Object{bytesObject(kind, old)}}}, delta.Image{Name: "2", Objects: []delta.Object{bytesObject(kind, new)}})
				var z bytes.Buffer
				w, err := gzip.NewWriterLevel(&z, 9)
				require.NoError(t, err)
				_, err = w.Write(new)
				require.NoError(t, err)
				require.NoError(t, w.Close())
				require.LessOrEqual(t, len(d), z.Len()+z.Len()/100+200)
			}
		})
	}
}

// The result depends neither on the number of processors nor on the memory.
func TestSameEverywhere(t *testing.T) {
	old, new := manyFiles()
	e := testELF()
	big := append(bytes.Clone(e), prose(1, 60000)...)
	big2 := append(every(bytes.Clone(e), 40), prose(1, 60000)...)
	copy(big2, e[:128])
	a, b := makeTar(tarFile{name: "x", typ: '0', data: big}), makeTar(tarFile{name: "y", typ: '0', data: big2})
	old.Objects = append(old.Objects, bytesObject(delta.Tar, a))
	new.Objects = append(new.Objects, bytesObject(delta.Tar, b))
	var want []byte
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	processors := []int{1, 2, 3, 8}
	if testing.Short() {
		processors = []int{1, 3}
	}
	for _, n := range processors {
		runtime.GOMAXPROCS(n)
		for _, memory := range []int64{0, 1 << 20} {
			var d bytes.Buffer
			_, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{Memory: memory})
			require.NoError(t, err)
			if want == nil {
				want = d.Bytes()
			}
			require.True(t, bytes.Equal(want, d.Bytes()), "%d processors, memory %d", n, memory)
		}
	}
}

// A cancelled Encode ends soon, also from within the sorting of a large file.
func TestCancel(t *testing.T) {
	n := 8 << 20
	if testing.Short() {
		n = 1 << 17
	}
	old := delta.Image{Name: "1", Objects: []delta.Object{bytesObject(delta.Blob, noise(1, n))}}
	new := delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, every(noise(1, n), 64))}}
	whole := time.Now()
	_, err := encoder.Encode(t.Context(), io.Discard, []delta.Image{old}, new, encoder.Options{})
	require.NoError(t, err)
	took := time.Since(whole)
	for i := range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), took*time.Duration(i)/8)
		_, err := encoder.Encode(ctx, io.Discard, []delta.Image{old}, new, encoder.Options{})
		cancel()
		if err != nil { // a quiet machine may be done before
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	}
}

// The memory of both sides does not grow with the layer: the peaks of processes
// of their own. `make bench` shows it for a layer of 1 GiB.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	d := filepath.Join(t.TempDir(), "delta")
	for _, mib := range []string{"48", "200"} {
		enc := measure(t, benchRole+"=encode-large", self, mib, d)
		dec := measure(t, benchRole+"=decode-large", self, mib, d)
		t.Logf("%s MiB: encoder %d KiB, decoder %d KiB", mib, enc.rss, dec.rss)
		require.LessOrEqual(t, enc.rss, int64(1536<<10))
		require.LessOrEqual(t, dec.rss, int64(32<<10))
	}
}
