package vcdiff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// apply builds the decoder as a program of its own for an architecture.
func apply(t testing.TB, arch ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "apply")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./testdata/apply")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), arch...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// measure runs the program and gives its peak memory in KiB, its CPU time in
// ms, and what it said if it refused the delta.
func measure(t testing.TB, target io.Writer, argv ...string) (rss, cpu int, refused string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = target, &stderr
	err := cmd.Run()
	refused, figures, _ := strings.Cut(stderr.String(), "rss ")
	_, serr := fmt.Sscanf(figures, "%d\ncpu %d", &rss, &cpu)
	require.NoError(t, serr, "%s", stderr.String())
	require.Equal(t, err != nil, refused != "", "%v", err)
	return rss, cpu, strings.TrimSpace(refused)
}

func randomFile(t testing.TB, name string, parts ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, bytes.Join(parts, nil), 0o644))
	return path
}

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// hostile is a delta made to use as much memory as it can: windows that grow
// step by step, instructions as many as there may be, and three dictionaries.
func hostile(window int64) []byte {
	d := header(hdrSecondary, byte(LZMA))
	// A window of RUNs of one byte each: two bytes of instruction a byte.
	for size := window / 64; size <= window/4; size += size / 2 {
		inst := bytes.Repeat([]byte{2}, int(size))
		d = append(d, win(0, 0, 0, size, 0, bytes.Repeat([]byte{'x'}, int(size)), inst, nil)...)
	}
	for size := window / 2; size <= window; size += window / 8 {
		d = append(d, win(0, 0, 0, size, 0, []byte{'x'}, join([]byte{0}, sized(size)), nil)...)
	}
	return d
}

// dictionaries is one that fills the window, the instructions and the
// dictionaries of both to the limit, before it is found to be nonsense.
func dictionaries(t testing.TB) []byte {
	const target, insts = 8 << 20, 7 << 20
	path, err := exec.LookPath("xz")
	if err != nil {
		skip(t, "xz (Debian package xz-utils)")
	}
	zeros := func(n int64) []byte {
		cmd := exec.Command(path, "-c", "--check=none", "--lzma2=dict=4MiB")
		cmd.Stdin = bytes.NewReader(make([]byte, n))
		b, err := cmd.Output()
		require.NoError(t, err)
		i := 24 // after the headers; all chunks are compressed ones
		for b[i] != 0 {
			head := 5
			if b[i] >= 0xc0 {
				head++ // properties
			}
			i += head + int(binary.BigEndian.Uint16(b[i+3:])) + 1
		}
		return join(sized(n), b[:i])
	}
	return join(header(hdrSecondary, byte(LZMA)), win(0, 0, 0, target, 3, zeros(target), zeros(insts), nil))
}

// TestMemory holds the decoder's process to 32 MiB, whatever the delta.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	const limit = 32 << 10
	a, b := noise(1, 24<<20), noise(2, 10<<20)
	old := randomFile(t, "old", a)
	target := randomFile(t, "new", b[:9<<20], a[5<<20:20<<20], b[9<<20:], bytes.Repeat([]byte("padding "), 1<<20), a[:3<<20])
	deltas := map[string]string{
		"hostile":      randomFile(t, "hostile", hostile(DefaultMaxWindow)),
		"dictionaries": randomFile(t, "dictionaries", dictionaries(t)),
	}
	for _, args := range []string{"", "-S none", "-W 16777216", "-W 16777216 -S none"} {
		path := filepath.Join(t.TempDir(), "delta")
		encode(t, old, target, path, strings.Fields(args)...)
		deltas["xdelta3 "+args] = path
	}
	want, err := os.ReadFile(target)
	require.NoError(t, err)
	decodeAll := func(t *testing.T, limit int, argv ...string) {
		for name, delta := range deltas {
			t.Run(name, func(t *testing.T) {
				var got bytes.Buffer
				rss, cpu, refused := measure(t, &got, append(argv, old, delta)...)
				t.Logf("peak %d KiB, %d ms %s", rss, cpu, refused)
				require.LessOrEqual(t, rss, limit)
				if name == "dictionaries" {
					require.Contains(t, refused, "instructions give 0 of")
				} else if name != "hostile" {
					require.True(t, bytes.Equal(want, got.Bytes()))
				}
			})
		}
	}
	self := apply(t)
	t.Run("native", func(t *testing.T) { decodeAll(t, limit, self) })
	t.Run("arm", func(t *testing.T) {
		qemu, err := exec.LookPath("qemu-arm-static")
		if err != nil {
			skip(t, "qemu-arm-static (Debian package qemu-user-static)")
		}
		arm := apply(t, "GOOS=linux", "GOARCH=arm", "GOARM=7")
		// What qemu takes is what a decode of nothing takes there, less what
		// it takes without qemu.
		nothing := []string{"testdata/empty", "testdata/empty-both.vcdiff"}
		with, _, _ := measure(t, io.Discard, append([]string{qemu, arm}, nothing...)...)
		without, _, _ := measure(t, io.Discard, append([]string{self}, nothing...)...)
		decodeAll(t, limit+with-without, qemu, arm)
	})
}

// BenchmarkXdelta3 compares with xdelta3 -d: the CPU time of both as ratio,
// and the peak memory of both.
func BenchmarkXdelta3(b *testing.B) {
	x, self := xdelta3(b), apply(b)
	a := noise(1, 40<<20)
	all := pairs(b, 64<<20)
	all["noise"] = [2]string{randomFile(b, "old", a), randomFile(b, "new", noise(2, 9<<20), a[5<<20:30<<20], noise(3, 9<<20))}
	for _, name := range []string{"program", "layer", "noise"} {
		for _, args := range []string{"", "-S none"} {
			p := all[name]
			delta := filepath.Join(b.TempDir(), "delta")
			encode(b, p[0], p[1], delta, strings.Fields(args)...)
			b.Run(strings.TrimSpace(name+" "+args), func(b *testing.B) {
				var ours, theirs, rss, xrss int
				for b.Loop() {
					r, cpu, refused := measure(b, io.Discard, self, "-run", self, p[0], delta)
					require.Empty(b, refused)
					ours, rss = ours+cpu, max(rss, r)
					r, cpu, refused = measure(b, io.Discard, self, "-run", x, "-d", "-c", "-s", p[0], delta)
					require.Empty(b, refused)
					theirs, xrss = theirs+cpu, max(xrss, r)
				}
				b.ReportMetric(float64(ours)/float64(b.N), "ms-cpu")
				b.ReportMetric(float64(theirs)/float64(b.N), "ms-cpu-xdelta3")
				b.ReportMetric(float64(ours)/float64(max(theirs, 1)), "cpu-ratio")
				b.ReportMetric(float64(rss), "KiB-rss")
				b.ReportMetric(float64(xrss), "KiB-rss-xdelta3")
			})
		}
	}
}
