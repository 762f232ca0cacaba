package artifact

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// unpackTo reads a payload into a new directory and returns it; beside the
// directory lies a file that nothing may touch.
func unpackTo(t testing.TB, b []byte, limits ManifestLimits) (string, error) {
	t.Helper()
	top := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(top, "beside"), []byte("untouched"), 0o600))
	dir := filepath.Join(top, "root")
	require.NoError(t, os.Mkdir(dir, 0o755))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	err = ReadManifests(bytes.NewReader(b), root, limits)
	names, derr := os.ReadDir(top)
	require.NoError(t, derr)
	require.Len(t, names, 2)
	beside, derr := os.ReadFile(filepath.Join(top, "beside"))
	require.NoError(t, derr)
	require.Equal(t, "untouched", string(beside))
	return dir, err
}

// someTree makes a directory as a person may have it.
func someTree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		require.NoError(t, os.Chmod(name, mode))
	}
	write("docker-compose.yml", "services: {}\n", 0o664)
	write("hooks/check", "#!/bin/sh\n", 0o755)
	write("secret.env", "A=1\n", 0o600)
	write("env/deep/er/x y", strings.Repeat("data", 5000), 0o644)
	write("ro", "", 0o444)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o750))
	require.NoError(t, os.Symlink("docker-compose.yml", filepath.Join(dir, "compose.yaml")))
	require.NoError(t, os.Symlink("../../compose.yaml", filepath.Join(dir, "env/deep/up")))
	require.NoError(t, os.Symlink("env/deep", filepath.Join(dir, "shortcut")))
	return dir
}

func TestManifestsRoundTrip(t *testing.T) {
	dir := someTree(t)
	var a, b bytes.Buffer
	size, err := WriteManifests(&a, os.DirFS(dir))
	require.NoError(t, err)
	_, err = WriteManifests(&b, os.DirFS(dir))
	require.NoError(t, err)
	require.Equal(t, a.Bytes(), b.Bytes())
	require.EqualValues(t, 13+10+4+20000, size.Files)

	out, err := unpackTo(t, a.Bytes(), ManifestLimits{MaxBytes: size.Payload})
	require.NoError(t, err)
	// Modes that are dropped or added: group's writing, owner's.
	require.NoError(t, os.Chmod(filepath.Join(dir, "docker-compose.yml"), 0o644))
	require.NoError(t, os.Chmod(filepath.Join(dir, "ro"), 0o644))
	require.NoError(t, os.Chmod(out, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	require.Equal(t, listing(t, dir), listing(t, out))

	_, err = unpackTo(t, a.Bytes(), ManifestLimits{MaxBytes: size.Payload - 1})
	require.ErrorIs(t, err, ErrTooLarge)
}

// TestManifestsRealTar exchanges payloads with the tar of this machine.
func TestManifestsRealTar(t *testing.T) {
	need(t, "tar")
	dir := someTree(t)
	top := t.TempDir()
	run(t, "cp", "-a", dir, filepath.Join(top, "manifests"))
	run(t, "tar", "-C", top, "-czf", filepath.Join(top, ManifestsPayload), "manifests")
	b, err := os.ReadFile(filepath.Join(top, ManifestsPayload))
	require.NoError(t, err)
	out, err := unpackTo(t, b, ManifestLimits{})
	require.NoError(t, err)
	run(t, "diff", "-r", dir, out)

	var buf bytes.Buffer
	_, err = WriteManifests(&buf, os.DirFS(dir))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(top, ManifestsPayload), buf.Bytes(), 0o644))
	back := t.TempDir()
	run(t, "tar", "-C", back, "-xzf", filepath.Join(top, ManifestsPayload))
	run(t, "diff", "-r", dir, filepath.Join(back, "manifests"))
}

func TestManifestsHostile(t *testing.T) {
	m := func(name, body string) entry { return entry{name: "manifests/" + name, body: body} }
	link := func(name, target string) entry {
		return entry{name: "manifests/" + name, typ: tar.TypeSymlink, link: target}
	}
	deep := strings.Repeat("d/", maxDepth)
	for _, c := range []struct {
		name    string
		entries []entry
		limits  ManifestLimits
		is      error
		says    string
	}{
		{"absolute", []entry{{name: "/manifests/x"}}, ManifestLimits{}, ErrPayload, "absolute name"},
		{"dot-dot", []entry{m("../../beside", "x")}, ManifestLimits{}, ErrPayload, ".. in its name"},
		{"elsewhere", []entry{{name: "manifest/x"}}, ManifestLimits{}, ErrPayload, "not below manifests/"},
		{"the root is a file", []entry{{name: "manifests"}}, ManifestLimits{}, ErrPayload, "not a directory"},
		{"control character", []entry{m("a\nb", "")}, ManifestLimits{}, ErrPayload, "cannot be printed"},
		{"hard link", []entry{m("a", ""), {name: "manifests/b", typ: tar.TypeLink, link: "manifests/a"}}, ManifestLimits{}, ErrPayload, "a hard link"},
		{"character device", []entry{{name: "manifests/null", typ: tar.TypeChar}}, ManifestLimits{}, ErrPayload, "a device"},
		{"block device", []entry{{name: "manifests/sda", typ: tar.TypeBlock}}, ManifestLimits{}, ErrPayload, "a device"},
		{"FIFO", []entry{{name: "manifests/fifo", typ: tar.TypeFifo}}, ManifestLimits{}, ErrPayload, "a FIFO"},
		{"absolute link", []entry{link("x", "/etc/passwd")}, ManifestLimits{}, ErrPayload, "leads out of the tree"},
		{"link out", []entry{link("x", "../beside")}, ManifestLimits{}, ErrPayload, "leads out of the tree"},
		{"link out by a link", []entry{m("d/e/f", ""), link("d/e/up", "../.."), link("d/e/x", "up/../beside")}, ManifestLimits{}, ErrPayload, "leads out of the tree"},
		{"dangling link", []entry{link("x", "nowhere")}, ManifestLimits{}, ErrPayload, "leads to nothing"},
		{"link through a file", []entry{m("f", ""), link("x", "f/..")}, ManifestLimits{}, ErrPayload, "leads through a file"},
		{"link loop", []entry{link("a", "b"), link("b", "a")}, ManifestLimits{}, ErrPayload, "never ends"},
		{"file through a link", []entry{link("x", ".."), m("x/beside", "gone")}, ManifestLimits{}, ErrPayload, "not a directory"},
		{"file through a link, link last", []entry{m("x/beside", "gone"), link("x", "..")}, ManifestLimits{}, ErrPayload, "twice"},
		{"file over a link", []entry{link("x", "../beside"), m("x", "gone")}, ManifestLimits{}, ErrPayload, "twice"},
		{"file twice", []entry{m("x", "1"), m("./x", "2")}, ManifestLimits{}, ErrPayload, "twice"},
		{"file below a file", []entry{m("x", "1"), m("x/y", "2")}, ManifestLimits{}, ErrPayload, "not a directory"},
		{"directory over a file", []entry{m("x", "1"), {name: "manifests/x/", typ: tar.TypeDir}}, ManifestLimits{}, ErrPayload, "twice"},
		{"too deep", []entry{m(deep+"x", "")}, ManifestLimits{}, ErrPayload, "directories deep"},
		{"too many", []entry{m("a", ""), m("b", ""), m("c", "")}, ManifestLimits{MaxEntries: 2}, ErrTooLarge, "more than"},
		{"too many directories", []entry{m("a/b/c/d", "")}, ManifestLimits{MaxEntries: 2}, ErrTooLarge, "more than 2"},
		{"too large", []entry{m("a", strings.Repeat("x", 10000))}, ManifestLimits{MaxBytes: 8192}, ErrTooLarge, "8192"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := unpackTo(t, makeTar(t, c.entries...), c.limits)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	links := []entry{m("d/f", "")}
	for i := range 2000 {
		links = append(links, link(fmt.Sprintf("l%d", i), strings.Repeat("d/../", 800)+"d"))
	}
	_, err := unpackTo(t, makeTar(t, links...), ManifestLimits{})
	require.ErrorContains(t, err, "takes too long")
	bomb := gz(t, makeTar(t, m("zero", strings.Repeat("\x00", 64<<20))))
	_, err = unpackTo(t, bomb, ManifestLimits{MaxBytes: 1 << 20})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestManifestsModes(t *testing.T) {
	b := makeTar(t,
		entry{name: "manifests/suid", mode: 0o6777}, entry{name: "manifests/none", mode: 0o1000},
		entry{name: "manifests/d/", typ: tar.TypeDir, mode: 0o3777})
	out, err := unpackTo(t, b, ManifestLimits{})
	require.NoError(t, err)
	for name, mode := range map[string]os.FileMode{"suid": 0o755, "none": 0o600, "d": os.ModeDir | 0o755} {
		st, err := os.Stat(filepath.Join(out, name))
		require.NoError(t, err)
		require.Equal(t, mode, st.Mode())
	}
}

func TestManifestsDamaged(t *testing.T) {
	var buf bytes.Buffer
	_, err := WriteManifests(&buf, os.DirFS(someTree(t)))
	require.NoError(t, err)
	b := buf.Bytes()
	dir, err := unpackTo(t, b, ManifestLimits{})
	require.NoError(t, err)
	whole, unnoticed := listing(t, dir), 0
	for cut := 0; cut < len(b); cut += 7 {
		_, err := unpackTo(t, b[:cut], ManifestLimits{})
		require.Error(t, err, cut)
	}
	for i := 10; i < len(b); i += 7 {
		damaged := slices.Clone(b)
		damaged[i] ^= 0x10
		dir, err := unpackTo(t, damaged, ManifestLimits{})
		if err == nil { // bits that only fill up
			require.Equal(t, whole, listing(t, dir), i)
			unnoticed++
		}
	}
	require.Less(t, unnoticed, 3)
}

func TestWriteManifestsRefuses(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"link out":      func(dir string) error { return os.Symlink("../x", filepath.Join(dir, "x")) },
		"absolute link": func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "x")) },
		"dangling link": func(dir string) error { return os.Symlink("x", filepath.Join(dir, "y")) },
		"FIFO":          func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "x"), 0o600) },
		"newline":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\nb"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, make(dir))
			_, err := WriteManifests(new(bytes.Buffer), os.DirFS(dir))
			require.ErrorIs(t, err, ErrPayload)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	many := fstest.MapFS{}
	for i := range defaultMaxEntries + 1 {
		many[fmt.Sprint(i)] = &fstest.MapFile{}
	}
	_, err := WriteManifests(new(bytes.Buffer), many)
	require.ErrorIs(t, err, ErrTooLarge)
}

func FuzzManifests(f *testing.F) {
	var buf bytes.Buffer
	_, err := WriteManifests(&buf, os.DirFS(someTree(f)))
	require.NoError(f, err)
	f.Add(buf.Bytes())
	f.Add(makeTar(f, entry{name: "manifests/a/b", body: "x"}, entry{name: "manifests/l", typ: tar.TypeSymlink, link: "a/../a/b"}))
	f.Add(makeTar(f, entry{name: "manifests/../x"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0] != 0x1f {
			for at := 0; at+512 <= len(b); at += 512 {
				fixChecksum(b[at : at+512])
			}
		}
		dir, err := unpackTo(t, b, ManifestLimits{MaxBytes: 1 << 20, MaxEntries: 100})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		// What was unpacked can be packed again.
		_, err = WriteManifests(new(bytes.Buffer), os.DirFS(dir))
		require.NoError(t, err)
	})
}
