package artifact

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/internal/rig"
	"github.com/mender-app/mender-app/artifact/names"
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
	_, err = ReadManifests(bytes.NewReader(b), root, limits)
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
	rig.Need(t, "tar")
	dir := someTree(t)
	top := t.TempDir()
	rig.Run(t, "cp", "-a", dir, filepath.Join(top, "manifests"))
	rig.Run(t, "tar", "-C", top, "-czf", filepath.Join(top, ManifestsPayload), "manifests")
	b, err := os.ReadFile(filepath.Join(top, ManifestsPayload))
	require.NoError(t, err)
	out, err := unpackTo(t, b, ManifestLimits{})
	require.NoError(t, err)
	rig.Run(t, "diff", "-r", dir, out)

	var buf bytes.Buffer
	_, err = WriteManifests(&buf, os.DirFS(dir))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(top, ManifestsPayload), buf.Bytes(), 0o644))
	back := t.TempDir()
	rig.Run(t, "tar", "-C", back, "-xzf", filepath.Join(top, ManifestsPayload))
	rig.Run(t, "diff", "-r", dir, filepath.Join(back, "manifests"))
}

func TestManifestsHostile(t *testing.T) {
	m := func(name, body string) rig.Entry { return rig.Entry{Name: "manifests/" + name, Body: body} }
	link := func(name, target string) rig.Entry {
		return rig.Entry{Name: "manifests/" + name, Type: tar.TypeSymlink, Link: target}
	}
	deep := strings.Repeat("d/", maxDepth)
	for _, c := range []struct {
		name    string
		entries []rig.Entry
		limits  ManifestLimits
		is      error
		says    string
	}{
		{"absolute", []rig.Entry{{Name: "/manifests/x"}}, ManifestLimits{}, ErrPayload, "absolute name"},
		{"dot-dot", []rig.Entry{m("../../beside", "x")}, ManifestLimits{}, ErrPayload, ".. in its name"},
		{"elsewhere", []rig.Entry{{Name: "manifest/x"}}, ManifestLimits{}, ErrPayload, "not below manifests/"},
		{"the root is a file", []rig.Entry{{Name: "manifests"}}, ManifestLimits{}, ErrPayload, "not a directory"},
		{"control character", []rig.Entry{m("a\nb", "")}, ManifestLimits{}, ErrPayload, "cannot be printed"},
		{"hard link", []rig.Entry{m("a", ""), {Name: "manifests/b", Type: tar.TypeLink, Link: "manifests/a"}}, ManifestLimits{}, ErrPayload, "a hard link"},
		{"character device", []rig.Entry{{Name: "manifests/null", Type: tar.TypeChar}}, ManifestLimits{}, ErrPayload, "a device"},
		{"block device", []rig.Entry{{Name: "manifests/sda", Type: tar.TypeBlock}}, ManifestLimits{}, ErrPayload, "a device"},
		{"FIFO", []rig.Entry{{Name: "manifests/fifo", Type: tar.TypeFifo}}, ManifestLimits{}, ErrPayload, "a FIFO"},
		{"absolute link", []rig.Entry{link("x", "/etc/passwd")}, ManifestLimits{}, ErrPayload, "leads out of the tree"},
		{"link out", []rig.Entry{link("x", "../beside")}, ManifestLimits{}, ErrPayload, "leads out of the tree"},
		{"link out by a link", []rig.Entry{m("d/e/f", ""), link("d/e/up", "../.."), link("d/e/x", "up/../beside")}, ManifestLimits{}, ErrPayload, "leads out of the tree"},
		{"dangling link", []rig.Entry{link("x", "nowhere")}, ManifestLimits{}, ErrPayload, "leads to nothing"},
		{"link through a file", []rig.Entry{m("f", ""), link("x", "f/..")}, ManifestLimits{}, ErrPayload, "leads through a file"},
		{"link loop", []rig.Entry{link("a", "b"), link("b", "a")}, ManifestLimits{}, ErrPayload, "never ends"},
		{"file through a link", []rig.Entry{link("x", ".."), m("x/beside", "gone")}, ManifestLimits{}, ErrPayload, "not a directory"},
		{"file through a link, link last", []rig.Entry{m("x/beside", "gone"), link("x", "..")}, ManifestLimits{}, ErrPayload, "twice"},
		{"file over a link", []rig.Entry{link("x", "../beside"), m("x", "gone")}, ManifestLimits{}, ErrPayload, "twice"},
		{"file twice", []rig.Entry{m("x", "1"), m("./x", "2")}, ManifestLimits{}, ErrPayload, "twice"},
		{"file below a file", []rig.Entry{m("x", "1"), m("x/y", "2")}, ManifestLimits{}, ErrPayload, "not a directory"},
		{"directory over a file", []rig.Entry{m("x", "1"), {Name: "manifests/x/", Type: tar.TypeDir}}, ManifestLimits{}, ErrPayload, "twice"},
		{"too deep", []rig.Entry{m(deep+"x", "")}, ManifestLimits{}, ErrPayload, "directories deep"},
		{"too many", []rig.Entry{m("a", ""), m("b", ""), m("c", "")}, ManifestLimits{MaxEntries: 2}, ErrTooLarge, "more than"},
		{"too many directories", []rig.Entry{m("a/b/c/d", "")}, ManifestLimits{MaxEntries: 2}, ErrTooLarge, "more than 2"},
		{"more than ever", []rig.Entry{m("a", strings.Repeat("x", MaxManifests))}, ManifestLimits{MaxBytes: 1 << 40}, ErrTooLarge, "bytes"},
		{"too large", []rig.Entry{m("a", strings.Repeat("x", 10000))}, ManifestLimits{MaxBytes: 8192}, ErrTooLarge, "8192"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := unpackTo(t, rig.Tar(t, c.entries...), c.limits)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	links := []rig.Entry{m("d/f", "")}
	for i := range 700 {
		links = append(links, link(fmt.Sprintf("l%d", i), strings.Repeat("d/../", 800)+"d"))
	}
	_, err := unpackTo(t, rig.Tar(t, links...), ManifestLimits{})
	require.ErrorContains(t, err, "takes too long")
	bomb := rig.Gzip(t, rig.Tar(t, m("zero", strings.Repeat("\x00", 8<<20))))
	_, err = unpackTo(t, bomb, ManifestLimits{MaxBytes: 1 << 20})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestManifestsModes(t *testing.T) {
	b := rig.Tar(t,
		rig.Entry{Name: "manifests/suid", Mode: 0o6777}, rig.Entry{Name: "manifests/none", Mode: 0o1000},
		rig.Entry{Name: "manifests/d/", Type: tar.TypeDir, Mode: 0o3777})
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
	step := 7
	if testing.Short() {
		step = 61
	}
	for cut := 0; cut < len(b); cut += step {
		_, err := unpackTo(t, b[:cut], ManifestLimits{})
		require.Error(t, err, cut)
	}
	for i := 10; i < len(b); i += step {
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
		"long name": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat(strings.Repeat("x", 200)+"/", 5), "yyyyyyyyyyyy"), 0o755)
		},
		"newline": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\nb"), nil, 0o600) },
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
	for i := range MaxManifestEntries + 1 {
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
	f.Add(rig.Tar(f, rig.Entry{Name: "manifests/a/b", Body: "x"}, rig.Entry{Name: "manifests/l", Type: tar.TypeSymlink, Link: "a/../a/b"}))
	f.Add(rig.Tar(f, rig.Entry{Name: "manifests/../x"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0] != 0x1f {
			rig.FixChecksums(b)
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

// What one side refuses of a name, the other refuses in the same words.
func TestNamesOfManifests(t *testing.T) {
	long := strings.Repeat("x", names.MaxPathPart)
	for name, want := range map[string]string{
		"a\xff":                              "is not UTF-8",
		"a\nb":                               "cannot be printed",
		"d/" + long + "x":                    "no file system holds more than 255",
		strings.Repeat(long+"/", 4) + "file": "the maximum is 1014",
	} {
		_, err := WriteManifests(io.Discard, fstest.MapFS{name: {}})
		require.ErrorIs(t, err, ErrPayload)
		require.ErrorContains(t, err, want)

		var b bytes.Buffer
		w := tar.NewWriter(&b)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "manifests/" + name, Typeflag: tar.TypeReg}))
		require.NoError(t, w.Close())
		_, err = unpackTo(t, b.Bytes(), ManifestLimits{})
		require.ErrorIs(t, err, ErrPayload)
		if len(name) <= names.MaxPath { // the reader of tars refuses the others
			require.ErrorContains(t, err, want)
		}
	}
}
