package vcdiff

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// skip skips a test for what is missing; in CI nothing may be missing.
func skip(t testing.TB, missing string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing: %s", missing)
	}
	t.Skipf("missing: %s", missing)
}

// xdelta3 gives the path of the real xdelta3.
func xdelta3(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("xdelta3")
	if err != nil {
		skip(t, "xdelta3 (Debian package xdelta3)")
	}
	return path
}

func vector(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return b
}

func decode(src, delta []byte, opts Options) ([]byte, error) {
	r, err := NewReader(context.Background(), bytes.NewReader(src), int64(len(src)), bytes.NewReader(delta), opts)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return out, err
}

// vectors are the deltas that testdata/make.sh makes.
var vectors = []struct {
	name     string
	old, new string
	packed   Secondary // how sections are compressed
	windows  int64
	app      string
}{
	{"default", "old", "new", LZMA, 1, "new//old/"},
	{"none", "old", "new", NoSecondary, 1, "new//old/"},
	{"djw", "old", "new", DJW, 1, "new//old/"},
	{"fgk", "old", "new", FGK, 1, "new//old/"},
	{"lzma9", "old", "new", LZMA, 1, "new//old/"},
	{"nosum", "old", "new", LZMA, 1, "new//old/"},
	{"windows", "old", "new", LZMA, 2, "new//old/"},
	{"windows-none", "old", "new", NoSecondary, 2, "new//old/"},
	{"noapp", "old", "new", LZMA, 1, ""},
	{"app", "old", "new", LZMA, 1, "note"},
	{"nosource", "empty", "new", LZMA, 1, "new/"},
	{"empty-new", "old", "empty", NoSecondary, 1, "empty//old/"},
	{"empty-old", "empty", "new", LZMA, 1, "new//empty/"},
	{"empty-both", "empty", "empty", NoSecondary, 1, "empty//empty/"},
	{"same", "old", "old", NoSecondary, 1, "old//old/"},
	{"nosmall", "old", "new", NoSecondary, 1, "new//old/"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			old, want, delta := vector(t, v.old), vector(t, v.new), vector(t, v.name+".vcdiff")

			info, err := Scan(iotest.HalfReader(bytes.NewReader(delta)))
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), info.Target)
			require.Equal(t, v.windows, info.Windows)
			require.Equal(t, v.app, string(info.App))
			require.Equal(t, v.packed != NoSecondary, info.Packed)
			require.LessOrEqual(t, info.SourceEnd, int64(len(old)))
			require.Equal(t, v.name == "nosum", info.Unsummed)

			var opts Options
			if v.packed == DJW || v.packed == FGK {
				_, err := decode(old, delta, opts)
				var serr *SecondaryError
				require.ErrorAs(t, err, &serr)
				require.Equal(t, v.packed, serr.Secondary)
				require.ErrorIs(t, err, ErrUnsupported)
				require.ErrorContains(t, err, v.packed.String())
				require.ErrorContains(t, err, "Debian package xdelta3")
				opts.Xdelta3 = xdelta3(t)
			}
			got, err := decode(old, delta, opts)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))

			// By bytes, and by WriteTo.
			r, err := NewReader(context.Background(), bytes.NewReader(old), int64(len(old)),
				iotest.OneByteReader(bytes.NewReader(delta)), opts)
			require.NoError(t, err)
			require.Equal(t, v.app, string(r.Header().App))
			require.NoError(t, iotest.TestReader(struct{ io.Reader }{r}, want))
			require.NoError(t, r.Reset(context.Background(), bytes.NewReader(old), int64(len(old)), bytes.NewReader(delta)))
			var buf bytes.Buffer
			n, err := r.WriteTo(&buf)
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), n)
			require.True(t, bytes.Equal(want, buf.Bytes()))
			require.NoError(t, r.Close())
			_, err = r.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

func TestVectorsAreReproducible(t *testing.T) {
	out, err := exec.Command(xdelta3(t), "-V").CombinedOutput()
	require.NoError(t, err)
	if !strings.Contains(string(out), "3.0.11") {
		skip(t, "xdelta3 of version 3.0.11")
	}
	dir := t.TempDir()
	out, err = exec.Command("testdata/make.sh", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, v := range vectors {
		got, err := os.ReadFile(filepath.Join(dir, v.name+".vcdiff"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(vector(t, v.name+".vcdiff"), got), v.name)
	}
}

func TestNames(t *testing.T) {
	n, ok := Header{App: []byte("new.gz/G/old.gz/G")}.Names()
	require.True(t, ok)
	require.Equal(t, Names{Target: "new.gz", TargetCompressed: "G", Source: "old.gz", SourceCompressed: "G"}, n)
	_, ok = Header{App: []byte("note")}.Names()
	require.False(t, ok)
}

// Every prefix of a delta is refused, or it ends between two windows and
// gives the windows before.
func TestCutOff(t *testing.T) {
	old, want := vector(t, "old"), vector(t, "new")
	for _, name := range []string{"windows", "none", "empty-new"} {
		delta := vector(t, name+".vcdiff")
		step := 1
		if testing.Short() {
			step = 4
		}
		for n := 0; n < len(delta); n += step {
			got, err := decode(old, delta[:n], Options{})
			_, serr := Scan(bytes.NewReader(delta[:n]))
			if err == nil {
				require.Less(t, len(got), max(len(want), 1), "%s cut at %d", name, n)
				require.NoError(t, serr)
				continue
			}
			require.ErrorIs(t, err, ErrCorrupt, "%s cut at %d", name, n)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s cut at %d", name, n)
			require.ErrorIs(t, serr, ErrCorrupt)
		}
	}
}

// Every flipped bit is noticed where it can be: it changes the header's
// names, or it is refused with one of the package's errors.
func TestFlippedBits(t *testing.T) {
	old, want := vector(t, "old"), vector(t, "new")
	for _, name := range []string{"default", "none"} {
		delta := vector(t, name+".vcdiff")
		app := bytes.Index(delta, []byte("new//old/"))
		var r Reader // Reset after every kind of error
		for i := range delta {
			for bit := range 8 {
				if testing.Short() && (i+bit)%32 != 0 {
					continue
				}
				d := bytes.Clone(delta)
				d[i] ^= 1 << bit
				err := r.Reset(context.Background(), bytes.NewReader(old), int64(len(old)), bytes.NewReader(d))
				var got []byte
				if err == nil {
					got, err = io.ReadAll(&r)
				}
				if err != nil {
					require.True(t, typed(err), "%s byte %d bit %d: %v", name, i, bit, err)
					continue
				}
				if i >= app && i < app+9 {
					continue
				}
				// A flip may leave what is decoded as it is (a copy from
				// another place with the same content, a checksum flag), but
				// never lets something else pass that has a checksum.
				if !bytes.Equal(want, got) {
					info, err := Scan(bytes.NewReader(d))
					require.NoError(t, err)
					require.True(t, info.Unsummed, "%s byte %d bit %d", name, i, bit)
				}
			}
		}
	}
}

func typed(err error) bool {
	for _, e := range []error{ErrCorrupt, ErrChecksum, ErrSource, ErrTooLarge, ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func TestWrongOldFile(t *testing.T) {
	old, delta := vector(t, "old"), vector(t, "default.vcdiff")
	other := bytes.Clone(old)
	for i := range other {
		other[i] ^= 0x20
	}
	_, err := decode(other, delta, Options{})
	require.ErrorIs(t, err, ErrChecksum)
	_, err = decode(old[:100], delta, Options{})
	require.ErrorIs(t, err, ErrSource)
}

// failing is an old file that cannot be read.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReadErrorsArePassedOn(t *testing.T) {
	old, delta := vector(t, "old"), vector(t, "default.vcdiff")
	broken := errors.New("broken disk")
	r, err := NewReader(context.Background(), failing{broken}, int64(len(old)), bytes.NewReader(delta), Options{})
	require.NoError(t, err)
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, broken)
	require.False(t, typed(err))
	_, again := r.Read(make([]byte, 1))
	require.Equal(t, err, again)

	for _, n := range []int{0, 4, 40, 1000} {
		in := io.MultiReader(bytes.NewReader(delta[:n]), iotest.ErrReader(broken))
		r, err := NewReader(context.Background(), bytes.NewReader(old), int64(len(old)), in, Options{})
		if err == nil {
			_, err = io.ReadAll(r)
		}
		require.ErrorIs(t, err, broken, "after %d bytes", n)
		require.False(t, typed(err))
	}
}

func TestContextEndsADecode(t *testing.T) {
	old, delta := vector(t, "old"), vector(t, "windows.vcdiff")
	ctx, cancel := context.WithCancel(context.Background())
	r, err := NewReader(ctx, bytes.NewReader(old), int64(len(old)), bytes.NewReader(delta), Options{})
	require.NoError(t, err)
	_, err = io.ReadFull(r, make([]byte, 16384))
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, context.Canceled)
}

func TestLimits(t *testing.T) {
	old, delta := vector(t, "old"), vector(t, "windows.vcdiff")
	for _, opts := range []Options{
		{MaxWindow: 16383},
		{MaxTarget: int64(len(vector(t, "new"))) - 1},
		{MaxMemory: 16383},
		{MaxMemory: 100 << 10}, // the window, but not LZMA's dictionary
	} {
		_, err := decode(old, delta, opts)
		require.ErrorIs(t, err, ErrTooLarge, "%+v", opts)
	}
	_, err := decode(old, delta, Options{
		MaxWindow: 16384, MaxTarget: int64(len(vector(t, "new"))), MaxMemory: 16384*2 + 3<<18,
	})
	require.NoError(t, err)
}

// Deltas written by hand: what xdelta3 does not write.

func sized(v int64) []byte {
	b := []byte{byte(v & 0x7f)}
	for v >>= 7; v > 0; v >>= 7 {
		b = append([]byte{byte(v)&0x7f | 0x80}, b...)
	}
	return b
}

func header(indicator byte, rest ...byte) []byte {
	return append([]byte{0xd6, 0xc3, 0xc4, 0, indicator}, rest...)
}

func win(indicator byte, srcLen, srcPos, target int64, compressed byte, data, inst, addr []byte) []byte {
	body := append(sized(target), compressed)
	for _, s := range [][]byte{data, inst, addr} {
		body = append(body, sized(int64(len(s)))...)
	}
	if indicator&winAdler != 0 {
		body = append(body, 0, 0, 0, 0)
	}
	for _, s := range [][]byte{data, inst, addr} {
		body = append(body, s...)
	}
	b := []byte{indicator}
	if indicator&(winSource|winTarget) != 0 {
		b = append(b, sized(srcLen)...)
		b = append(b, sized(srcPos)...)
	}
	return append(append(b, sized(int64(len(body)))...), body...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestRFCExample(t *testing.T) {
	// RFC 3284 section 3: COPY 4,0; ADD 4,wxyz; COPY 4,4; COPY 12,24; RUN 4,z.
	delta := join(header(0), win(winSource, 16, 0, 28, 0, []byte("wxyzz"),
		[]byte{19 + 1, 1 + 4, 19 + 1, 19, 12, 0, 4}, []byte{0, 4, 24}))
	got, err := decode([]byte("abcdefghijklmnop"), delta, Options{})
	require.NoError(t, err)
	require.Equal(t, "abcdwxyzefghefghefghefghzzzz", string(got))
}

func TestCopyRunsFromSourceIntoTarget(t *testing.T) {
	delta := join(header(0), win(winSource, 4, 2, 12, 0, nil, []byte{19, 12}, []byte{1}))
	got, err := decode([]byte("abcdefgh"), delta, Options{})
	require.NoError(t, err)
	require.Equal(t, "defdefdefdef", string(got))
}

func TestAddressModes(t *testing.T) {
	src := make([]byte, 1000)
	rand.New(rand.NewSource(1)).Read(src)
	// SELF 300, HERE-1000, NEAR(0)+5 = 305, SAME(1)[44] = 300.
	delta := join(header(0), win(winSource, 1000, 0, 16, 0, nil,
		[]byte{20, 20 + 16, 20 + 32, 20 + 16*7}, join(sized(300), sized(1000), sized(5), []byte{300 - 256})))
	want := join(src[300:304], src[4:8], src[305:309], src[300:304])
	got, err := decode(src, delta, Options{})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestRefused(t *testing.T) {
	huge := sized(1<<62 + 1)
	cases := []struct {
		name  string
		delta []byte
		err   error
		says  string
	}{
		{"nothing", nil, ErrCorrupt, "cut off after 0 bytes"},
		{"magic", []byte("PK\x03\x04....."), ErrCorrupt, "no VCDIFF header"},
		{"version", []byte{0xd6, 0xc3, 0xc4, 'S', 0}, ErrUnsupported, "version 0x53"},
		{"code table", header(hdrCodeTable), ErrUnsupported, "custom code table"},
		{"secondary", header(hdrSecondary, 7), ErrUnsupported, "number 7"},
		{"header bits", header(8), ErrUnsupported, "indicator 0x8"},
		{"app header", header(hdrApp, huge...), ErrTooLarge, "application header"},
		{"window bits", join(header(0), []byte{8}), ErrCorrupt, "indicator 0x8"},
		{"target window", join(header(0), win(winTarget, 1, 0, 1, 0, nil, nil, nil)), ErrUnsupported, "VCD_TARGET"},
		{"integer", join(header(0), []byte{1}, bytes.Repeat([]byte{0x80}, 11)), ErrCorrupt, "integer too long"},
		{"integer size", join(header(0), []byte{1}, bytes.Repeat([]byte{0xff}, 10)), ErrCorrupt, "integer too large"},
		{"source overflow", join(header(0), []byte{1}, huge, huge, []byte{0}), ErrCorrupt, "source segment overflows"},
		{"window overflow", join(header(0), []byte{1}, huge, []byte{0, 20}, huge), ErrCorrupt, "window overflows"},
		{"window size", join(header(0), win(0, 0, 0, 1<<40, 0, nil, nil, nil)), ErrTooLarge, "window of"},
		{"lengths", join(header(0), []byte{0, 6, 1, 0, 1, 1, 0, 'x', 2}), ErrCorrupt, "lengths disagree"},
		{"section sizes", join(header(0), []byte{0, 60, 1, 0}, huge, huge, huge), ErrCorrupt, "lengths disagree"},
		{"no compressor", join(header(0), win(0, 0, 0, 1, 1, []byte{1, 1}, nil, nil)), ErrCorrupt, "without a compressor"},
		{"data size", join(header(0), win(0, 0, 0, 1, 0, []byte("ab"), []byte{2, 2}, nil)), ErrCorrupt, "more data"},
		{"short", join(header(0), win(0, 0, 0, 2, 0, []byte("a"), []byte{2}, nil)), ErrCorrupt, "give 1 of 2"},
		{"add", join(header(0), win(0, 0, 0, 3, 0, []byte("a"), []byte{3}, nil)), ErrCorrupt, "data section ends"},
		{"add too long", join(header(0), win(0, 0, 0, 3, 0, []byte("a"), []byte{1, 4}, nil)), ErrCorrupt, "too long"},
		{"run", join(header(0), win(0, 0, 0, 3, 0, nil, []byte{0, 3}, nil)), ErrCorrupt, "data section ends"},
		{"run too long", join(header(0), win(0, 0, 0, 3, 0, []byte("ab"), []byte{0, 3, 2}, nil)), ErrCorrupt, "too long"},
		{"no size", join(header(0), win(0, 0, 0, 3, 0, []byte("a"), []byte{0}, nil)), ErrCorrupt, "without a size"},
		{"endless size", join(header(0), win(0, 0, 0, 30, 0, []byte("a"), join([]byte{0}, bytes.Repeat([]byte{0x80}, 20)), nil)), ErrCorrupt, "without a size"},
		{"copy over data", join(header(0), win(winSource, 8, 0, 5, 0, []byte("a"), []byte{19, 5}, []byte{0})), ErrCorrupt, "too long"},
		{"copy nothing", join(header(0), win(0, 0, 0, 4, 0, nil, []byte{20}, []byte{0})), ErrCorrupt, "address 0 of 0"},
		{"copy ahead", join(header(0), win(winSource, 8, 0, 4, 0, nil, []byte{20}, []byte{8})), ErrCorrupt, "address 8 of 8"},
		{"copy before", join(header(0), win(winSource, 8, 0, 4, 0, nil, []byte{20 + 16}, []byte{9})), ErrCorrupt, "address -1 of 8"},
		{"copy near overflow", join(header(0), win(winSource, 8, 0, 8, 0, nil, []byte{20, 20 + 32}, join([]byte{4}, sized(1<<63-1)))), ErrCorrupt, "copy address -"},
		{"no address", join(header(0), win(winSource, 8, 0, 4, 0, nil, []byte{20}, nil)), ErrCorrupt, "address section ends"},
		{"addresses left", join(header(0), win(winSource, 8, 0, 4, 0, nil, []byte{20}, []byte{0, 0})), ErrCorrupt, "left over"},
		{"source end", join(header(0), win(winSource, 100, 0, 4, 0, nil, []byte{20}, []byte{20})), ErrSource, "4 bytes at 20 of 16"},
		{"checksum", join(header(0), win(winAdler, 0, 0, 1, 0, []byte("a"), []byte{2}, nil)), ErrChecksum, "instead of 00000000"},
		{"lzma", join(header(hdrSecondary, 2), win(0, 0, 0, 4, 1, join([]byte{4}, make([]byte, 40)), nil, nil)), ErrCorrupt, "no xz header"},
		{"lzma empty", join(header(hdrSecondary, 2), win(0, 0, 0, 4, 1, []byte{0}, nil, nil)), ErrCorrupt, "section sizes"},
		{"instructions", join(header(hdrSecondary, 2), win(0, 0, 0, 4, 2, nil, join(sized(1<<40), make([]byte, 40)), nil)), ErrTooLarge, "instructions"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := decode([]byte("abcdefghijklmnop"), c.delta, Options{})
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestXdelta3IsMissingOrFails(t *testing.T) {
	old, delta := vector(t, "old"), vector(t, "djw.vcdiff")
	_, err := decode(old, delta, Options{Xdelta3: "/nonexistent/xdelta3"})
	var serr *SecondaryError
	require.ErrorAs(t, err, &serr)
	require.ErrorIs(t, err, os.ErrNotExist)

	script := func(body string) string {
		path := filepath.Join(t.TempDir(), "xdelta3")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
		return path
	}
	_, err = decode(old, delta, Options{Xdelta3: script("echo it does not work >&2; exit 3\n")})
	require.ErrorAs(t, err, &serr)
	require.ErrorContains(t, err, "it does not work")

	// It gets no environment of ours, and one that hangs ends with the context.
	t.Setenv("XDELTA", "-S djw")
	ctx, cancel := context.WithCancel(context.Background())
	started := filepath.Join(t.TempDir(), "started")
	hang := script("printf %s \"$XDELTA\" >" + started + "; printf '\\326\\303\\304\\000\\000'; sleep 1000\n")
	r, err := NewReader(ctx, bytes.NewReader(old), int64(len(old)), bytes.NewReader(delta), Options{Xdelta3: hang})
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, context.Canceled)
	env, err := os.ReadFile(started)
	require.NoError(t, err)
	require.Empty(t, env)
}

func TestXdelta3CutOff(t *testing.T) {
	old, delta := vector(t, "old"), vector(t, "djw.vcdiff")
	opts := Options{Xdelta3: xdelta3(t)}
	for _, n := range []int{7, 20, 100, len(delta) - 1} {
		_, err := decode(old, delta[:n], opts)
		require.Error(t, err, "cut at %d", n)
		require.True(t, typed(err), "cut at %d: %v", n, err)
	}
	broken := errors.New("broken disk")
	in := io.MultiReader(bytes.NewReader(delta[:100]), iotest.ErrReader(broken))
	r, err := NewReader(context.Background(), bytes.NewReader(old), int64(len(old)), in, opts)
	if err == nil {
		_, err = io.ReadAll(r)
	}
	require.ErrorIs(t, err, broken)
}
