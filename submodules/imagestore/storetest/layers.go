package storetest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"

	"github.com/mender-app/mender-app/submodules"
)

// A layerCase is a layer of a kind that a real writer makes.
type layerCase struct {
	name string
	// tar makes the layer's tar in two versions, 1 and 2, of which the second has
	// changed files.
	tar func(t *testing.T, version int) []byte
	// probe is the place of a regular file in the directory that the layer is
	// unpacked to.
	probe string
	// refused: engines do not take it. classic: Docker's classic store does not.
	refused, classic bool
}

// probe is a file that each layer has.
const probe = "dir/plain"

// plain is the content of a file in a version.
func plain(name string, version int) string {
	s := text(name, 20_000)
	if version == 2 {
		s = s[:9000] + "changed" + s[9007:]
	}
	return s
}

// layerCases are layers as real writers make them: what is installed of GNU tar,
// bsdtar, git, buildah and umoci makes its own, and those of other writers are made
// by hand in the shape that they write.
func layerCases() []layerCase {
	cases := []layerCase{
		{name: "git archive", tar: gitArchive, probe: probe},
		{name: "buildah", tar: buildah, probe: probe},
		{name: "umoci", tar: umoci, probe: probe},
	}
	for _, format := range []string{"v7", "oldgnu", "gnu", "ustar", "posix"} {
		cases = append(cases, layerCase{name: "GNU tar " + format, probe: probe, tar: func(t *testing.T, v int) []byte {
			return run(t, tree(t, v, format != "v7" && format != "ustar", false), "tar", "--format="+format, "-c", ".")
		}})
	}
	cases = append(cases, layerCase{name: "GNU tar sparse gnu", probe: probe, refused: true, tar: func(t *testing.T, v int) []byte {
		return run(t, tree(t, v, true, true), "tar", "--format=gnu", "--sparse", "-c", ".")
	}})
	for _, version := range []string{"0.0", "0.1", "1.0"} {
		cases = append(cases, layerCase{name: "GNU tar sparse " + version, probe: probe, tar: func(t *testing.T, v int) []byte {
			return run(t, tree(t, v, true, true), "tar", "--format=posix", "--sparse", "--sparse-version="+version, "-c", ".")
		}})
	}
	for _, format := range []string{"v7tar", "gnutar", "ustar", "pax"} {
		cases = append(cases, layerCase{name: "bsdtar " + format, probe: probe, tar: func(t *testing.T, v int) []byte {
			return run(t, tree(t, v, format == "pax" || format == "gnutar", format == "pax"), "bsdtar", "--format="+format, "-c", "-f", "-", ".")
		}})
	}
	for name, c := range madeByHand {
		at := c.probe
		if at == "" {
			at = probe
		}
		cases = append(cases, layerCase{name: name, probe: at, refused: c.refused, classic: c.classic, tar: func(t *testing.T, v int) []byte {
			var b bytes.Buffer
			w := &writer{tar.NewWriter(&b), &b, t}
			c.write(w, v)
			require.NoError(t, w.Close())
			return b.Bytes()
		}})
	}
	return cases
}

// tree makes a directory as build tools pack it.
func tree(t *testing.T, version int, long, sparse bool) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, data string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	write("dir/plain", plain("plain", version))
	write("dir/empty", "")
	write("größe/ä", "x")
	require.NoError(t, os.Link(filepath.Join(dir, "dir/plain"), filepath.Join(dir, "dir/hard")))
	require.NoError(t, os.Link(filepath.Join(dir, "dir/hard"), filepath.Join(dir, "dir/hard again")))
	require.NoError(t, os.Symlink("plain", filepath.Join(dir, "dir/soft")))
	require.NoError(t, os.Symlink("/dir", filepath.Join(dir, "absolute")))
	if long {
		write(strings.Repeat("directory/", 12)+strings.Repeat("n", 140), plain("long", version))
		write(strings.Repeat("directory/", 30)+"deep", "deep")
	}
	if sparse {
		f, err := os.Create(filepath.Join(dir, "dir/hole"))
		require.NoError(t, err)
		for i := range 30 { // more pieces than the header of the old format holds
			_, err = f.WriteAt([]byte(text("hole", 4096)), int64(i)<<17)
			require.NoError(t, err)
		}
		require.NoError(t, f.Truncate(5<<20))
		require.NoError(t, f.Close())
		write("dir/z after the hole", plain("after", version))
	}
	return dir
}

// run returns the output of a tool that packs a directory.
func run(t *testing.T, dir, tool string, args ...string) []byte {
	t.Helper()
	installed(t, tool)
	cmd := exec.Command(tool, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	require.NoError(t, err, "%s", says.Bytes())
	return out
}

// installed skips a test without a tool; in CI it fails it.
func installed(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func gitArchive(t *testing.T, version int) []byte {
	dir := tree(t, version, true, false)
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "-c", "user.email=a@example.com", "-c", "user.name=a", "commit", "-qm", "x")
	return run(t, dir, "git", "archive", "--format=tar", "HEAD")
}

// lastLayer returns the last layer of an archive of an image.
func lastLayer(t *testing.T, path string) []byte {
	t.Helper()
	a, err := image.OpenArchive(path)
	require.NoError(t, err)
	defer a.Close()
	layers := a.Images()[0].Layers
	r, err := layers[len(layers)-1].Open()
	require.NoError(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return b
}

func buildah(t *testing.T, version int) []byte {
	installed(t, "buildah")
	dir, out := tree(t, version, true, true), filepath.Join(t.TempDir(), "image")
	root := t.TempDir()
	args := func(a ...string) []string {
		return append([]string{"--root", root + "/r", "--runroot", root + "/rr", "--storage-driver", "vfs"}, a...)
	}
	run(t, dir, "buildah", args("from", "--name", "c", "scratch")...)
	run(t, dir, "buildah", args("copy", "c", ".", "/")...)
	run(t, dir, "buildah", args("commit", "--disable-compression", "c", "docker-archive:"+out)...)
	return lastLayer(t, out)
}

func umoci(t *testing.T, version int) []byte {
	installed(t, "umoci")
	installed(t, "skopeo")
	dir, work := tree(t, version, true, false), t.TempDir()
	for _, link := range []string{"hard", "hard again"} { // it takes any of the names for the file
		require.NoError(t, os.Remove(filepath.Join(dir, "dir", link)))
	}
	run(t, work, "umoci", "init", "--layout", "l")
	run(t, work, "umoci", "new", "--image", "l:a")
	run(t, work, "umoci", "insert", "--image", "l:a", dir, "/")
	run(t, work, "skopeo", "--insecure-policy", "copy", "-q", "oci:l:a", "docker-archive:image")
	return lastLayer(t, filepath.Join(work, "image"))
}

// writer writes layers by hand.
type writer struct {
	*tar.Writer
	b *bytes.Buffer
	t *testing.T
}

func (w *writer) put(h tar.Header, data string) {
	w.t.Helper()
	h.Size = int64(len(data))
	if h.Typeflag == 0 {
		h.Typeflag = tar.TypeReg
	}
	if h.Typeflag != tar.TypeXGlobalHeader {
		h.Mode, h.ModTime = h.Mode|0o644, time.Unix(1.7e9, 0)
	}
	require.NoError(w.t, w.WriteHeader(&h))
	_, err := io.WriteString(w, data)
	require.NoError(w.t, err)
}

func (w *writer) file(name, data string) { w.t.Helper(); w.put(tar.Header{Name: name}, data) }
func (w *writer) dir(name string) {
	w.t.Helper()
	w.put(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, "")
}
func (w *writer) soft(name, to string) {
	w.t.Helper()
	w.put(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}, "")
}
func (w *writer) hard(name, to string) {
	w.t.Helper()
	w.put(tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}, "")
}

// header writes a header block whose type and size archive/tar would not write; data
// follows it.
func (w *writer) header(h tar.Header, edit func(block []byte), data string) {
	w.t.Helper()
	require.NoError(w.t, w.Flush())
	at := w.b.Len()
	h.Typeflag, h.Mode, h.Size, h.Format = tar.TypeReg, 0o644, int64(len(data)), tar.FormatGNU
	require.NoError(w.t, w.WriteHeader(&h))
	_, err := io.WriteString(w, data)
	require.NoError(w.t, err)
	require.NoError(w.t, w.Flush())
	block := w.b.Bytes()[at : at+512]
	edit(block)
	checksum(block)
}

// madeByHand are the layers made by hand.
var madeByHand = map[string]struct {
	write   func(w *writer, version int)
	probe   string
	refused bool // by every store
	classic bool // by Docker's classic store
}{
	// ko, jib and Bazel's rules write directories and files in order, with a fixed
	// time, ko with a slash before the names; kaniko writes the root and the directories
	// of what changed; Nix writes names with ./ and the root itself, read-only.
	"ko": {write: func(w *writer, v int) {
		w.put(tar.Header{Typeflag: tar.TypeDir, Name: "dir", Mode: 0o555}, "")
		w.put(tar.Header{Name: "/dir/plain", Mode: 0o555}, plain("plain", v))
		w.put(tar.Header{Typeflag: tar.TypeSymlink, Name: "/dir/link", Linkname: "/dir/plain"}, "")
	}},
	"kaniko": {write: func(w *writer, v int) {
		w.dir("/")
		w.dir("dir/")
		w.file("dir/plain", plain("plain", v))
		w.file("/other/.wh.gone", "")
	}},
	"jib": {write: func(w *writer, v int) {
		w.dir("dir/")
		w.put(tar.Header{Name: "dir/plain", ModTime: time.Unix(1, 0), Format: tar.FormatPAX}, plain("plain", v))
	}},
	"nix": {write: func(w *writer, v int) {
		w.dir("./")
		w.put(tar.Header{Typeflag: tar.TypeDir, Name: "./dir/", Mode: 0o555}, "")
		w.put(tar.Header{Name: "./dir/plain", Mode: 0o444}, plain("plain", v))
		w.hard("./dir/same", "./dir/plain")
	}},
	"global headers": {write: func(w *writer, v int) {
		w.put(tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": fmt.Sprint(v)}}, "")
		w.file(probe, plain("plain", v))
		w.put(tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "some/where/else", PAXRecords: map[string]string{"comment": "more"}}, "")
		w.file("dir/z", plain("z", v))
	}},
	"links of links": {write: func(w *writer, v int) {
		w.file(probe, plain("plain", v))
		w.hard("dir/b", "dir/plain")
		w.hard("c", "/dir/b")
		w.soft("s", "dir/plain")
		w.hard("hard of soft", "s")
	}},
	"a link with the size of its file": {write: func(w *writer, v int) {
		w.file(probe, plain("plain", v))
		w.header(tar.Header{Name: "dir/hard"}, func(b []byte) {
			b[156] = tar.TypeLink
			copy(b[157:], probe)
			copy(b[124:], fmt.Sprintf("%011o\x00", len(plain("plain", v))))
		}, "")
		w.file("dir/z", plain("z", v))
	}},
	"removed and made again": {write: func(w *writer, v int) {
		w.file(".wh.dir", "")
		w.dir("dir/")
		w.file(probe, plain("plain", v))
	}},
	"opaque before": {write: func(w *writer, v int) {
		w.dir("dir/")
		w.file("dir/.wh..wh..opq", "")
		w.file(probe, plain("plain", v))
	}},
	"opaque after": {write: func(w *writer, v int) {
		w.dir("dir/")
		w.file(probe, plain("plain", v))
		w.file("dir/.wh..wh..opq", "")
	}},
	"opaque without a directory": {write: func(w *writer, v int) {
		w.file("dir/.wh..wh..opq", "")
		w.file(probe, plain("plain", v))
	}},
	"made and removed": {refused: true, write: func(w *writer, v int) {
		w.file("dir/gone", "x")
		w.file("dir/.wh.gone", "")
		w.file(probe, plain("plain", v))
	}},
	"AUFS": {write: func(w *writer, v int) {
		w.dir(".wh..wh.plnk/")
		w.file(".wh..wh.aufs", "")
		w.file(probe, plain("plain", v))
	}},
	"a whiteout with content": {write: func(w *writer, v int) {
		w.file("dir/.wh.gone", "not empty")
		w.file(probe, plain("plain", v))
	}},
	"slashes": {write: func(w *writer, v int) {
		w.dir("dir//")
		w.dir("other/./")
		w.file("other/../dir/./plain", plain("plain", v))
		w.file("../../climbs", "x")
		w.file("//absolute", "x")
		w.header(tar.Header{Name: "file/with/slash"}, func(b []byte) { copy(b, "file/with/slash/\x00") }, "x")
		w.header(tar.Header{Name: "dir7"}, func(b []byte) { copy(b, "dir7/\x00"); b[156] = 0 }, "")
	}},
	"a directory twice": {classic: true, write: func(w *writer, v int) {
		w.dir("dir/")
		w.file(probe, plain("plain", v))
		w.dir("./dir")
	}},
	"twice": {classic: true, write: func(w *writer, v int) {
		w.file(probe, "an older one")
		w.file("dir/shrinks", plain("shrinks", v))
		w.file("dir/./plain", plain("plain", v))
		w.file("dir/shrinks", "")
		w.file("file, then link", plain("link", v))
		w.soft("file, then link", "dir/plain")
		w.soft("link, then file", "dir/shrinks")
		w.file("link, then file", plain("file", v))
	}},
	"a directory that becomes a file": {classic: true, write: func(w *writer, v int) {
		w.file("d/a", "gone")
		w.file("d/b/c", "gone, too")
		w.file("d", plain("d", v))
		w.file("e", "an older one")
		w.dir("e/")
		w.file("e/f", plain("f", v))
		w.file(probe, plain("plain", v))
	}},
	"numbers": {write: func(w *writer, v int) {
		w.put(tar.Header{Name: probe, Uid: 1 << 30, Gid: 1 << 30, Format: tar.FormatGNU}, plain("plain", v))
		w.put(tar.Header{Name: "dir/pax", Uid: 1 << 30, Gid: 1 << 30, Format: tar.FormatPAX}, plain("pax", v))
		w.header(tar.Header{Name: "dir/base256"}, func(b []byte) { // the size in base 256
			copy(b[124:136], []byte{0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20_000 >> 8, 20_000 & 0xff})
		}, plain("base256", v))
		w.file("dir/z", plain("z", v))
	}},
	"an absolute link": {probe: "run/app", write: func(w *writer, v int) {
		w.dir("run/")
		w.dir("var/")
		w.soft("var/run", "/run")
		w.file("var/run/app", plain("app", v))
	}},
	"a link that climbs": {probe: "run/app", write: func(w *writer, v int) {
		w.dir("run/")
		w.dir("var/")
		w.soft("var/run", "../../../run")
		w.file("var/run/app", plain("app", v))
	}},
	"links to links": {probe: "a/b/app", write: func(w *writer, v int) {
		w.dir("a/b/")
		w.soft("one", "/two")
		w.soft("two", "a/three")
		w.soft("a/three", "/a/b")
		w.file("one/app", plain("app", v))
		w.soft("one/up", "../..")
		w.file("one/up/top", plain("top", v))
	}},
	"one file by two names": {probe: "run/app", write: func(w *writer, v int) {
		w.dir("run/")
		w.soft("var", "/")
		w.file("var/run/app", "an older one")
		w.file("run/app", plain("app", v))
		w.file("run/other", "an older one")
		w.file("var/run/other", plain("other", v))
	}},
	"a link into nothing": {classic: true, probe: "not/here/app", write: func(w *writer, v int) {
		w.soft("run", "/not/here")
		w.file("run/app", plain("app", v))
	}},
	"a volume label": {refused: true, write: func(w *writer, v int) {
		w.header(tar.Header{Name: "label"}, func(b []byte) { b[156] = 'V' }, "")
		w.file(probe, plain("plain", v))
	}},
	"a contiguous file": {refused: true, write: func(w *writer, v int) {
		w.header(tar.Header{Name: probe}, func(b []byte) { b[156] = tar.TypeCont }, plain("plain", v))
	}},
}

// testLayers takes each layer through its life: it is loaded, it is the old content of
// a delta, and it is verified and repaired.
func testLayers(s *suite) {
	for _, c := range layerCases() {
		s.in(c.name, func(s *suite) {
			base := tarOf(s.T, "base", text(s.app+" base", 2000))
			of := func(v int) made {
				return build(s.T, s.Platform, s.app+" "+c.name, "", base, c.tar(s.T, v))
			}
			old, next := of(1), of(2)
			require.NotEqual(s, old.img.DiffIDs, next.img.DiffIDs)
			if c.refused || c.classic && s.Classic {
				err := s.load(s.request(old), archive(s.T, old))
				s.Logf("refused: %v", err)
				require.Error(s, err)
				return
			}
			require.NoError(s, s.load(s.request(old), archive(s.T, old)))
			s.whole(old)
			d := Delta(s.T, old.img, next.img)
			require.Less(s, len(d), 20_000, "files are changed ones of the old layer")
			require.NoError(s, s.load(s.request(next), d))
			s.whole(next)
			s.whole(old)
			require.NoError(s, s.repair(old, false), "nothing is damaged")

			file := filepath.Join(s.unpacked(old, 1), c.probe)
			require.NoError(s, os.WriteFile(file, bytes.Repeat([]byte("x"), 20_000), 0o644))
			img, err := s.Store.Find(s.Context(), s.app, old.id(), "")
			require.NoError(s, err)
			bad, err := s.Store.Damages(s.Context(), img)
			require.NoError(s, err)
			require.Len(s, bad, 1)
			require.Equal(s, 1, strings.Count(bad[0], "is damaged"), bad[0])
			if err := s.repair(old, false); err != nil {
				require.ErrorIs(s, err, submodules.ErrContent)
				require.NoError(s, s.repair(old, true))
			}
			s.whole(old)
			s.whole(next)
		})
	}
}
