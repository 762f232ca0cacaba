package delta_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/internal/codec"
)

// prose is text that compresses like a changelog.
func prose(seed int64, n int) []byte {
	r := rand.New(rand.NewSource(seed))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "  * Fix number %d of module-%c (Closes: #%06d)\n", r.Intn(50), 'a'+r.Intn(26), r.Intn(1000000))
	}
	return b.Bytes()
}

// gz is a member as the program of the variant makes it.
func gz(t testing.TB, v deflate.Variant, head, b []byte) []byte {
	out := bytes.NewBuffer(slices.Clone(head))
	z := deflate.NewWriter(out, v)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	tail := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b))
	return append(append(out.Bytes(), tail...), byte(len(b)), byte(len(b)>>8), byte(len(b)>>16), byte(len(b)>>24))
}

func gzipPair(t testing.TB, v deflate.Variant, head []byte) (old, new delta.Image) {
	old = delta.Image{Name: "app:1", Objects: []delta.Object{bytesObject(delta.Tar, makeTar(
		tarFile{name: "a.gz", typ: '0', data: gz(t, v, head, prose(1, 90000))},
		tarFile{name: "b.gz", typ: '0', data: gz(t, v, head, prose(2, 3000))},
		tarFile{name: "plain", typ: '0', data: prose(5, 3000)}))}}
	new = delta.Image{Name: "app:2", Objects: []delta.Object{bytesObject(delta.Tar, makeTar(
		tarFile{name: "a.gz", typ: '0', data: gz(t, v, head, append([]byte("one entry more\n"), prose(1, 90000)...))},
		tarFile{name: "b.gz", typ: '0', data: gz(t, v, head, append(prose(2, 3000), prose(3, 200)...))},
		tarFile{name: "c.gz", typ: '0', data: gz(t, v, head, prose(4, 2000))},
		tarFile{name: "plain", typ: '0', data: gz(t, v, head, prose(5, 3000))}))}}
	return old, new
}

func TestGzip(t *testing.T) {
	named := []byte{0x1f, 0x8b, 8, 8 | 4 | 2, 1, 2, 3, 4, 0, 3, 2, 0, 'x', 'y', 'f', 'i', 'l', 'e', 0, 7, 7}
	for v := range deflate.NumVariants {
		if testing.Short() && v%8 != 0 {
			continue
		}
		head := slices.Clone(deflate.GzipHead)
		switch {
		case v%3 == 1:
			head = named
		case v%9 == 0:
			head[8] = 4
		case v%9 < 8:
			head[8] = 0
		}
		old, new := gzipPair(t, v, head)
		d, rep := roundTrip(t, []delta.Image{old}, new)
		require.Contains(t, rep.Header.Features, delta.FeatureDeflate)
		require.Less(t, len(d), 3500, "%s", v)
	}
}

// What cannot be made again, or is no member, comes through as it is.
func TestGzipNot(t *testing.T) {
	one := gz(t, deflate.GNU(9), deflate.GzipHead, prose(1, 30000))
	badSum := slices.Clone(one)
	badSum[len(badSum)-5] ^= 1
	badSize := slices.Clone(one)
	badSize[len(badSize)-1] ^= 1
	members := [][]byte{append(slices.Clone(one), one...), append(slices.Clone(one), 0), badSum, badSize,
		one[:len(one)-1], one[:20], append(slices.Clone(deflate.GzipHead), 0xff, 0, 0, 0, 0, 0, 0, 0, 0)}
	if !testing.Short() {
		members = append(members, gz(t, deflate.GNU(9), deflate.GzipHead, make([]byte, codec.MaxPlain+1)))
	}
	for i, b := range members {
		old := delta.Image{Name: "1", Objects: []delta.Object{bytesObject(delta.Tar, makeTar(tarFile{name: "a.gz", typ: '0', data: one}))}}
		new := delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Tar, makeTar(tarFile{name: "a.gz", typ: '0', data: b}))}}
		_, rep := roundTrip(t, []delta.Image{old}, new)
		require.NotContains(t, rep.Header.Features, delta.FeatureDeflate, "%d", i)
		if !testing.Short() {
			roundTrip(t, []delta.Image{new}, old)
		}
	}
}

// What is in an old stream and cannot be held is read forward; what moved back
// by more than the ring is not copied.
func TestLargeStream(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a member of more than 4 MiB: not short")
	}
	var old []byte
	for i := range int64(7) {
		old = append(old, noise(i, 1<<20)...)
	}
	text := prose(1, 3000)
	back := slices.Concat(old[:5<<20], text, old[4<<20:], old[:1<<20])
	for name, c := range map[string]struct {
		new  []byte
		most int
	}{
		"a little": {slices.Concat(old[:3<<20], text, old[3<<20+100:]), 2000},
		"moved":    {back, 1<<20 + 3000},
		"cut":      {old[6<<20:], 1000},
		"other":    {prose(3, 5<<20), 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			o := delta.Image{Name: "1", Objects: []delta.Object{bytesObject(delta.Blob, gz(t, deflate.GNU(1), deflate.GzipHead, old))}}
			n := delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, gz(t, deflate.GNU(1), deflate.GzipHead, c.new))}}
			d, rep := roundTrip(t, []delta.Image{o}, n)
			require.Contains(t, rep.Header.Features, delta.FeatureDeflate)
			require.Less(t, len(d), c.most)
		})
	}
}

// packedBy is what a writer of Go's packages makes of b.
func packedBy(t testing.TB, open func(io.Writer) (io.WriteCloser, error), b []byte) []byte {
	var out bytes.Buffer
	z, err := open(&out)
	require.NoError(t, err)
	_, err = z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func goGzip(level int) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, level) }
}

func goZlib(level int) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriterLevel(w, level) }
}

type zipEntry struct {
	name   string
	data   []byte
	stored bool
}

// zipOf is an archive as Go makes it.
func zipOf(t testing.TB, entries ...zipEntry) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.stored {
			h.Method = zip.Store
		}
		w, err := z.CreateHeader(h)
		require.NoError(t, err)
		_, err = w.Write(e.data)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return out.Bytes()
}

// Streams in all places where they are looked for; what changed in them is
// little, and so is the delta.
func TestStreams(t *testing.T) {
	edited := func(seed int64, n int) []byte {
		b := prose(seed, n)
		copy(b[n/2:], "another text here")
		return b
	}
	old, new := prose(1, 50000), edited(1, 50000)
	inner := func(b []byte) []byte { return zipOf(t, zipEntry{name: "deep", data: b}) }
	jar := func(b []byte) []byte {
		var in []zipEntry
		for i := range int64(40) {
			in = append(in, zipEntry{name: fmt.Sprintf("org/Class%d", i), data: prose(100+i, 4000)})
		}
		in[7].data = b
		in[8].stored = true
		return zipOf(t, append(in, zipEntry{name: "same", data: b[:2000]}, zipEntry{name: "same", data: b[2000:9000]},
			zipEntry{name: "empty"}, zipEntry{name: "lib/inner.jar", data: inner(b), stored: true})...)
	}
	gnu := func(level int, content []byte) []byte { return gz(t, deflate.GNU(level), deflate.GzipHead, content) }
	twoMembers := func(second []byte) []byte { return slices.Concat(gnu(6, old), gnu(6, second)) }
	amongNoise := func(content []byte) []byte { return slices.Concat(noise(1, 5000), gnu(9, content), noise(2, 5000)) }
	for name, c := range map[string]struct {
		old, new []byte
		most     int
		features []string
	}{
		"gzip of Go":       {packedBy(t, goGzip(6), old), packedBy(t, goGzip(6), new), 700, []string{delta.FeatureDeflate, delta.FeatureGo}},
		"gzip -1 of Go":    {packedBy(t, goGzip(1), old), packedBy(t, goGzip(1), new), 700, []string{delta.FeatureDeflate, delta.FeatureGo}},
		"another level":    {packedBy(t, goGzip(1), old), packedBy(t, goGzip(9), new), 700, []string{delta.FeatureDeflate, delta.FeatureGo}},
		"zlib of Go":       {packedBy(t, goZlib(9), old), packedBy(t, goZlib(9), new), 700, []string{delta.FeatureDeflate, delta.FeatureGo}},
		"zlib":             {zl(t, old), zl(t, new), 700, []string{delta.FeatureDeflate}},
		"two members":      {twoMembers(prose(2, 5000)), twoMembers(edited(2, 5000)), 700, []string{delta.FeatureDeflate}},
		"a zip archive":    {jar(old), jar(new), 1400, []string{delta.FeatureDeflate, delta.FeatureGo}},
		"among noise":      {amongNoise(old), amongNoise(new), 700, []string{delta.FeatureDeflate}},
		"from plain":       {old, gz(t, deflate.GNU(9), deflate.GzipHead, new), 7000, []string{delta.FeatureDeflate}},
		"to another frame": {zl(t, old), gz(t, deflate.GNU(9), deflate.GzipHead, new), 7000, []string{delta.FeatureDeflate}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.most > 2000 {
				t.Skip("codes 50 KB of new content, which is slow with the race detector; left out of -short")
			}
			for _, path := range []string{"", "f.gz"} {
				if testing.Short() && path == "" && name != "among noise" && name != "a zip archive" {
					continue // the same pair in a tar is enough
				}
				image := func(tag string, b []byte) delta.Image {
					if path == "" {
						return delta.Image{Name: tag, Objects: []delta.Object{bytesObject(delta.Blob, b)}}
					}
					return delta.Image{Name: tag, Objects: []delta.Object{bytesObject(delta.Tar, makeTar(tarFile{name: path, typ: '0', data: b}))}}
				}
				d, rep := roundTrip(t, []delta.Image{image("1", c.old)}, image("2", c.new))
				require.Less(t, len(d), c.most)
				require.Equal(t, append([]string{delta.FeatureELF, delta.FeatureLZ}, c.features...), rep.Header.Features)
			}
		})
	}
}

func zl(t testing.TB, b []byte) []byte {
	out := bytes.NewBuffer(slices.Clone(deflate.ZlibHead))
	z := deflate.NewWriter(out, deflate.Zlib(6))
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	sum := adler32.Checksum(b)
	return binary.BigEndian.AppendUint32(out.Bytes(), sum)
}

// Of an archive that is changed, so much is new that it goes to the bulk part.
func TestStreamsInBulk(t *testing.T) {
	var old, new []zipEntry
	for i := range int64(40) {
		old = append(old, zipEntry{name: fmt.Sprint("old", i), data: prose(i, 8000)})
		new = append(new, old[i], zipEntry{name: fmt.Sprint("new", i), data: prose(100+i, 9000)})
	}
	new[0].data = append(slices.Clone(new[0].data), "more"...)
	o := delta.Image{Name: "1", Objects: []delta.Object{bytesObject(delta.Blob, zipOf(t, old...))}}
	n := delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, zipOf(t, new...))}}
	d, rep := roundTrip(t, []delta.Image{o}, n)
	require.Positive(t, rep.Objects[0].Bytes["bulk"])
	require.Less(t, len(d), 70000)
}

// An archive that is truncated or damaged is coded as plain bytes.
func TestBadArchives(t *testing.T) {
	b := zipOf(t, zipEntry{name: "a", data: prose(1, 3000)}, zipEntry{name: "b", data: prose(2, 3000)})
	old := delta.Image{Name: "1", Objects: []delta.Object{bytesObject(delta.Blob, b)}}
	for n := 1; n < len(b); n += 97 {
		roundTrip(t, []delta.Image{old}, delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, b[:n])}})
		flipped := slices.Clone(b)
		flipped[n] ^= 0x41
		roundTrip(t, []delta.Image{old}, delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, flipped)}})
	}
}

// More streams than the decoder allows, and more in them, are left as they are.
func TestManyStreams(t *testing.T) {
	var old, new []zipEntry
	for i := range int64(300) {
		old = append(old, zipEntry{name: fmt.Sprint(i), data: noise(i, 20)})
		new = append(new, zipEntry{name: fmt.Sprint(i), data: append(noise(i, 20), 'x')})
	}
	pairs := [][2][]zipEntry{{old, new}}
	if !testing.Short() {
		var zeros []zipEntry
		for i := range 6 {
			zeros = append(zeros, zipEntry{name: fmt.Sprint(i), data: make([]byte, 4<<20+i)})
		}
		pairs = append(pairs, [][2][]zipEntry{{nil, zeros}, {zeros[1:], zeros}}...)
	}
	for _, p := range pairs {
		roundTrip(t, []delta.Image{{Name: "1", Objects: []delta.Object{bytesObject(delta.Blob, zipOf(t, p[0]...))}}},
			delta.Image{Name: "2", Objects: []delta.Object{bytesObject(delta.Blob, zipOf(t, p[1]...))}})
	}
}
