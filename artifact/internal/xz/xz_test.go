package xz

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// contents are what the tests compress.
var contents = map[string][]byte{
	"nothing": nil,
	"a byte":  {'a'},
	"text":    []byte(strings.Repeat("The same line, and the same again.\n", 9_000)),
	"noise":   noise(90_000),
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func compressed(t testing.TB, content []byte) []byte {
	var out bytes.Buffer
	w, err := NewWriter(&out)
	require.NoError(t, err)
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func decompressed(b []byte) ([]byte, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// program runs the program xz with content as its input.
func program(t *testing.T, content []byte, args ...string) []byte {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("the program xz is missing")
	}
	cmd := exec.Command("xz", args...)
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

func TestRoundTrip(t *testing.T) {
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			file := compressed(t, content)
			require.Equal(t, file, compressed(t, content), "the same bytes again")
			r, err := NewReader(bytes.NewReader(file))
			require.NoError(t, err)
			require.NoError(t, iotest.TestReader(r, content))
			require.True(t, bytes.Equal(content, program(t, file, "-dc")), "the program xz reads it")
		})
	}
}

func TestFilesOfXz(t *testing.T) {
	for name, content := range contents {
		for _, args := range []string{"-9", "-0", "-C none", "-C crc32", "-C sha256", "--block-size=10MiB -T1"} {
			t.Run(name+" "+args, func(t *testing.T) {
				file := program(t, content, strings.Fields(args+" -c")...)
				if len(content) == 0 {
					_, err := decompressed(file)
					require.ErrorIs(t, err, ErrUnsupported, "xz writes no block for no content")
					return
				}
				got, err := decompressed(file)
				require.NoError(t, err)
				require.True(t, bytes.Equal(content, got))
			})
		}
	}
}

func TestUnsupported(t *testing.T) {
	content := contents["text"]
	for args, want := range map[string]string{
		"--block-size=100KiB -T1":          "several blocks",
		"--x86 --lzma2":                    "several filters",
		"--lzma2=dict=96MiB":               "larger than 64 MiB",
		"--format=lzma":                    "no xz header",
		"--delta=dist=1 --lzma2=dict=1MiB": "several filters",
	} {
		_, err := decompressed(program(t, content, strings.Fields(args+" -c")...))
		require.ErrorContains(t, err, want, args)
	}
}

// A file that is cut off or changed gives an error, and never other content. Only the
// compressed size of a chunk may be larger than what is used of it.
func TestDamaged(t *testing.T) {
	content := append(contents["text"][:3000:3000], noise(500)...)
	file := compressed(t, content)
	step := 1
	if testing.Short() {
		step = 7 // each try clears a dictionary
	}
	for cut := 0; cut < len(file); cut += step {
		_, err := decompressed(file[:cut])
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, cut)
	}
	unnoticed := 0
	for i := 0; i < len(file); i += step {
		bad := bytes.Clone(file)
		bad[i] ^= 1 << (i % 8)
		if got, err := decompressed(bad); err == nil {
			require.Equal(t, content, got, "byte %d", i)
			unnoticed++
		}
	}
	require.LessOrEqual(t, unnoticed, 2, "the bits of the compressed size")
	_, err := decompressed(append(bytes.Clone(file), 0))
	require.ErrorContains(t, err, "there is data after the end of the stream")
	_, err = decompressed(append(bytes.Clone(file), file...))
	require.ErrorContains(t, err, "there is data after the end of the stream")
}

// A header that asks for a large dictionary costs what the content fills of it.
func TestMemory(t *testing.T) {
	file := compressed(t, []byte("little"))
	const dictionaryAt = 12 + 4 // stream header, block header up to the properties
	require.EqualValues(t, lzma2, file[dictionaryAt-2])
	claim := func(bits byte) []byte {
		b := bytes.Clone(file)
		b[dictionaryAt] = bits
		head := b[12 : 12+(int(b[12])+1)*4]
		binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
		return b
	}
	got, err := decompressed(claim(28)) // 64 MiB
	require.NoError(t, err)
	require.Equal(t, "little", string(got))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for bits := byte(29); bits <= 40; bits++ {
		_, err = decompressed(claim(bits))
		require.ErrorIs(t, err, ErrUnsupported, bits)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	_, err = decompressed(claim(41))
	require.ErrorIs(t, err, errDamaged)
}

// FuzzReader reads any bytes: what it accepts, it compresses and reads again.
func FuzzReader(f *testing.F) {
	for name, content := range contents {
		if name != "noise" {
			f.Add(compressed(f, content[:min(len(content), 1000)]))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		const most = 8 << 20 // LZMA2 expands up to 7000 times
		content, err := io.ReadAll(io.LimitReader(r, most))
		if err != nil || len(content) == most {
			return
		}
		again, err := decompressed(compressed(t, content))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, again))
	})
}
