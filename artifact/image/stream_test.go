package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// record is what a handler was given.
type record struct {
	early  bool
	calls  int
	layers map[string][]byte
	known  map[string]Digest
	packed map[string]string
}

func (r *record) handler(take func(m Member) bool) Handler {
	r.layers, r.known, r.packed = make(map[string][]byte), make(map[string]Digest), make(map[string]string)
	return Handler{
		Manifest: func(imgs []StreamImage, early bool) error {
			r.early = early
			r.calls++
			return nil
		},
		Layer: func(m Member, rd io.Reader) error {
			if !take(m) {
				return nil
			}
			b, err := io.ReadAll(rd)
			r.layers[m.Name], r.known[m.Name], r.packed[m.Name] = b, m.DiffID, m.Compression
			return err
		},
	}
}

func all(Member) bool { return true }

func TestReadStream(t *testing.T) {
	s := makeSample(t, amd64, "base", "app", "base")
	for _, c := range []struct {
		name    string
		archive []byte
		early   bool
		packed  string
	}{
		{"classic", rig.Tar(t, s.classic(t, "web:1")...), false, ""},
		{"classic, gzip", rig.Gzip(t, rig.Tar(t, s.classic(t, "web:1")...)), false, ""},
		{"classic, zstd", zst(t, rig.Tar(t, s.classic(t, "web:1")...)), false, ""},
		{"oci", rig.Tar(t, oci(t, false, plain, s)...), false, ""},
		{"oci, gzip layers", rig.Tar(t, oci(t, false, rig.Gzip, s)...), false, "gzip"},
		{"hybrid, zstd layers", rig.Tar(t, oci(t, true, zst, s)...), false, "zstd"},
		{"ours", write(t, ArchiveSpec{Image: s.image(t), RepoTags: []string{"web:1"}}), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got record
			imgs, err := ReadStream(iotest.OneByteReader(bytes.NewReader(c.archive)), Limits{}, got.handler(all))
			require.NoError(t, err)
			require.Len(t, imgs, 1)
			require.Equal(t, c.early, got.early)
			require.Equal(t, 1, got.calls)
			require.Equal(t, digest.Of(s.config), imgs[0].ConfigDigest)
			require.Equal(t, 2, len(got.layers))
			for i, l := range s.layers {
				name := imgs[0].Members[i]
				require.Equal(t, c.packed, got.packed[name])
				require.EqualValues(t, len(l), imgs[0].Layers[i].Size)
				if c.early {
					require.Equal(t, imgs[0].DiffIDs[i], got.known[name])
				}
				if c.packed == "" {
					require.Equal(t, l, got.layers[name])
				}
			}
			// A handler that reads nothing, and none at all.
			again, err := ReadStream(bytes.NewReader(c.archive), Limits{}, got.handler(func(Member) bool { return false }))
			require.NoError(t, err)
			require.Equal(t, imgs[0].Members, again[0].Members)
			_, err = ReadStream(bytes.NewReader(c.archive), Limits{}, Handler{})
			require.NoError(t, err)
		})
	}
}

// TestReadStreamAnyOrder shuffles the members of archives.
func TestReadStreamAnyOrder(t *testing.T) {
	s := makeSample(t, amd64, "base", "app", "base", "top")
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, es := range [][]rig.Entry{s.classic(t, "web:1"), oci(t, true, rig.Gzip, s), oci(t, false, plain, s)} {
		for range 50 {
			rnd.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
			var got record
			imgs, err := ReadStream(bytes.NewReader(rig.Tar(t, es...)), Limits{}, got.handler(all))
			require.NoError(t, err)
			require.Equal(t, digest.Of(s.config), imgs[0].ConfigDigest)
			require.NotContains(t, imgs[0].Members, "")
			for _, name := range imgs[0].Members {
				require.Contains(t, got.layers, name)
			}
		}
	}
}

func TestReadStreamHostile(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	cfg := digest.Of(s.config).Hex() + ".json"
	manifest := file("manifest.json", encode([]dockerImage{{Config: cfg, Layers: []string{"l0", "l1"}}}))
	wrong := rig.Tar(t, file("etc/app", []byte("apq")))
	good := []rig.Entry{manifest, file(cfg, s.config), file("l0", s.layers[0]), file("l1", s.layers[1])}
	with := func(at int, e rig.Entry) []rig.Entry {
		es := slices.Clone(good)
		es[at] = e
		return es
	}
	rotate := func(es []rig.Entry) []rig.Entry { return append(slices.Clone(es[2:]), es[:2]...) }
	_, err := ReadStream(bytes.NewReader(rig.Tar(t, good...)), Limits{}, Handler{})
	require.NoError(t, err)
	_, err = ReadStream(bytes.NewReader(rig.Tar(t, rotate(good)...)), Limits{}, Handler{})
	require.NoError(t, err)
	for _, c := range []struct {
		name    string
		entries []rig.Entry
		limits  Limits
		is      error
		says    string
	}{
		{"wrong layer", with(3, file("l1", wrong)), Limits{}, ErrMismatch, "it is sha256:"},
		{"wrong layer before its manifest", rotate(with(3, file("l1", wrong))), Limits{}, ErrMismatch, "it is sha256:"},
		{"empty layer", with(3, file("l1", nil)), Limits{}, ErrMismatch, "it is " + digest.Of(nil).String()},
		{"layer is JSON", with(3, file("l1", []byte(`{"layers":1}`))), Limits{}, ErrMismatch, "it is no tar"},
		{"damaged gzip layer", with(3, file("l1", rig.Gzip(t, s.layers[1])[:60])), Limits{}, ErrFormat, "unexpected EOF"},
		{"something after a gzip layer", with(3, file("l1", append(rig.Gzip(t, s.layers[1]), 1, 2, 3))), Limits{}, ErrFormat, ""},
		{"damaged zstd layer", with(3, file("l1", zst(t, s.layers[1])[:20])), Limits{}, ErrFormat, ""},
		{"other config", with(1, file(cfg, []byte(`{"rootfs":{}}`))), Limits{}, ErrMismatch, "config"},
		{"no config", append([]rig.Entry{manifest}, good[2:]...), Limits{}, ErrMissing, cfg},
		{"no manifest", good[1:], Limits{}, ErrMissing, "index.json"},
		{"twice", append(slices.Clone(good), file("./l1", s.layers[1])), Limits{}, ErrFormat, "twice"},
		{"dot-dot", append(slices.Clone(good), file("x/../../l1", nil)), Limits{}, ErrFormat, ".."},
		{"absolute", append(slices.Clone(good), file("/l1", nil)), Limits{}, ErrFormat, "absolute"},
		{"link after the manifest", with(3, rig.Entry{Name: "l1", Type: tar.TypeSymlink, Link: "x"}), Limits{}, nil, ""},
		{"link to what was no layer", append(with(3, file("x", s.layers[1])), rig.Entry{Name: "l1", Type: tar.TypeSymlink, Link: "x"}), Limits{}, ErrFormat, "link"},
		{"too many members", good, Limits{MaxMembers: 3}, ErrTooLarge, "members"},
		{"too large", good, Limits{MaxBytes: 4096}, ErrTooLarge, "4096"},
		{"layer too large", good, Limits{MaxLayer: 512}, ErrTooLarge, "layer of more than 512"},
		{"gzip bomb", with(3, file("l1", rig.Gzip(t, make([]byte, 1<<20)))), Limits{MaxLayer: 1 << 16}, ErrTooLarge, "layer of more than"},
		{"too much JSON", good, Limits{MaxJSON: 100}, ErrTooLarge, "manifests and configs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got record
			_, err := ReadStream(bytes.NewReader(rig.Tar(t, c.entries...)), c.limits, got.handler(all))
			if c.is == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// TestReadStreamTruncated cuts an archive everywhere near a block's edge.
func TestReadStreamTruncated(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	for _, b := range [][]byte{rig.Tar(t, s.classic(t, "web:1")...), write(t, ArchiveSpec{Image: s.image(t)})} {
		for cut := 0; cut < len(b); cut += 256 {
			_, err := ReadStream(bytes.NewReader(b[:cut]), Limits{}, Handler{})
			require.Error(t, err, cut)
		}
	}
}

func TestReadStreamHandlerErrors(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	stop := errors.New("stop")
	for _, b := range [][]byte{rig.Tar(t, oci(t, true, rig.Gzip, s)...), write(t, ArchiveSpec{Image: s.image(t)})} {
		_, err := ReadStream(bytes.NewReader(b), Limits{}, Handler{Layer: func(m Member, r io.Reader) error {
			_, err := io.CopyN(io.Discard, r, 10)
			return errors.Join(stop, err)
		}})
		require.ErrorIs(t, err, stop)
		_, err = ReadStream(bytes.NewReader(b), Limits{}, Handler{Manifest: func([]StreamImage, bool) error { return stop }})
		require.ErrorIs(t, err, stop)
	}
}

// The manifests and indexes that lead to a config are known by digests that
// their bytes have, with manifest.json or without.
func TestReadStreamManifests(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	read := func(es []rig.Entry) []Digest {
		imgs, err := ReadStream(bytes.NewReader(rig.Tar(t, es...)), Limits{}, Handler{})
		require.NoError(t, err)
		require.Len(t, imgs, 1)
		return imgs[0].Manifests
	}
	of := func(es []rig.Entry, text string) (list []Digest) {
		for _, e := range es {
			if strings.HasPrefix(e.Name, blobDir) && strings.Contains(e.Body, text) && strings.Contains(e.Body, "schemaVersion") {
				list = append(list, digest.Of([]byte(e.Body)))
			}
		}
		return list
	}
	for _, docker := range []bool{false, true} {
		es := oci(t, docker, plain, s)
		want := append(of(es, `"manifests":`), of(es, `"layers":`)...)
		require.Len(t, want, 2)
		require.Equal(t, want, read(es))
		a, err := OpenArchive(put(t, rig.Tar(t, es...)))
		require.NoError(t, err)
		defer a.Close()
		require.Equal(t, want, a.Images()[0].Manifests)
	}
	require.Empty(t, read(s.classic(t, "web:1")))
	es := oci(t, true, plain, s)
	for i := range es {
		if strings.Contains(es[i].Body, `"layers":`) && es[i].Name != "manifest.json" {
			es[i].Body += " "
		}
	}
	require.Empty(t, read(es), "a manifest that is not what index.json names")
}
