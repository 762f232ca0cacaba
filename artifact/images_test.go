package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// got is what ReadImages handed over.
type got struct {
	info    ImageInfo
	content string
}

func readImages(b []byte, o ReadOptions) ([]got, error) {
	var all []got
	err := ReadImages(bytes.NewReader(b), o, func(info ImageInfo, r io.Reader) error {
		content, err := io.ReadAll(r)
		all = append(all, got{info, string(content)})
		return err
	})
	return all, err
}

func dir(name string) string { return "images/" + hex(name) + "/" }

// shell is the members of one image, in the order the shell reference's files
// were made; from is "" for a full image.
func shell(from, to string, deep bool) []rig.Entry {
	current := to
	if from != "" {
		current = from
	}
	es := []rig.Entry{
		{Name: dir(to), Type: tar.TypeDir},
		{Name: dir(to) + "url-new.txt", Body: "example/" + to + ":1\n"},
		{Name: dir(to) + "url-current.txt", Body: "example/" + current + ":1\n"},
		{Name: dir(to) + "sums-new.txt", Body: hex(to) + "\n"},
		{Name: dir(to) + "sums-current.txt", Body: hex(current) + "\n"},
		{Name: dir(to) + "image.img", Body: "content of " + to},
	}
	if deep {
		es = append(es, rig.Entry{Name: dir(to) + "deep_delta"})
	}
	return es
}

func want(from, to string, kind Kind) got {
	w := got{ImageInfo{Digest: digestOf(to), URLNew: "example/" + to + ":1", SumNew: digestOf(to), Kind: kind, Size: int64(len("content of " + to))}, "content of " + to}
	w.info.URLCurrent, w.info.SumCurrent = w.info.URLNew, w.info.SumNew
	if from != "" {
		w.info.URLCurrent, w.info.SumCurrent = "example/"+from+":1", digestOf(from)
	}
	return w
}

// TestImagesReference reads the reference's payload with the members of each
// image in every order tar may have found them in.
func TestImagesReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	images := []struct {
		es   []rig.Entry
		want got
	}{
		{shell("", "full", false), want("", "full", KindFull)},
		{shell("old", "new", false), want("old", "new", KindReferenceDelta)},
		{shell("older", "newer", true), want("older", "newer", KindReferenceDeepDelta)},
	}
	for range 200 {
		es := []rig.Entry{{Name: "images/", Type: tar.TypeDir}}
		var wants []got
		for _, img := range images {
			rest := slices.Clone(img.es[1:])
			rnd.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
			es = append(append(es, img.es[0]), rest...)
			wants = append(wants, img.want)
		}
		spool := t.TempDir()
		for _, b := range [][]byte{rig.Tar(t, es...), rig.Gzip(t, rig.Tar(t, es...))} {
			all, err := readImages(b, ReadOptions{SpoolDir: spool})
			require.NoError(t, err)
			require.Equal(t, wants, all)
		}
		left, err := os.ReadDir(spool)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestImagesRealTar reads a payload that the tar of this machine made of
// files, as the shell reference does.
func TestImagesRealTar(t *testing.T) {
	rig.Need(t, "tar")
	top := t.TempDir()
	for _, e := range append(shell("", "full", false), shell("old", "new", true)...) {
		name := filepath.Join(top, e.Name)
		if e.Type == tar.TypeDir {
			require.NoError(t, os.MkdirAll(name, 0o755))
			continue
		}
		require.NoError(t, os.WriteFile(name, []byte(e.Body), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(top, dir("full")+"sums-new.txt"), []byte(hex("full")+"\n"+hex("full")+"\n"), 0o644))
	payload := filepath.Join(top, ImagesPayload)
	rig.Run(t, "tar", "-C", top, "-czf", payload, "images")
	b, err := os.ReadFile(payload)
	require.NoError(t, err)
	all, err := readImages(b, ReadOptions{SpoolDir: top})
	require.NoError(t, err)
	require.ElementsMatch(t, []got{want("", "full", KindFull), want("old", "new", KindReferenceDeepDelta)}, all)

	// And the other way: what we write unpacks with tar to those files.
	var buf bytes.Buffer
	iw := NewImagesWriter(&buf)
	w := want("", "full", KindFull)
	require.NoError(t, iw.Add(w.info, w.info.Size, strings.NewReader(w.content)))
	require.NoError(t, iw.Close())
	out := t.TempDir()
	require.NoError(t, os.WriteFile(payload, buf.Bytes(), 0o644))
	rig.Run(t, "tar", "-C", out, "-xzf", payload)
	require.NoError(t, os.WriteFile(filepath.Join(top, dir("full")+"sums-new.txt"), []byte(hex("full")+"\n"), 0o644))
	rig.Run(t, "diff", "-r", filepath.Join(top, dir("full")), filepath.Join(out, dir("full")))
}

func TestImagesWriter(t *testing.T) {
	full := want("", "full", KindFull)
	full.content = strings.Repeat("compressible ", 100000)
	full.info.Size = int64(len(full.content))
	delta := want("old", "new", KindDelta)
	random := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(random)
	delta.content, delta.info.Size = string(random), int64(len(random))
	write := func() ([]byte, int64) {
		var buf bytes.Buffer
		iw := NewImagesWriter(&buf)
		for _, g := range []got{full, delta} {
			require.NoError(t, iw.Add(g.info, g.info.Size, strings.NewReader(g.content)))
		}
		require.NoError(t, iw.Close())
		require.Error(t, iw.Add(full.info, 0, nil))
		return buf.Bytes(), iw.UnpackedSize()
	}
	b, size := write()
	again, _ := write()
	require.Equal(t, b, again)
	require.Less(t, len(b), len(random)+10000) // the one packed, the other not blown up

	// Streamed: no directory to spool to, one byte at a time, in exactly the
	// size announced.
	var all []got
	err := ReadImages(iotest.HalfReader(bytes.NewReader(b)), ReadOptions{MaxBytes: size}, func(info ImageInfo, r io.Reader) error {
		content, err := io.ReadAll(r)
		all = append(all, got{info, string(content)})
		return err
	})
	require.NoError(t, err)
	require.True(t, slices.Equal([]got{full, delta}, all))
	_, err = readImages(b, ReadOptions{MaxBytes: size - 1})
	require.ErrorIs(t, err, ErrTooLarge)

	// A reader that does not read, and one that fails.
	n := 0
	require.NoError(t, ReadImages(bytes.NewReader(b), ReadOptions{}, func(ImageInfo, io.Reader) error { n++; return nil }))
	require.Equal(t, 2, n)
	stop := errors.New("stop")
	require.Equal(t, stop, ReadImages(bytes.NewReader(b), ReadOptions{}, func(ImageInfo, io.Reader) error { return stop }))
}

func TestImagesWriterErrors(t *testing.T) {
	w := want("", "full", KindFull)
	for _, c := range []struct {
		name string
		edit func(*ImageInfo)
		size int64
		says string
	}{
		{"short", func(*ImageInfo) {}, 5, "fewer than the 5 bytes"},
		{"long", func(*ImageInfo) {}, 3, "more than the 3 bytes"},
		{"reference delta", func(i *ImageInfo) { i.Kind = KindReferenceDelta; i.URLCurrent = "x" }, 4, "cannot be written"},
		{"full from another", func(i *ImageInfo) { i.URLCurrent = "x" }, 4, "cannot be written"},
		{"no URL", func(i *ImageInfo) { i.URLNew = "" }, 4, "no URL"},
		{"URL with newline", func(i *ImageInfo) { i.URLNew = "a\nb"; i.URLCurrent = "" }, 4, "malformed URL"},
		{"no digest", func(i *ImageInfo) { i.Digest = "" }, 4, "sums-new.txt"},
		{"other sum", func(i *ImageInfo) { i.SumNew = digestOf("x") }, 4, "sums-new.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := w.info
			c.edit(&info)
			iw := NewImagesWriter(io.Discard)
			err := iw.Add(info, c.size, strings.NewReader("four"))
			require.ErrorContains(t, err, c.says)
			require.Equal(t, err, iw.Close())
		})
	}
	iw := NewImagesWriter(io.Discard)
	require.NoError(t, iw.Add(w.info, 4, strings.NewReader("four")))
	require.ErrorContains(t, iw.Add(w.info, 4, strings.NewReader("four")), "already")
}

func TestImagesHostile(t *testing.T) {
	full, ref, deep := shell("", "full", false), shell("old", "new", false), shell("old", "new", true)
	without := func(es []rig.Entry, at int) []rig.Entry { return append(slices.Clone(es[:at]), es[at+1:]...) }
	with := func(es []rig.Entry, at int, e rig.Entry) []rig.Entry {
		es = slices.Clone(es)
		es[at] = e
		return es
	}
	spool := t.TempDir()
	for _, c := range []struct {
		name    string
		entries []rig.Entry
		o       ReadOptions
		is      error
		says    string
	}{
		{"absolute", with(full, 1, rig.Entry{Name: "/etc/passwd", Body: "x"}), ReadOptions{}, ErrPayload, "absolute name"},
		{"dot-dot", with(full, 1, rig.Entry{Name: "images/../../x", Body: "x"}), ReadOptions{}, ErrPayload, ".. in its name"},
		{"elsewhere", with(full, 1, rig.Entry{Name: "x/y/z", Body: "x"}), ReadOptions{}, ErrPayload, "not one of an images payload"},
		{"too deep", with(full, 1, rig.Entry{Name: dir("full") + "x/url-new.txt", Body: "x"}), ReadOptions{}, ErrPayload, "not one of"},
		{"unknown member", append(full, rig.Entry{Name: dir("full") + "x"}), ReadOptions{}, ErrPayload, "not one of"},
		{"bad digest", with(full, 1, rig.Entry{Name: "images/abc/url-new.txt"}), ReadOptions{}, ErrPayload, "malformed digest"},
		{"symbolic link", with(full, 5, rig.Entry{Name: dir("full") + "image.img", Type: tar.TypeSymlink, Link: "/etc/shadow"}), ReadOptions{}, ErrPayload, "only files"},
		{"hard link", with(full, 5, rig.Entry{Name: dir("full") + "image.img", Type: tar.TypeLink, Link: "/etc/shadow"}), ReadOptions{}, ErrPayload, "only files"},
		{"device", with(full, 5, rig.Entry{Name: dir("full") + "image.img", Type: tar.TypeChar}), ReadOptions{}, ErrPayload, "only files"},
		{"FIFO", with(full, 5, rig.Entry{Name: dir("full") + "image.img", Type: tar.TypeFifo}), ReadOptions{}, ErrPayload, "only files"},
		{"text twice", append(full, full[1]), ReadOptions{}, ErrPayload, "twice"},
		{"content twice", append(full, full[5]), ReadOptions{}, ErrPayload, "second content"},
		{"two contents", append(full, rig.Entry{Name: dir("full") + "image.delta"}), ReadOptions{}, ErrPayload, "second content"},
		{"long text", with(full, 1, rig.Entry{Name: full[1].Name, Body: strings.Repeat("x", 5000)}), ReadOptions{}, ErrPayload, "where a line should be"},
		{"two lines", with(full, 1, rig.Entry{Name: full[1].Name, Body: "a\nb\n"}), ReadOptions{}, ErrPayload, "more than one line"},
		{"control characters", with(full, 1, rig.Entry{Name: full[1].Name, Body: "a\x1bb\n"}), ReadOptions{}, ErrPayload, "cannot be printed"},
		{"empty URL", with(full, 1, rig.Entry{Name: full[1].Name, Body: "\n"}), ReadOptions{SpoolDir: spool}, ErrPayload, "no URL"},
		{"option as URL", with(with(full, 1, rig.Entry{Name: full[1].Name, Body: "-x\n"}), 2, rig.Entry{Name: full[2].Name, Body: "-x\n"}), ReadOptions{}, ErrPayload, "malformed URL"},
		{"other sum", with(full, 3, rig.Entry{Name: full[3].Name, Body: hex("x") + "\n"}), ReadOptions{}, ErrPayload, "sums-new.txt"},
		{"malformed sum", with(full, 4, rig.Entry{Name: full[4].Name, Body: "x\n"}), ReadOptions{}, ErrPayload, "sums-current.txt"},
		{"no content", without(full, 5), ReadOptions{}, ErrPayload, "neither image.img nor image.delta"},
		{"no text", without(full, 3), ReadOptions{SpoolDir: spool}, ErrPayload, "sums-new.txt is missing"},
		{"no place to spool", ref, ReadOptions{}, ErrSpool, "no directory"},
		{"too much to spool", ref, ReadOptions{SpoolDir: spool, MaxSpool: 3}, ErrSpool, "3 may be kept"},
		{"spool is gone", ref, ReadOptions{SpoolDir: "/nonexistent/spool"}, ErrSpool, "nonexistent"},
		{"not together", append(append(full, ref...), rig.Entry{Name: dir("full") + "deep_delta"}), ReadOptions{SpoolDir: spool}, ErrPayload, "not together"},
		{"marker too late", append(full, rig.Entry{Name: dir("full") + "deep_delta"}), ReadOptions{}, ErrPayload, "complete"},
		{"marker with content", with(deep, 6, rig.Entry{Name: deep[6].Name, Body: "x"}), ReadOptions{SpoolDir: spool}, ErrPayload, "empty"},
		{"marker twice", append(deep, deep[6]), ReadOptions{SpoolDir: spool}, ErrPayload, "twice"},
		{"deep delta of itself", append([]rig.Entry{{Name: dir("full") + "deep_delta"}}, full...), ReadOptions{}, ErrPayload, "against itself"},
		{"delta with marker", append(append(slices.Clone(ref[:5]), rig.Entry{Name: dir("new") + "deep_delta"}), rig.Entry{Name: dir("new") + "image.delta"}), ReadOptions{}, ErrPayload, "beside"},
		{"more than announced", full, ReadOptions{MaxBytes: 5000}, ErrTooLarge, "5000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readImages(rig.Tar(t, c.entries...), c.o)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	bomb := rig.Gzip(t, rig.Tar(t, with(full, 5, rig.Entry{Name: full[5].Name, Body: strings.Repeat("\x00", 8<<20)})...))
	require.Less(t, len(bomb), 100_000)
	_, err := readImages(bomb, ReadOptions{MaxBytes: 1 << 20})
	require.ErrorIs(t, err, ErrTooLarge)
	many := make([]rig.Entry, maxImagesMembers+1)
	for i := range many {
		many[i] = rig.Entry{Name: fmt.Sprintf("images/%064x/", i), Type: tar.TypeDir}
	}
	_, err = readImages(rig.Tar(t, many...), ReadOptions{})
	require.ErrorIs(t, err, ErrTooLarge)
	left, err := os.ReadDir(spool)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestImagesDamaged cuts and flips a payload; what is not noticed must be
// bytes that carry nothing.
func TestImagesDamaged(t *testing.T) {
	es := append(shell("", "full", false), shell("old", "new", false)...)
	step := 1
	if testing.Short() {
		step = 23
	}
	for _, b := range [][]byte{rig.Tar(t, es...), rig.Gzip(t, rig.Tar(t, es...))} {
		o := ReadOptions{SpoolDir: t.TempDir(), MaxBytes: 1 << 20}
		whole, err := readImages(b, o)
		require.NoError(t, err)
		for cut := 0; cut < len(b); cut += step {
			_, err := readImages(b[:cut], o)
			require.Error(t, err, cut)
		}
		if b[0] != 0x1f {
			continue // a plain tar has no checksum of its content
		}
		unnoticed := 0
		for i := 0; i < len(b); i += step {
			damaged := slices.Clone(b)
			damaged[i] ^= 1 << (i % 8)
			all, err := readImages(damaged, o)
			if err == nil {
				// The header of gzip and the bits that fill up its last byte.
				unnoticed++
				require.Equal(t, whole, all)
			}
		}
		require.Less(t, unnoticed, 12)
	}
}

func FuzzImages(f *testing.F) {
	f.Add(rig.Tar(f, append(shell("", "full", false), shell("old", "new", true)...)...))
	f.Add(rig.Gzip(f, rig.Tar(f, shell("", "full", false)...)))
	f.Add(rig.Tar(f, rig.Entry{Name: "images/../x"}))
	spool := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		var all []got
		if len(b) > 0 && b[0] != 0x1f {
			// Headers with a right checksum are hard to come by.
			rig.FixChecksums(b)
		}
		err := ReadImages(bytes.NewReader(b), ReadOptions{SpoolDir: spool, MaxBytes: 1 << 20, MaxSpool: 1 << 16}, func(info ImageInfo, r io.Reader) error {
			content, err := io.ReadAll(r)
			require.LessOrEqual(t, int64(len(content)), info.Size)
			all = append(all, got{info, string(content)})
			return err
		})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for _, g := range all {
			require.NoError(t, CheckURL(g.info.URLNew))
			require.Equal(t, g.info.Size, int64(len(g.content)))
		}
	})
}

// TestImagesWriterBest holds that the payload is what gzip -9 makes of the tar.
func TestImagesWriterBest(t *testing.T) {
	program, err := exec.LookPath("gzip")
	if err != nil {
		t.Skip("needs gzip")
	}
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = "0123456789abcdef"[i*i>>7&15]
	}
	write := func(best bool) []byte {
		var b bytes.Buffer
		w := NewImagesWriter(&b)
		if best {
			w.CompressBest()
		}
		require.NoError(t, w.Add(ImageInfo{Kind: KindFull, Digest: digest.Of([]byte("image")), URLNew: "shop/web:1"}, int64(len(content)), bytes.NewReader(content)))
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	payload := write(true)
	require.Less(t, len(payload), len(write(false)))
	unpacked, err := gzip.NewReader(bytes.NewReader(payload))
	require.NoError(t, err)
	tar, err := io.ReadAll(unpacked)
	require.NoError(t, err)
	require.Contains(t, string(tar), string(content))
	cmd := exec.Command(program, "-9nc")
	cmd.Stdin = bytes.NewReader(tar)
	want, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, want[10:], payload[10:], "all but the header, which names the system")
}
