package delta

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/deflate"
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

func gzipPair(t testing.TB, v deflate.Variant, head []byte) (old, new Image) {
	old = Image{Name: "app:1", Objects: []Object{bytesObject(Tar, makeTar(
		tarFile{name: "a.gz", typ: '0', data: gz(t, v, head, prose(1, 90000))},
		tarFile{name: "b.gz", typ: '0', data: gz(t, v, head, prose(2, 3000))},
		tarFile{name: "plain", typ: '0', data: prose(5, 3000)}))}}
	new = Image{Name: "app:2", Objects: []Object{bytesObject(Tar, makeTar(
		tarFile{name: "a.gz", typ: '0', data: gz(t, v, head, append([]byte("one entry more\n"), prose(1, 90000)...))},
		tarFile{name: "b.gz", typ: '0', data: gz(t, v, head, append(prose(2, 3000), prose(3, 200)...))},
		tarFile{name: "c.gz", typ: '0', data: gz(t, v, head, prose(4, 2000))},
		tarFile{name: "plain", typ: '0', data: gz(t, v, head, prose(5, 3000))}))}}
	return old, new
}

func TestGzip(t *testing.T) {
	named := []byte{0x1f, 0x8b, 8, 8 | 4 | 2, 1, 2, 3, 4, 0, 3, 2, 0, 'x', 'y', 'f', 'i', 'l', 'e', 0, 7, 7}
	for v := range deflate.NumVariants {
		if testing.Short() && v%4 != 0 {
			continue
		}
		head := slices.Clone(gzipHead)
		switch {
		case v%3 == 1:
			head = named
		case v%9 == 0:
			head[8] = 4
		case v%9 < 8:
			head[8] = 0
		}
		old, new := gzipPair(t, v, head)
		d, rep := roundTrip(t, []Image{old}, new)
		require.Contains(t, rep.Header.Features, featGzip)
		require.Less(t, len(d), 3500, "%s", v)
	}
}

// What cannot be made again, or is no member, comes through as it is.
func TestGzipNot(t *testing.T) {
	var std bytes.Buffer
	z := gzip.NewWriter(&std)
	_, err := z.Write(prose(1, 60000))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	one := gz(t, deflate.GNU(9), gzipHead, prose(1, 30000))
	badSum := slices.Clone(one)
	badSum[len(badSum)-5] ^= 1
	badSize := slices.Clone(one)
	badSize[len(badSize)-1] ^= 1
	bomb := gz(t, deflate.GNU(9), gzipHead, make([]byte, maxPlain+1))
	for i, b := range [][]byte{std.Bytes(), append(slices.Clone(one), one...), append(slices.Clone(one), 0), badSum, badSize,
		one[:len(one)-1], one[:20], append(slices.Clone(gzipHead), 0xff, 0, 0, 0, 0, 0, 0, 0, 0), bomb} {
		old := Image{Name: "1", Objects: []Object{bytesObject(Tar, makeTar(tarFile{name: "a.gz", typ: '0', data: one}))}}
		new := Image{Name: "2", Objects: []Object{bytesObject(Tar, makeTar(tarFile{name: "a.gz", typ: '0', data: b}))}}
		_, rep := roundTrip(t, []Image{old}, new)
		require.NotContains(t, rep.Header.Features, featGzip, "%d", i)
		roundTrip(t, []Image{new}, old)
	}
}

// An old member with more in it than the decoder takes does not serve.
func TestGzipLargeOld(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a member of more than 4 MiB: not short")
	}
	big := bytes.Repeat(prose(1, 64<<10), maxOldPlain>>16+1)
	old := Image{Name: "1", Objects: []Object{bytesObject(Blob, gz(t, deflate.GNU(1), gzipHead, big))}}
	new := Image{Name: "2", Objects: []Object{bytesObject(Blob, gz(t, deflate.GNU(1), gzipHead, big[1000:]))}}
	roundTrip(t, []Image{old}, new)
}
