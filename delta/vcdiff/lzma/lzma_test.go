package lzma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func alloc(n int64) ([]byte, error) {
	if n > 1<<20 {
		return nil, errors.New("no room")
	}
	return make([]byte, n), nil
}

// block is the header of an xz stream with a 4 KiB dictionary.
func block() []byte {
	b := []byte{0xfd, '7', 'z', 'X', 'Z', 0, 0, 0}
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[6:]))
	h := []byte{2, 0, 0x21, 1, 0, 0, 0, 0}
	return append(b, binary.LittleEndian.AppendUint32(h, crc32.ChecksumIEEE(h))...)
}

// stored is a chunk that is not compressed.
func stored(control byte, data string) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{control}, uint16(len(data)-1)), data...)
}

func section(d *Decoder, b []byte, size int) ([]byte, error) {
	if err := d.Section(bytes.NewReader(b), int64(len(b)), int64(size)); err != nil {
		return nil, err
	}
	return io.ReadAll(iotest.HalfReader(d))
}

func TestStoredChunks(t *testing.T) {
	d := &Decoder{Alloc: alloc}
	got, err := section(d, append(block(), stored(1, "hello ")...), 6)
	require.NoError(t, err)
	require.Equal(t, "hello ", string(got))
	got, err = section(d, append(stored(2, "there, "), stored(2, "world")...), 12)
	require.NoError(t, err)
	require.Equal(t, "there, world", string(got))
	d.Reset()
	got, err = section(d, append(block(), stored(1, "again")...), 5)
	require.NoError(t, err)
	require.Equal(t, "again", string(got))
}

func TestRefused(t *testing.T) {
	flip := func(i int, v byte) []byte {
		b := append(block(), stored(1, "hello")...)
		b[i] ^= v
		return b
	}
	big := func() []byte {
		b := block()
		b[12+4] = 30
		binary.LittleEndian.PutUint32(b[20:], crc32.ChecksumIEEE(b[12:20]))
		return b
	}()
	for name, c := range map[string]struct {
		in  []byte
		err error
	}{
		"magic":            {flip(0, 1), ErrCorrupt},
		"header sum":       {flip(8, 1), ErrCorrupt},
		"block sum":        {flip(20, 1), ErrCorrupt},
		"block flags":      {flip(13, 1), ErrCorrupt},
		"dictionary":       {big, ErrDict},
		"no reset":         {append(block(), stored(2, "hello")...), ErrCorrupt},
		"chunk type":       {append(block(), stored(3, "hello")...), ErrCorrupt},
		"end":              {append(block(), 0, 0, 0), ErrCorrupt},
		"short":            {append(block(), stored(1, "hell")...), ErrCorrupt},
		"long":             {append(block(), stored(1, "hello!")...), ErrCorrupt},
		"left over":        {append(append(block(), stored(1, "hello")...), 0), ErrCorrupt},
		"no state":         {append(block(), 0xc0, 0, 4, 0, 9, 0), ErrCorrupt},
		"no dict":          {append(block(), 0xc0, 0, 4, 0, 9, 93), ErrCorrupt},
		"properties":       {append(block(), 0xe0, 0, 4, 0, 9, 225), ErrCorrupt},
		"properties lc lp": {append(block(), 0xe0, 0, 4, 0, 9, 8+9), ErrCorrupt},
		"range coder":      {append(block(), 0xe0, 0, 4, 0, 4, 93, 1, 0, 0, 0, 0), ErrCorrupt},
		"match first":      {append(block(), 0xe0, 0, 4, 0, 9, 93, 0, 255, 255, 255, 254, 0, 0, 0, 0, 0), ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Decoder{Alloc: alloc}
			_, err := section(d, c.in, 5)
			require.ErrorIs(t, err, c.err)
			require.Error(t, d.Section(bytes.NewReader(nil), 0, 1))
		})
	}
}

// xz gives what xz makes of data, up to the chunk that ends the block.
func xz(t testing.TB, data []byte, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath("xz")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing: xz (Debian package xz-utils)")
		}
		t.Skip("missing: xz (Debian package xz-utils)")
	}
	cmd := exec.Command(path, append([]string{"-c", "--check=none", "-T1"}, args...)...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	require.NoError(t, err)
	return out[:chunks(out)]
}

// chunks gives where the last chunk of a whole xz stream ends.
func chunks(b []byte) int {
	i := 12 + (int(b[12])+1)*4
	for b[i] != 0 {
		switch c := b[i]; {
		case c >= 0xc0:
			i += 6 + int(binary.BigEndian.Uint16(b[i+3:])) + 1
		case c >= 0x80:
			i += 5 + int(binary.BigEndian.Uint16(b[i+3:])) + 1
		default:
			i += 3 + int(binary.BigEndian.Uint16(b[i+1:])) + 1
		}
	}
	return i
}

func samples(t testing.TB) map[string][]byte {
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	noise := make([]byte, 300<<10)
	rand.New(rand.NewSource(7)).Read(noise)
	text := bytes.Repeat([]byte("the same again and again, "), 20000)
	return map[string][]byte{
		"program": self[:min(len(self), 1<<20)],
		"noise":   noise,
		"text":    text,
		"zeros":   make([]byte, 3<<20),
		"mixed":   bytes.Join([][]byte{self[:100000], noise[:200000], text, noise[:70000], self[:150000]}, nil),
		"short":   []byte("x"),
	}
}

func TestAgainstXz(t *testing.T) {
	for name, data := range samples(t) {
		for _, args := range [][]string{
			{"-0"}, {"--lzma2=preset=6,dict=1MiB"}, {"--lzma2=dict=4KiB"}, {"--lzma2=dict=96KiB,lc=0,lp=2,pb=0"},
			{"--lzma2=dict=1MiB,lc=4,lp=0,pb=4"}, {"--lzma2=dict=1MiB,lc=1,lp=3,pb=1,nice=273"},
		} {
			if testing.Short() && args[0] != "-0" {
				continue
			}
			t.Run(name+args[0], func(t *testing.T) {
				in := xz(t, data, args...)
				d := &Decoder{Alloc: alloc}
				got, err := section(d, in, len(data))
				require.NoError(t, err)
				require.True(t, bytes.Equal(data, got))
				// And anything that is cut off or has a bit flipped ends.
				for i := len(in) - 1; i > 0; i -= 1 + len(in)/3 {
					d.Reset()
					_, err := section(d, in[:i], len(data))
					require.ErrorContains(t, err, "damaged lzma data")
					d.Reset()
					bad := bytes.Clone(in)
					bad[i] ^= 1
					if got, err := section(d, bad, len(data)); err == nil {
						require.Len(t, got, len(data))
					}
				}
			})
		}
	}
}

func FuzzDecoder(f *testing.F) {
	for _, data := range [][]byte{[]byte("hello, hello, hello"), bytes.Repeat([]byte("abcab"), 2000)} {
		f.Add(xz(f, data, "--lzma2=dict=4KiB"), len(data))
		f.Add(xz(f, data, "--lzma2=dict=8KiB,lc=0,lp=3,pb=0"), len(data))
	}
	f.Add(append(append(block(), stored(1, "hello")...), stored(2, "!")...), 6)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size > 1<<20 {
			return
		}
		d := &Decoder{Alloc: alloc}
		got, err := section(d, b, size)
		if err == nil && len(got) != size {
			t.Fatalf("%d of %d bytes", len(got), size)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrDict) {
			t.Fatalf("error without a type: %v", err)
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	for name, data := range samples(b) {
		in := xz(b, data, "--lzma2=preset=6,dict=256KiB")
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			d := &Decoder{Alloc: alloc}
			for b.Loop() {
				d.Reset()
				if err := d.Section(bytes.NewReader(in), int64(len(in)), int64(len(data))); err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
