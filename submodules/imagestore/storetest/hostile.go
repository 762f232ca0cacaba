package storetest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// huge is the size that hostile content claims to have, in bytes.
const huge = 1 << 30

// InflatedDelta returns the delta d with a changed header: the last layer's size is
// 1 GiB.
func InflatedDelta(t *testing.T, d []byte) []byte {
	t.Helper()
	r, err := decoder.New(bytes.NewReader(d))
	require.NoError(t, err)
	objects := r.Header().Objects
	last := objects[len(objects)-1].Digest
	return edited(t, d, last, func(kind byte, _ uint64) (byte, uint64) { return kind, huge })
}

// SparseLayer returns a layer of size bytes that holds a sparse file of 1 GiB. An
// engine that unpacks it writes all of it.
func SparseLayer(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	// GNU sparse format 1.0: the map has one piece of 0 bytes at the file's end.
	content := make([]byte, 512)
	copy(content, fmt.Sprintf("1\n%d\n0\n", huge))
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: "top", Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(1.7e9, 0), Format: tar.FormatPAX,
	}
	records := map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "top", "GNU.sparse.realsize": fmt.Sprint(huge)}
	var pax strings.Builder
	for k, v := range records {
		line := fmt.Sprintf(" %s=%s\n", k, v)
		n := len(line) + 2 // a length of two digits
		fmt.Fprintf(&pax, "%d%s", n, line)
	}
	// archive/tar cannot write the records of sparse files, so the PAX header is
	// written by hand.
	w := tar.NewWriter(&b)
	ext := pax.String()
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "PaxHeaders/top", Size: int64(len(ext)), Mode: 0o644, Format: tar.FormatUSTAR}))
	_, err := w.Write([]byte(ext))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	head := b.Bytes()
	head[156] = tar.TypeXHeader
	checksum(head[:512])
	h.Format = tar.FormatUSTAR
	require.NoError(t, w.WriteHeader(h))
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	out := b.Bytes()
	require.LessOrEqual(t, len(out), size)
	return append(out, make([]byte, size-len(out))...)
}

// checksum sets the checksum of a tar header.
func checksum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// testAnnounced loads content that differs from the metadata. An attacker can send
// such content if they can change an artifact's bytes but cannot sign them. Each
// load is refused before the store changes.
func testAnnounced(s *suite) {
	old, next := s.image("old", text(s.app, 40_000)), s.image("new", text(s.app, 20_000)+"changed"+text(s.app, 40_000)[20_007:])
	require.NoError(s, s.load(s.request(old), archive(s.T, old)))
	s.Logf("old %v next %v", old.img.DiffIDs, next.img.DiffIDs)
	d, whole := Delta(s.T, old.img, next.img), archive(s.T, next)
	base, top := next.img.DiffIDs[0], next.img.DiffIDs[1]
	size := func(n uint64) func(byte, uint64) (byte, uint64) {
		return func(kind byte, _ uint64) (byte, uint64) { return kind, n }
	}
	stranger := build(s.T, s.Platform, s.app+" stranger", "", old.tars[0], tarOf(s.T, "top", strings.Repeat("0", 4<<20)))
	bomb := SparseLayer(s.T, len(next.tars[1]))
	forged := func(layer []byte) [][]byte { return [][]byte{next.tars[0], layer} }
	// A genuine archive whose layer's content is replaced under the genuine name.
	swapped := bytes.Replace(bytes.Clone(whole), next.tars[1], bomb, 1)

	for title, c := range map[string]struct {
		content   []byte
		announced *submodules.Announced
		says      string
	}{
		"a delta for a full image":       {d, announced(s.T, next, nil), "it is a delta, and a full image is announced"},
		"a full image for a delta":       {whole, announced(s.T, next, d), "it is not a delta, and a delta is announced"},
		"a layer that is inflated":       {edited(s.T, d, top, size(huge)), announced(s.T, next, d), "are announced"},
		"a config that is inflated":      {edited(s.T, d, next.img.ConfigDigest, size(3<<20)), announced(s.T, next, d), "of the delta has 3145728 bytes, and"},
		"a present layer is inflated":    {edited(s.T, d, base, size(huge)), announced(s.T, next, d), "are announced"},
		"a layer announced as omitted":   {edited(s.T, d, base, func(kind byte, n uint64) (byte, uint64) { return kind&1 | 2, n }), announced(s.T, next, d), "omitted is announced"},
		"more temporary bytes":           {withTemp(s.T, d, 1), announced(s.T, next, d), "0 temporary bytes are announced"},
		"a delta of other layers":        {Delta(s.T, old.img, stranger.img), announced(s.T, next, d), ""},
		"a sparse file":                  {layersFirst(s.T, next, forged(bomb), false), announced(s.T, next, nil), "take more than"},
		"a sparse file, compressed":      {layersFirst(s.T, next, forged(bomb), true), announced(s.T, next, nil), "take more than"},
		"a sparse file, manifest first":  {swapped, announced(s.T, next, nil), "take more than"},
		"a layer that is larger":         {layersFirst(s.T, next, forged(tarOf(s.T, "top", strings.Repeat("0", 8<<20))), false), announced(s.T, next, nil), ""},
		"a layer that inflates":          {layersFirst(s.T, next, forged(tarOf(s.T, "top", strings.Repeat("0", 8<<20))), true), announced(s.T, next, nil), ""},
		"one layer more, of an old form": {layersFirst(s.T, next, forged(tarOf(s.T, "top", strings.Repeat("0", 8<<20))), false), &submodules.Announced{Engine: 100_000}, ""},
	} {
		s.in(title, func(s *suite) {
			q := s.request(next)
			q.Announced = c.announced
			start := time.Now()
			err := s.unchanged(q, c.content)
			require.ErrorIs(s, err, submodules.ErrContent)
			require.ErrorContains(s, err, c.says)
			require.Less(s, time.Since(start), 10*time.Second)
			s.absent(next)
			s.whole(old)
		})
	}

	s.in("shared content", func(s *suite) {
		q := s.request(next)
		q.Announced = announced(s.T, next, d)
		q.Base = old.img.DiffIDs
		err := s.unchanged(q, sharedContent(s.T, d))
		require.ErrorIs(s, err, submodules.ErrContent)
		require.ErrorContains(s, err, "0 temporary bytes are announced")
	})

	// Content that matches the metadata is loaded, in both forms.
	q := s.request(next)
	q.Announced = announced(s.T, next, d)
	require.NoError(s, s.load(q, d))
	s.whole(next)
	third := s.image("third", "third")
	q = imagestore.LoadRequest{App: s.app, URL: s.url, Want: third.id(), TempDir: s.TempDir(), Log: s.Logf, Announced: announced(s.T, third, nil)}
	require.NoError(s, s.load(q, layersFirst(s.T, third, third.tars, true)))
	s.whole(third)
}
