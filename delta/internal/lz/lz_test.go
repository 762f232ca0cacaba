package lz_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
)

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

func prose(seed int64, n int) []byte {
	r := rand.New(rand.NewSource(seed))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%d lines of %c; ", r.Intn(50), 'a'+r.Intn(26))
	}
	return b.Bytes()[:n]
}

// file is one file in bulk; its bytes are of the class.
type file struct {
	b     []byte
	class uint32
}

// encode codes files; after each of those in flush a part ends.
func encode(files []file, flush func(i int) bool) [][]byte {
	return encodeWith(parse.New(parse.Thorough, lz.Window, 0), files, flush)
}

func encodeWith(e *parse.Encoder, files []file, flush func(i int) bool) (parts [][]byte) {
	for i, f := range files {
		e.Align()
		for b := f.b; len(b) > 0; {
			n := min(len(b), lz.MaxPiece)
			e.Add(b[:n], f.class)
			b = b[n:]
		}
		if flush(i) || i == len(files)-1 {
			parts = append(parts, bytes.Clone(e.Flush()))
		}
	}
	return parts
}

// decode decodes them, and returns an error if one does not come back.
func decode(files []file, flush func(i int) bool, parts [][]byte) error {
	return decodeWith(new(lz.Decoder), files, flush, parts)
}

func decodeWith(d *lz.Decoder, files []file, flush func(i int) bool, parts [][]byte) error {
	begun := false
	for i, f := range files {
		if !begun && len(parts) > 0 && len(f.b) > 0 {
			if err := d.Begin(bytes.NewReader(parts[0])); err != nil {
				return err
			}
			begun = true
		}
		d.Align()
		got := make([]byte, lz.MaxPiece)
		for b := f.b; len(b) > 0; {
			n := min(len(b), lz.MaxPiece)
			if err := d.Read(got[:n], f.class); err != nil {
				return err
			}
			if !bytes.Equal(b[:n], got[:n]) {
				return fmt.Errorf("file %d is not what it was", i)
			}
			b = b[n:]
		}
		if flush(i) {
			parts, begun = parts[1:], false
		}
	}
	return nil
}

// sums returns an encoder whose bytes lz.Sums predicts.
func sums(effort parse.Effort, window int) *parse.Encoder {
	e := parse.New(effort, window, 0)
	e.Sums()
	return e
}

// withSums returns its decoder.
func withSums() *lz.Decoder {
	d := new(lz.Decoder)
	d.Sums()
	return d
}

func each(int) bool     { return true }
func atEnd(int) bool    { return false }
func second(i int) bool { return i%2 == 1 }

// What is stored may end with zeros, as the files of programs do.
func TestStoredZeros(t *testing.T) {
	for _, zeros := range []int{0, 1, 40, 47, 48, 49, 50, 51, 52, 53, 60, 96, 97, 100, 150, 5000, 100_000} {
		for _, before := range [][]byte{nil, {1}, prose(1, 1000)} {
			files := []file{{b: append(bytes.Clone(before), make([]byte, zeros)...)}, {b: []byte("next")}}
			for _, flush := range []func(int) bool{each, atEnd} {
				parts := encodeWith(parse.New(parse.None, lz.Window, 0), files, flush)
				require.NoError(t, decode(files, flush, parts), "%d zeros after %d bytes", zeros, len(before))
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	text := prose(1, 100_000)
	far := func(n int) []byte { // the same bytes, n bytes apart
		return append(append(bytes.Clone(text[:2000]), make([]byte, n-2000)...), text[:2000]...)
	}
	for name, files := range map[string][]file{
		"empty":             {{}},
		"one byte":          {{b: []byte{7}}},
		"two equal bytes":   {{b: []byte{7, 7}}},
		"three bytes":       {{b: []byte("abc")}},
		"zeros":             {{b: make([]byte, 200_000)}},
		"a short period":    {{b: bytes.Repeat([]byte("abcde"), 50_000)}},
		"a long period":     {{b: bytes.Repeat(text[:5000], 30)}},
		"prose":             {{b: text}},
		"noise":             {{b: noise(1, 150_000)}},
		"noise twice":       {{b: noise(1, 70_000)}, {b: noise(1, 70_000)}},
		"classes":           {{b: text, class: 3}, {b: text, class: 7}, {b: noise(2, 5000), class: 1}},
		"prose, then noise": {{b: append(bytes.Clone(text), noise(3, 100_000)...)}, {b: text}},
		"near the window":   {{b: far(lz.Window - 1)}},
		"at the window":     {{b: far(lz.Window)}},
		"past the window":   {{b: far(lz.Window + 1)}},
		"twice the window":  {{b: far(2*lz.Window + 77)}, {b: text}},
		"many small":        {{b: text[:5]}, {b: text[5:6]}, {}, {b: text[:17]}, {b: text[:300]}, {b: text[100:400]}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && len(files[0].b) > lz.Window && name != "at the window" {
				t.Skip("it takes a second")
			}
			for _, flush := range []func(int) bool{each, atEnd, second} {
				parts := encode(files, flush)
				require.NoError(t, decode(files, flush, parts))
				require.NoError(t, decodeWith(withSums(), files, flush, encodeWith(sums(parse.Thorough, lz.Window), files, flush)))
				if len(files[0].b) > lz.Window {
					break
				}
			}
		})
	}
}

// What costs is about what is new.
func TestSizes(t *testing.T) {
	size := func(files ...file) (n int) {
		for _, p := range encode(files, atEnd) {
			n += len(p)
		}
		return n
	}
	random := noise(1, 100_000)
	require.Less(t, size(file{b: random}), len(random)+16, "stored")
	require.Less(t, size(file{b: random}, file{b: random}), len(random)+200, "the second is a copy")
	require.Less(t, size(file{b: make([]byte, 1<<20)}), 700)
	require.Less(t, size(file{b: prose(1, 100_000)}), 27_000)
}

// With less effort, the result is hardly larger, and decodes as well.
func TestQuick(t *testing.T) {
	text := prose(1, 60_000)
	for name, files := range map[string][]file{
		"prose":         {{b: text}},
		"a long period": {{b: bytes.Repeat(text[:5000], 10)}},
		"noise twice":   {{b: noise(1, 30_000)}, {b: noise(1, 30_000)}},
		"zeros":         {{b: make([]byte, 100_000)}},
		"classes":       {{b: text, class: 3}, {b: text[:9000], class: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			thorough := encode(files, atEnd)
			for effort, most := range map[parse.Effort]int{parse.Quick: 105, parse.Swift: 110} {
				for _, size := range []int64{0, 8 << 20} { // which the size of the finder's tables depends on
					quick := encodeWith(parse.New(effort, lz.Window, size), files, atEnd)
					require.NoError(t, decode(files, atEnd, quick))
					require.LessOrEqual(t, len(quick[0]), len(thorough[0])*most/100+16)
				}
			}
		})
	}
}

// Sums decode to the same bytes, of hardly more.
func TestSums(t *testing.T) {
	text := prose(1, 60_000)
	for name, files := range map[string][]file{
		"prose":   {{b: text}},
		"zeros":   {{b: append(make([]byte, 100_000), text...)}},
		"classes": {{b: text, class: 3}, {b: text[:9000], class: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			made, mixed := encodeWith(sums(parse.Thorough, lz.Window), files, atEnd), encode(files, atEnd)
			require.NoError(t, decodeWith(withSums(), files, atEnd, made))
			require.LessOrEqual(t, len(made[0]), len(mixed[0])*105/100+16)
			require.NotEqual(t, mixed, made)
		})
	}
}

// A part that is cut short is refused, or gives other bytes. It never gives more than
// was asked for, and it never takes long.
// Bytes that are shown are not coded, and those that follow are matched with them, at the
// place modulo 4 that is asked for; also where the window begins again, and in the file.
func TestShow(t *testing.T) {
	for name, shows := range map[string]int{"few": 40, "many": 1500} {
		t.Run(name, func(t *testing.T) {
			if shows > 1000 && testing.Short() {
				t.Skip("it takes a second")
			}
			const size, most = 3001, 5 << 20
			old := func(i int) []byte { return noise(int64(i), size) }
			// Every new piece is what was shown last, and the fourth one also what was
			// shown first, with other bytes in it.
			piece := func(i int) []byte {
				b := old(i)[10:2900]
				if i%4 == 3 {
					b = old(i - 3)[10:2900]
				}
				b[1000]++
				return b
			}
			e := parse.New(parse.Quick, lz.FarWindow, most)
			for i := range shows {
				e.Show(old(i), uint32(i))
				if i%100 == 3 || i == shows-1 {
					e.Show(nil, uint32(i))
					e.Add(piece(i), 3)
				}
			}
			coded := bytes.Clone(e.Flush())
			require.Less(t, len(coded), shows/100*40+80)
			var d lz.Decoder
			f := &memFile{}
			d.Extend(func() (lz.File, error) { return f, nil }, lz.FileSize(most))
			begun := false
			for i := range shows {
				require.NoError(t, d.Show(old(i), uint32(i)))
				if i%100 != 3 && i != shows-1 {
					continue
				}
				if !begun {
					require.NoError(t, d.Begin(bytes.NewReader(coded)))
					begun = true
				}
				got := make([]byte, len(piece(i)))
				require.NoError(t, d.Show(nil, uint32(i)))
				require.NoError(t, d.Read(got, 3))
				require.Equal(t, piece(i), got, i)
			}
			require.Equal(t, shows > 1000, len(f.b) > 0)
		})
	}
}

func TestCutShort(t *testing.T) {
	files := []file{{b: prose(1, 20_000)}}
	p := encode(files, atEnd)[0]
	for n := 0; n < len(p)-4; n += 1 + n/7 {
		require.Error(t, decode(files, atEnd, [][]byte{p[:n]}), n)
	}
}

// The decoder takes no byte from its source but those of the part.
func TestReadError(t *testing.T) {
	var d lz.Decoder
	want := io.ErrClosedPipe
	r, w := io.Pipe()
	require.NoError(t, w.CloseWithError(want))
	require.ErrorIs(t, d.Begin(r), want)
	var fresh lz.Decoder
	require.ErrorIs(t, fresh.Read(make([]byte, 1), 0), lz.ErrDamaged, "no part was begun")
}

// FuzzDecode gives the decoder anything. It ends, and is within its memory.
func FuzzDecode(f *testing.F) {
	f.Add(encodeWith(sums(parse.Quick, lz.Window), []file{{b: prose(2, 3000)}}, atEnd)[0], uint16(3000), uint8(128))
	f.Fuzz(func(t *testing.T, in []byte, n uint16, class uint8) {
		var d lz.Decoder
		if class >= 128 {
			d.Sums()
		}
		require.NoError(t, d.Begin(bytes.NewReader(in)))
		b := make([]byte, n)
		for range 3 {
			if err := d.Read(b, uint32(class%lz.NumClasses)); err != nil {
				require.ErrorIs(t, err, lz.ErrDamaged)
				return
			}
			d.Align()
		}
	})
}

// FuzzRoundTrip codes anything, as two files.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("abcabcabcd"), []byte("abcd"), uint8(2))
	f.Add(make([]byte, 1000), []byte{}, uint8(0))
	f.Add([]byte("abcabcabcd"), []byte("abcd"), uint8(128))
	f.Fuzz(func(t *testing.T, a, b []byte, class uint8) {
		files := []file{{b: a, class: uint32(class % lz.NumClasses)}, {b: b}}
		if class < 128 {
			require.NoError(t, decode(files, each, encode(files, each)))
			return
		}
		require.NoError(t, decodeWith(withSums(), files, each, encodeWith(sums(parse.Thorough, lz.Window), files, each)))
	})
}

func BenchmarkDecode(b *testing.B) {
	files := []file{{b: prose(1, 1<<20)}}
	for name, c := range map[string]struct {
		encoder *parse.Encoder
		decoder func() *lz.Decoder
	}{
		"mixed": {parse.New(parse.Thorough, lz.Window, 0), func() *lz.Decoder { return new(lz.Decoder) }},
		"sums":  {sums(parse.Thorough, lz.Window), withSums},
	} {
		b.Run(name, func(b *testing.B) {
			parts := encodeWith(c.encoder, files, atEnd)
			b.SetBytes(int64(len(files[0].b)))
			for b.Loop() {
				require.NoError(b, decodeWith(c.decoder(), files, atEnd, parts))
			}
		})
	}
}
