package deflate

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func compress(t testing.TB, v Variant, b []byte) []byte {
	var out bytes.Buffer
	d := NewWriter(&out, v)
	n, err := d.Write(b)
	require.NoError(t, err)
	require.Equal(t, len(b), n)
	require.NoError(t, d.Close())
	return out.Bytes()
}

// words is text of so many bytes: words of a vocabulary, by chance.
func words(seed int64, n int) []byte {
	r := rand.New(rand.NewSource(seed))
	var voc []string
	for range 3000 {
		var w strings.Builder
		for range 1 + r.Intn(9) {
			w.WriteByte(byte('a' + r.Intn(26)*r.Intn(26)/25))
		}
		voc = append(voc, w.String())
	}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(voc[r.Intn(1+r.Intn(len(voc)))])
		b.WriteByte(" \n"[r.Intn(12)/11])
	}
	return b.Bytes()[:n]
}

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

type input struct {
	name string
	data []byte
}

// inputs are what the ways of an encoder part at.
func inputs() []input {
	far := words(7, 33000)
	var mixed []byte
	for i := range int64(12) {
		mixed = append(append(append(mixed, words(i, 9000)...), noise(i, 3000)...), make([]byte, 5000)...)
	}
	few := noise(5, 150000)
	for i := range few {
		few[i] &= 3
	}
	sums := noise(6, 200000)
	for i := range sums {
		sums[i] = "0123456789abcdef"[sums[i]&15]
	}
	in := []input{
		{"empty", nil}, {"one", []byte("x")}, {"two", []byte("xy")}, {"three", []byte("xxx")},
		{"zeros", make([]byte, 300000)}, {"short", []byte("abcabcabcabc")},
		{"words", words(1, 700000)}, {"noise", noise(2, 200000)}, {"mixed", mixed}, {"few", few}, {"hex", sums},
		{"far", bytes.Repeat(far, 6)}, {"period", bytes.Repeat(noise(3, 4097), 30)},
	}
	for _, n := range []int{258, 259, 261, 262, 263, 32506, 32768, 65273, 65274, 65275, 65535, 65536, 65537, 98041, 131072} {
		in = append(in, input{fmt.Sprintf("words of %d", n), words(int64(n), n)})
	}
	if testing.Short() {
		in = slices.DeleteFunc(in, func(i input) bool { return len(i.data) > 66000 && i.name != "mixed" })
	}
	return in
}

// The sums of what gzip 1.12 and zlib 1.2.13 make of the inputs:
//
//	MENDER_APP_DEFLATE_SUMS=1 go test -run TestReal ./delta/deflate
//
// compares with gzip and with Python's zlib; what they agreed in became
// testdata/sums.
func TestSums(t *testing.T) {
	want, err := os.ReadFile("testdata/sums")
	require.NoError(t, err)
	got := sums(t)
	if testing.Short() {
		for line := range strings.Lines(got) {
			require.Contains(t, string(want), line)
		}
		return
	}
	require.Equal(t, string(want), got)
}

func sums(t *testing.T) string {
	var b strings.Builder
	for _, in := range inputs() {
		for v := range NumVariants {
			if testing.Short() && v%8 != 0 {
				continue
			}
			fmt.Fprintf(&b, "%x %s, %s\n", sha256.Sum256(compress(t, v, in.data)), v, in.name)
		}
	}
	return b.String()
}

// A Go that compresses in another way must not come in unnoticed: devices would
// not know the feature any more, and what it stands for would have to be written
// here.
func TestGoKnown(t *testing.T) { require.True(t, GoKnown()) }

const zlibPy = `
import sys, zlib
b = open(sys.argv[1], 'rb').read()
z = zlib.compressobj(int(sys.argv[2]), zlib.DEFLATED, -15, 8)
sys.stdout.buffer.write(z.compress(b) + z.flush())
`

// TestReal compares with the real gzip and, where there is Python, the real zlib.
// testdata/sums, which holds what both gave, is written anew with
// MENDER_APP_DEFLATE_SUMS=1.
func TestReal(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts the real programs hundreds of times: not short")
	}
	_, noPython := exec.LookPath("python3")
	renew := os.Getenv("MENDER_APP_DEFLATE_SUMS") != ""
	dir := t.TempDir()
	for i, in := range inputs() {
		name := fmt.Sprintf("%s/%02d", dir, i)
		require.NoError(t, os.WriteFile(name, in.data, 0o644))
		for v := range Go(1) {
			var want []byte
			var err error
			if v.gnu() {
				want, err = exec.Command("gzip", fmt.Sprintf("-%dnc", v.Level()), name).Output()
				require.NoError(t, err)
				want = want[10 : len(want)-8]
			} else if noPython != nil && !renew {
				continue
			} else {
				want, err = exec.Command("python3", "-c", zlibPy, name, fmt.Sprint(v.Level())).Output()
				require.NoError(t, err)
			}
			got := compress(t, v, in.data)
			if !bytes.Equal(want, got) {
				n := 0
				for n < len(want) && n < len(got) && want[n] == got[n] {
					n++
				}
				t.Errorf("%s, %s: differs at %d of %d and %d", in.name, v, n, len(want), len(got))
			}
		}
	}
	if renew && !t.Failed() {
		require.NoError(t, os.WriteFile("testdata/sums", []byte(sums(t)), 0o644))
	}
}

// How the input arrives makes no difference, nor does a Writer used again.
func TestPieces(t *testing.T) {
	var out bytes.Buffer
	d := NewWriter(io.Discard, 0)
	for _, in := range inputs() {
		for _, v := range []Variant{GNU(9), Zlib(1)} {
			out.Reset()
			d.Reset(&out, v)
			for b, n := in.data, 1; len(b) > 0; n = n*3%7001 + 1 {
				k := min(n, len(b))
				_, err := d.Write(b[:k])
				require.NoError(t, err)
				b = b[k:]
			}
			require.NoError(t, d.Close())
			require.True(t, bytes.Equal(compress(t, v, in.data), out.Bytes()), "%s, %s", in.name, v)
		}
	}
}

// FuzzDeflate compresses anything, at every level; it must come back.
func FuzzDeflate(f *testing.F) {
	for _, in := range inputs() {
		if len(in.data) < 1000 {
			f.Add(in.data, uint8(1), uint16(0))
		}
	}
	f.Add([]byte("some text "), uint8(9), uint16(40000))
	d := NewWriter(io.Discard, 0)
	f.Fuzz(func(t *testing.T, b []byte, v uint8, repeat uint16) {
		b = append(b, bytes.Repeat(b, 2*int(repeat)/(len(b)+1))...)
		var out, plain bytes.Buffer
		pack := func(w io.Writer, far bool) {
			d.Reset(w, Variant(v)%NumVariants)
			if !far {
				d.far = nil
			}
			_, err := d.Write(b)
			require.NoError(t, err)
			require.NoError(t, d.Close())
		}
		pack(&out, true)
		if d.far != nil && !d.isGo { // see TestFarther
			pack(&plain, false)
			require.True(t, bytes.Equal(plain.Bytes(), out.Bytes()))
		}
		got, err := io.ReadAll(flate.NewReader(&out))
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, got))
	})
}

func BenchmarkWriter(b *testing.B) {
	text := words(1, 1<<20)
	for _, v := range []Variant{GNU(9), GNU(6), Zlib(6), Zlib(1)} {
		b.Run(v.String(), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			d := NewWriter(io.Discard, v)
			for b.Loop() {
				d.Reset(io.Discard, v)
				d.Write(text)
				d.Close()
			}
		})
	}
}
