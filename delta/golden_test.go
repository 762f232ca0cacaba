package delta_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
	"github.com/mender-app/mender-app/delta/vcdiff"
)

// The golden deltas hold the format: a change of a model, a context or a
// constant makes other bytes, and what is out in the field can no longer be read.
// Version 1 is frozen: a golden delta is never renewed. A new feature comes with one of
// its own, which this writes, because only what is missing is written:
//
//	make golden
//
// testdata/golden/make made what goes in.
var update = flag.Bool("update", false, "write the golden deltas that are missing")

// golden is one delta, or two that follow one another, in testdata/golden.
type golden struct {
	name     string // of the delta
	in       string // directory of old.zst and new.zst
	kind     delta.Kind
	options  encoder.Options
	features []string // that it must list, beside those of every delta
	shared   bool     // the content that is new travels in a delta of its own
	slow     bool     // encoding it takes long
}

// plain is for deltas that were made before unwind tables, parts of addresses and parts of
// instructions were known.
var plain = encoder.Options{NoUnwind: true, NoApart: true, NoParts: true}

var goldens = []golden{
	{name: "elf-arm", in: "elf-arm", kind: delta.Tar, options: plain},
	{name: "elf-arm64", in: "elf-arm64", kind: delta.Tar, options: plain},
	{name: "elf-amd64", in: "elf-amd64", kind: delta.Tar, options: plain},
	{name: "go", in: "go", kind: delta.Tar, options: encoder.Options{NoParts: true}},
	{name: "gzip", in: "gzip", kind: delta.Tar, features: []string{"deflate1", "goflate1"}},
	{name: "zip", in: "zip", kind: delta.Tar, features: []string{"deflate1", "goflate1"}},
	{name: "md5sums", in: "md5sums", kind: delta.Tar},
	{name: "files", in: "files", kind: delta.Tar, options: plain},
	{name: "files-only", in: "files", kind: delta.Tar, options: encoder.Options{FilesOnly: true, NoUnwind: true}},
	{name: "blob", in: "elf-amd64", kind: delta.Blob, options: plain},
	{name: "bulk", in: bulkDir, kind: delta.Tar, options: plain},
	{name: "bulk-go", in: bulkGoDir, kind: delta.Tar},
	{name: "shared", in: "files", kind: delta.Tar, shared: true, options: plain},
	{name: "far", in: farDir, kind: delta.Tar, options: plain, features: []string{"far1"}},
	{name: "sums", in: bulkDir, kind: delta.Tar, options: encoder.Options{NoUnwind: true, Sums: true}, features: []string{"lz2"}},
	{name: "packed", in: bulkDir, kind: delta.Tar, options: encoder.Options{NoUnwind: true, ByteCost: 1}, features: []string{"zstd1"}},
	{name: "unwind", in: unwindDir, kind: delta.Tar, options: encoder.Options{NoApart: true, NoParts: true}, features: []string{"unwind1"}},
	{name: "apart", in: apartDir, kind: delta.Tar, options: apartOptions, features: []string{"elf2"}},
	{name: "shown", in: shownDir, kind: delta.Tar, options: shownOptions, features: []string{"elf2", "elf3"}},
	{name: "parts", in: partsDir, kind: delta.Tar, options: partsOptions, features: []string{"elf2", "elf4"}},
	{name: "large", in: largeDir, kind: delta.Blob, slow: true},
}

// contents reads what the deltas of a directory are made of.
func contents(t testing.TB, dir string) (old, new []byte) {
	read := func(name string, o ...zstd.DOption) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", "golden", dir, name))
		require.NoError(t, err)
		z, err := zstd.NewReader(nil, append(o, zstd.WithDecoderConcurrency(1))...)
		require.NoError(t, err)
		defer z.Close()
		out, err := z.DecodeAll(b, nil)
		require.NoError(t, err)
		return out
	}
	switch dir {
	case bulkDir:
		return bulkContents(t, "elf-arm", "elf-arm64", "elf-amd64")
	case bulkGoDir:
		return bulkContents(t, "go")
	case farDir:
		return farContents(t)
	case unwindDir:
		return unwindContents(t)
	case apartDir:
		return apartContents(t)
	case partsDir:
		return partsContents(t)
	case shownDir:
		return shownContents(t)
	case largeDir:
		return largeContents()
	}
	old = read("old.zst")
	return old, read("new.zst", zstd.WithDecoderDictRaw(1, old))
}

// bulkDir and bulkGoDir are no directories: what is new in some others makes files that
// are coded in bulk.
const (
	bulkDir   = "bulk"
	bulkGoDir = "bulk-go"
)

// farDir is none either: a library, then more zeros than the decoder holds in memory, then
// the library with some other bytes.
const farDir = "far"

func farContents(t testing.TB) (old, new []byte) {
	_, b := bulkContents(t, "elf-arm64")
	other := bytes.Clone(b)
	for at := 1001; at < len(other); at += 1 + at/2 {
		other[at] ^= 0x55
	}
	return makeTar(), makeTar(tarFile{name: "library", typ: '0', data: b},
		tarFile{name: "zeros", typ: '0', data: make([]byte, 4200<<10)}, tarFile{name: "other", typ: '0', data: other})
}

// unwindDir is none either: a library that is changed, and one that is new.
const unwindDir = "unwind"

func unwindContents(t testing.TB) (old, new []byte) {
	old, changed := contents(t, "elf-arm64")
	_, added := bulkContents(t, "elf-amd64")
	return old, makeTar(append(filesOf(t, changed), filesOf(t, added)...)...)
}

// filesOf reads the files of a tar.
func filesOf(t testing.TB, b []byte) (files []tarFile) {
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		files = append(files, tarFile{name: h.Name, typ: '0', data: b})
	}
}

// largeDir is none either: a file of more than one window, of which a part moves from one
// window to the other, and some bytes of each are new.
const largeDir = "large"

func largeContents() (old, new []byte) {
	const mib = 1 << 20
	old = noise(7, 34*mib)
	new = append(new, old[:mib]...)
	new = append(new, noise(8, 100)...)
	new = append(new, old[3*mib:33*mib]...)
	new = append(new, old[mib:3*mib]...)
	new = append(new, noise(9, 1000)...)
	new = append(new, old[33*mib:]...)
	for at := 4001; at < len(new); at += 5 * mib {
		new[at] ^= 0x55
	}
	return old, new
}

func bulkContents(t testing.TB, dirs ...string) (old, new []byte) {
	const size = 66 << 10 // too many bytes to be modelled
	var files []tarFile
	for _, dir := range dirs {
		_, b := contents(t, dir)
		for _, f := range filesOf(t, b) {
			f.name = dir + "/" + filepath.Base(f.name)
			f.data = append(f.data, make([]byte, max(0, size-len(f.data)))...)
			files = append(files, f)
		}
	}
	stored := tarFile{name: "noise", typ: '0', data: append(make([]byte, 64<<10), noise(1, 600)...)}
	return makeTar(), makeTar(append(files, stored)...)
}

func (g golden) file() string { return filepath.Join("testdata", "golden", g.name+".delta") }

func objectOf(kind delta.Kind, b []byte) delta.Object {
	return delta.Object{Digest: digest.Of(b), Size: int64(len(b)), Kind: kind, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b)), nil
	}}
}

func imageOf(name string, kind delta.Kind, b []byte) delta.Image {
	return delta.Image{Name: name, Objects: []delta.Object{objectOf(kind, b)}}
}

// pass is one delta of a golden one: what it is made from, and what it makes.
type pass struct {
	old []delta.Image
	new delta.Image
}

func (g golden) passes(t testing.TB) ([]pass, []byte) {
	old, new := contents(t, g.in)
	image := pass{[]delta.Image{imageOf("gold:1", g.kind, old)}, imageOf("gold:2", g.kind, new)}
	if !g.shared {
		return []pass{image}, new
	}
	// The shared content is what the pair of libraries has: of another directory.
	_, content := contents(t, "elf-amd64")
	base := delta.Image{Name: delta.SharedBase, Objects: image.old[0].Objects}
	made := imageOf(delta.SharedContent, delta.Tar, content)
	image.old = append(image.old, made)
	return []pass{{[]delta.Image{base}, made}, image}, new
}

// encoded is the golden delta as today's encoder makes it.
func (g golden) encoded(t testing.TB) []byte {
	var b bytes.Buffer
	passes, _ := g.passes(t)
	for _, p := range passes {
		rep, err := encoder.Encode(t.Context(), &b, p.old, p.new, g.options)
		require.NoError(t, err)
		require.Equal(t, append([]string{"elf1", "lz1"}, g.features...), rep.Header.Features)
	}
	return b.Bytes()
}

// A delta that was written before is decoded to the same bytes.
func TestGoldenDecode(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			if _, err := os.Stat(g.file()); *update && os.IsNotExist(err) {
				require.NoError(t, os.WriteFile(g.file(), g.encoded(t), 0o644))
			}
			f, err := os.Open(g.file())
			require.NoError(t, err)
			defer f.Close()
			in := bufio.NewReaderSize(f, 64<<10)
			passes, want := g.passes(t)
			store := tarstore.New()
			add := func(o delta.Object) {
				r, err := o.Open()
				require.NoError(t, err)
				b, err := io.ReadAll(r)
				require.NoError(t, err)
				require.NoError(t, store.Add(o.Digest, o.Kind, bytes.NewReader(b), o.Size))
			}
			for _, o := range passes[0].old[0].Objects {
				add(o)
			}
			var got *bytes.Buffer
			for range passes {
				r, err := decoder.New(in)
				require.NoError(t, err)
				require.NoError(t, r.Apply(context.Background(), store, t.TempDir(), func(o delta.ObjectInfo) (delta.Sink, error) {
					s := &bufferSink{}
					got = &s.Buffer
					return s, nil
				}))
				add(objectOf(delta.Tar, got.Bytes()))
			}
			require.True(t, bytes.Equal(want, got.Bytes()), "the content is not what it was")
			_, err = in.ReadByte()
			require.Equal(t, io.EOF, err)
		})
	}
}

type bufferSink struct{ bytes.Buffer }

func (*bufferSink) Commit() error { return nil }
func (*bufferSink) Abort(error)   {}

// apartDir is none either: the libraries for arm and arm64, with addresses whose parts stand
// apart.
const apartDir = "apart"

var apartOptions = encoder.Options{NoUnwind: true, NoParts: true}

func apartContents(t testing.TB) (old, new []byte) {
	old, new = contents(t, "elf-arm")
	old64, new64 := contents(t, "elf-arm64")
	return makeTar(append(filesOf(t, old), filesOf(t, old64)...)...), makeTar(append(filesOf(t, new), filesOf(t, new64)...)...)
}

// shownDir is none either: these libraries and one for amd64. With shownOptions, all of their
// new bytes are in bulk.
const shownDir = "shown"

var shownOptions = encoder.Options{NoUnwind: true, NoParts: true, Thrift: 4}

func shownContents(t testing.TB) (old, new []byte) {
	old, new = apartContents(t)
	oldX86, newX86 := contents(t, "elf-amd64")
	renamed := func(files []tarFile) []tarFile {
		for i := range files {
			files[i].name = "amd64/" + files[i].name
		}
		return files
	}
	return makeTar(append(filesOf(t, old), renamed(filesOf(t, oldX86))...)...), makeTar(append(filesOf(t, new), renamed(filesOf(t, newX86))...)...)
}

// partsDir is none either: the library for arm64, and a made-up program of A32 code of which
// some instructions change.
const partsDir = "parts"

var partsOptions = encoder.Options{NoUnwind: true}

func partsContents(t testing.TB) (old, new []byte) {
	old, new = contents(t, "elf-arm64")
	oldA32, newA32 := a32Program(false), a32Program(true)
	return makeTar(append(filesOf(t, old), tarFile{name: "a32", typ: '0', data: oldA32})...),
		makeTar(append(filesOf(t, new), tarFile{name: "a32", typ: '0', data: newA32})...)
}

// a32Program is an ELF file of A32 code. In a changed one, a register has another number in
// some functions, a variable another place in the frame, and a few instructions are others.
func a32Program(changed bool) []byte {
	const head, entry, arm, loaded, executable, functions = 52, 32, 40, 1, 5, 400
	le := binary.LittleEndian
	b := make([]byte, head+entry)
	copy(b, "\x7fELF\x01\x01\x01")
	le.PutUint16(b[18:], arm)
	le.PutUint32(b[28:], head)
	le.PutUint16(b[42:], entry)
	le.PutUint16(b[44:], 1)
	for f := range uint32(functions) {
		r, at, seed := uint32(4), 8+f%16*4, f*2654435761
		if changed && f%3 == 0 {
			r, at = 5+f%2, at+8
		}
		b = le.AppendUint32(b, 0xe92d4000|1<<r)     // PUSH {r, lr}
		b = le.AppendUint32(b, 0xe24dd000|at)       // SUB sp, sp, #at
		b = le.AppendUint32(b, 0xe59d0000|r<<12|at) // LDR r, [sp, #at]
		for i := range 3 + seed>>28 {
			w := 0xe0800000 | r<<16 | seed>>(i&15)&15<<12 | i&15 // ADD
			if changed && seed>>(i&31)&31 == 7 {
				w = 0xe3500000 | r<<16 | seed&255 // CMP r, #n
			}
			b = le.AppendUint32(b, w)
		}
		b = le.AppendUint32(b, 0xe28dd000|at)   // ADD sp, sp, #at
		b = le.AppendUint32(b, 0xe8bd8000|1<<r) // POP {r, pc}
	}
	size := uint32(len(b))
	for i, v := range []uint32{loaded, 0, 1 << 16, 1 << 16, size, size, executable, 1 << 12} {
		le.PutUint32(b[head+4*i:], v)
	}
	return b
}

// The encoder still makes these very bytes.
func TestGoldenEncode(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			if g.slow && testing.Short() {
				t.Skip("it takes long to encode")
			}
			want, err := os.ReadFile(g.file())
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, g.encoded(t)), "the delta is not what it was")
		})
	}
}

// featureGoldens names for each feature a golden delta that uses it.
var featureGoldens = map[string]string{
	delta.FeatureELF:     "elf-arm",
	delta.FeatureLZ:      "bulk",
	delta.FeatureDeflate: "gzip",
	delta.FeatureGo:      "zip",
	delta.FeatureFar:     "far",
	delta.FeatureUnwind:  "unwind",
	delta.FeatureSums:    "sums",
	delta.FeaturePacked:  "packed",
	delta.FeatureApart:   "apart",
	delta.FeatureShow:    "shown",
	delta.FeatureParts:   "parts",
}

// goldenSums are the SHA-256 of all golden deltas, in the order of their names. They
// never change: what was written once is decoded for ever.
const goldenSums = "testdata/golden/SHA256SUMS"

// Each feature has a golden delta that lists it, and no golden delta has changed or
// is gone.
func TestGoldenOfEachFeature(t *testing.T) {
	for _, f := range delta.Features {
		name := featureGoldens[f]
		require.NotEmpty(t, name, "the feature %s has no golden delta: add one, and name it in featureGoldens", f)
		file, err := os.Open(golden{name: name}.file())
		require.NoError(t, err)
		defer file.Close()
		r, err := decoder.New(file)
		require.NoError(t, err)
		require.Contains(t, r.Header().Features, f)
	}
	require.Len(t, featureGoldens, len(delta.Features))

	var sums []string
	for _, g := range goldens {
		b, err := os.ReadFile(g.file())
		require.NoError(t, err)
		sums = append(sums, fmt.Sprintf("%s  %s\n", digest.Of(b).Hex(), filepath.Base(g.file())))
	}
	slices.SortFunc(sums, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	frozen, err := os.ReadFile(goldenSums)
	require.NoError(t, err)
	require.Equal(t, string(frozen), strings.Join(sums, ""), "version 1 is frozen; a new golden delta is added to %s", goldenSums)
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.delta"))
	require.NoError(t, err)
	require.Len(t, files, len(goldens), "a golden delta is not tested")
}

// xdelta3 wrote the VCDIFF file; testdata/make.sh there says how.
func TestGoldenVCDIFF(t *testing.T) {
	dir := filepath.Join("vcdiff", "testdata")
	old, err := os.ReadFile(filepath.Join(dir, "old"))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(dir, "new"))
	require.NoError(t, err)
	for _, name := range []string{"default.vcdiff", "app.vcdiff", "windows.vcdiff"} {
		d, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		r, err := vcdiff.NewReader(t.Context(), bytes.NewReader(old), int64(len(old)), bytes.NewReader(d), vcdiff.Options{})
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err, name)
		require.NoError(t, r.Close())
		require.True(t, bytes.Equal(want, got), name)
	}
}
