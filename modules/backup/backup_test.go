package backup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

// part is a member of a tar that is made by hand.
type part struct {
	tar.Header
	content string
}

func file(name, content string) part {
	return part{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600}, content}
}

func archive(t testing.TB, parts ...part) string {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, p := range parts {
		require.NoError(t, tw.WriteHeader(&p.Header))
		_, err := io.WriteString(tw, p.content)
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	return out.String()
}

func packed(t testing.TB, text string) []byte {
	t.Helper()
	zw, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return zw.EncodeAll([]byte(text), nil)
}

// indexed adds the index of parts.
func indexed(t testing.TB, parts ...part) []part {
	t.Helper()
	x := index{Format: 1}
	for _, p := range parts {
		x.Members = append(x.Members, Member{p.Name, p.Size, digest.Of([]byte(p.content))})
	}
	text, err := json.Marshal(x)
	require.NoError(t, err)
	return append(parts, file(nameIndex, string(text)))
}

// release is an artifact of an application without images.
func release(t testing.TB, app, name string) string {
	t.Helper()
	meta := artifact.Metadata{Version: artifact.VersionCurrent, ApplicationName: app, Orchestrator: "docker-compose", Platform: "linux/amd64"}
	text, err := meta.Encode()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, mender.Write(&out, mender.Spec{
		Name: name, DeviceTypes: []string{"pump"}, PayloadType: mender.PayloadTypeApp, MetaData: text,
		Files: []mender.File{{Name: "manifests.tar.gz", Size: 4, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("text")), nil }}},
	}, mender.Options{}))
	return out.String()
}

// whole are the members of a good backup, without the index.
func whole(t testing.TB) []part {
	t.Helper()
	tree := archive(t, dir("0/"), file("0/a", "data"))
	return []part{
		file(NameValues, `{"CITY":"Oslo"}`),
		file("db/settings.json", `{"application":"db","artifact_name":"db-1","places":[{"volume":"data"}]}`),
		file("db/artifact.mender", release(t, "db", "db-1")),
		file("db/data.tar", tree),
		file("shop/settings.json", `{"application":"shop","artifact_name":"shop-1"}`),
		file("shop/artifact.mender", release(t, "shop", "shop-1")),
	}
}

func dir(name string) part {
	return part{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func TestVerify(t *testing.T) {
	good := packed(t, archive(t, indexed(t, whole(t)...)...))
	c, err := Verify(bytes.NewReader(good))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"CITY": "Oslo"}, c.Values)
	require.Equal(t, []string{"db", "shop"}, c.Apps)

	r, err := NewReader(bytes.NewReader(good), c)
	require.NoError(t, err)
	defer r.Close()
	var names []string
	for {
		name, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, name)
	}
	require.Equal(t, []string{"values.json", "db/settings.json", "db/artifact.mender", "db/data.tar", "shop/settings.json", "shop/artifact.mender"}, names)

	// Every shorter file is refused, and every single wrong byte of a part of it.
	for n := 0; n < len(good); n += 7 {
		_, err := Verify(bytes.NewReader(good[:n]))
		require.Error(t, err, n)
	}
	for i := 0; i < len(good); i += 13 {
		wrong := bytes.Clone(good)
		wrong[i] ^= 0x55
		if _, err := Verify(bytes.NewReader(wrong)); err == nil {
			// Only bits that zstd ignores may be wrong: what it unpacks is the same.
			zr, err := zstd.NewReader(nil)
			require.NoError(t, err)
			a, err := zr.DecodeAll(wrong, nil)
			require.NoError(t, err)
			b, err := zr.DecodeAll(good, nil)
			require.NoError(t, err)
			require.True(t, bytes.Equal(a, b), i)
		}
	}
}

// A file that changed after it was verified is refused when the member is used.
func TestChangedSinceVerified(t *testing.T) {
	parts := whole(t)
	c, err := Verify(bytes.NewReader(packed(t, archive(t, indexed(t, parts...)...))))
	require.NoError(t, err)
	parts[3].content = strings.Replace(parts[3].content, "data", "evil", 1)
	r, err := NewReader(bytes.NewReader(packed(t, archive(t, indexed(t, parts...)...))), c)
	require.NoError(t, err)
	defer r.Close()
	for range 4 {
		_, err = r.Next()
		require.NoError(t, err)
	}
	require.ErrorContains(t, r.End(), "it has changed since it was verified")
}

func TestHostileBackups(t *testing.T) {
	with := func(i int, p part) []part {
		parts := whole(t)
		parts[i] = p
		return indexed(t, parts...)
	}
	after := func(p ...part) []part { return append(indexed(t, whole(t)...), p...) }
	wrongSum := indexed(t, whole(t)...)
	wrongSum[0] = file(NameValues, `{"CITY":"Rome"}`)
	link := file("db/settings.json", "")
	link.Typeflag, link.Linkname = tar.TypeSymlink, "/etc/passwd"
	for name, c := range map[string]struct {
		parts []part
		want  string
	}{
		"no index":                {whole(t), "it is not whole"},
		"another sum":             {wrongSum, "not those of its index"},
		"a member after it":       {after(file("till/settings.json", "{}")), "something follows its index"},
		"two indexes":             {after(file(nameIndex, "{}")), "something follows its index"},
		"a newer format":          {[]part{file(NameValues, "{}"), file(nameIndex, `{"format":2}`)}, "a newer mender-app wrote it"},
		"a link":                  {with(1, link), "is not a file"},
		"an absolute path":        {with(1, file("/etc/settings.json", "{}")), "a member"},
		"a path out of it":        {with(1, file("../settings.json", "{}")), "a member"},
		"a path deeper":           {with(1, file("db/x/settings.json", "{}")), "after"},
		"another name":            {with(1, file("db/more", "{}")), "after"},
		"values that come twice":  {with(1, file(NameValues, "{}")), "after"},
		"an application twice":    {indexed(t, append(whole(t), whole(t)[4], whole(t)[5])...), "after"},
		"no values":               {indexed(t, whole(t)[1:]...), "after"},
		"settings of another":     {with(1, file("db/settings.json", `{"application":"shop"}`)), "is about"},
		"settings that are none":  {with(1, file("db/settings.json", `[`)), "settings.json"},
		"a place in no directory": {with(1, file("db/settings.json", `{"application":"db","artifact_name":"db-1","places":[{"dir":"../etc"}]}`)), "has data in"},
		"data without a place":    {with(1, file("db/settings.json", `{"application":"db","artifact_name":"db-1"}`)), "data"},
		"a place without data":    {indexed(t, append(whole(t)[:3:3], whole(t)[4:]...)...), "data of db in 1 places"},
		"a wrong value":           {with(0, file(NameValues, `{"PATH OF":"x"}`)), "bad backup"},
		"another's artifact":      {with(2, file("db/artifact.mender", release(t, "shop", "db-1"))), "the artifact of db"},
		"another artifact":        {with(2, file("db/artifact.mender", release(t, "db", "db-2"))), "the artifact of db"},
		"no artifact":             {with(2, file("db/artifact.mender", "no")), "db"},
		"settings alone":          {indexed(t, whole(t)[:2]...), "after"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Verify(bytes.NewReader(packed(t, archive(t, c.parts...))))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Verify(bytes.NewReader(append(packed(t, archive(t, indexed(t, whole(t)...)...)), packed(t, "more")...)))
	require.ErrorContains(t, err, "something follows it")
	sparse := file("db/data.tar", "")
	sparse.PAXRecords = map[string]string{"GNU.sparse.x": "1"}
	text := archive(t, whole(t)[0])
	require.False(t, plain(&sparse.Header))
	_, err = Verify(strings.NewReader(text)) // no zstd
	require.ErrorIs(t, err, ErrFormat)
}

// What is refused in data is refused both when it is verified and when it is written, and
// nothing is written outside.
func TestHostileTrees(t *testing.T) {
	entry := func(kind byte, name, target string) part {
		return part{Header: tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o644}}
	}
	for name, parts := range map[string][]part{
		"a file at the top":       {file("0", "x")},
		"another place":           {dir("1/")},
		"a place with a zero":     {dir("00/")},
		"an absolute path":        {dir("0/"), file("/tmp/x", "x")},
		"a path out of it":        {dir("0/"), file("0/../../x", "x")},
		"no directory":            {dir("0/"), file("0/a/b", "x")},
		"through a link":          {dir("0/"), entry(tar.TypeSymlink, "0/a", "/tmp"), file("0/a/b", "x")},
		"through a file":          {dir("0/"), file("0/a", "x"), file("0/a/b", "x")},
		"twice":                   {dir("0/"), file("0/a", "x"), file("0/a", "y")},
		"a directory twice":       {dir("0/"), dir("0/a/"), dir("0/a/")},
		"over a link":             {dir("0/"), entry(tar.TypeSymlink, "0/a", "/etc/passwd"), file("0/a", "y")},
		"back in a directory":     {dir("0/"), dir("0/a/"), file("0/b", "x"), file("0/a/c", "x")},
		"a link to the outside":   {dir("0/"), entry(tar.TypeLink, "0/a", "../../etc/passwd")},
		"a link to absolute":      {dir("0/"), entry(tar.TypeLink, "0/a", "/etc/passwd")},
		"a device":                {dir("0/"), entry(tar.TypeBlock, "0/a", "")},
		"a type that is not ours": {dir("0/"), entry('Y', "0/a", "")},
		"no place":                {},
	} {
		t.Run(name, func(t *testing.T) {
			text := archive(t, parts...)
			_, err := ReadTree(strings.NewReader(text), nil, volume)
			require.ErrorIs(t, err, ErrFormat)
			outside := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(outside, "in"), 0o700))
			root, err := os.OpenRoot(filepath.Join(outside, "in"))
			require.NoError(t, err)
			defer root.Close()
			_, err = ReadTree(strings.NewReader(text), root, volume)
			require.ErrorIs(t, err, ErrFormat)
			left, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Len(t, left, 1)
		})
	}
	// A link within the data to what is not there is only found when it is written.
	text := archive(t, dir("0/"), entry(tar.TypeLink, "0/a", "0/none"))
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	_, err = ReadTree(strings.NewReader(text), root, volume)
	require.Error(t, err)
}

// volume is where the data of most tests is.
var volume = []Place{{Volume: "data"}}

// A backup brings no program that makes its caller somebody else into a directory that every
// user of the device may enter, and no link from a place to another one.
func TestRightsOfPrograms(t *testing.T) {
	program := func(name string, mode int64, capabilities string) part {
		p := file(name, "program")
		p.Mode = mode
		if capabilities != "" {
			p.Format, p.PAXRecords = tar.FormatPAX, map[string]string{capability: capabilities}
		}
		return p
	}
	public := dir("0/share/")
	public.Mode = 0o2775
	const netRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	text := archive(t, dir("0/"), program("0/capable", 0o755, netRaw), program("0/plain", 0o751, ""), program("0/setgid", 0o2755, ""), program("0/setuid", 0o4755, ""), public)
	for _, c := range []struct {
		place    Place
		weakened int
		modes    map[string]os.FileMode
	}{
		{Place{Dir: "/var/lib/shop"}, 3, map[string]os.FileMode{"capable": 0o755, "plain": 0o751, "setgid": 0o755, "setuid": 0o755, "share": os.ModeDir | os.ModeSetgid | 0o775}},
		{Place{Volume: "data"}, 0, map[string]os.FileMode{"capable": 0o755, "plain": 0o751, "setgid": os.ModeSetgid | 0o755, "setuid": os.ModeSetuid | 0o755, "share": os.ModeDir | os.ModeSetgid | 0o775}},
	} {
		to := t.TempDir()
		root, err := os.OpenRoot(to)
		require.NoError(t, err)
		defer root.Close()
		weakened, err := ReadTree(strings.NewReader(text), root, []Place{c.place})
		if errors.Is(err, unix.EPERM) && os.Getuid() != 0 {
			t.Skip("needs root, to give programs rights")
		}
		require.NoError(t, err)
		require.Equal(t, c.weakened, weakened)
		for name, mode := range c.modes {
			st, err := os.Lstat(filepath.Join(to, "0", name))
			require.NoError(t, err)
			require.Equal(t, mode, st.Mode(), name)
		}
		_, err = unix.Lgetxattr(filepath.Join(to, "0", "capable"), "security.capability", make([]byte, 64))
		require.Equal(t, c.weakened > 0, errors.Is(err, unix.ENODATA), "capabilities")
	}
	link := part{Header: tar.Header{Typeflag: tar.TypeLink, Name: "1/a", Linkname: "0/setuid"}}
	_, err := ReadTree(strings.NewReader(archive(t, dir("0/"), program("0/setuid", 0o4755, ""), dir("1/"), link)), nil, []Place{{Volume: "data"}, {Dir: "/var/lib/shop"}})
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, `a link to "0/setuid"`)
}

// TestTree: what is written comes back with everything that it had.
func TestTree(t *testing.T) {
	from := t.TempDir()
	in := func(name string) string { return filepath.Join(from, "0", name) }
	require.NoError(t, os.MkdirAll(in("sub/deep"), 0o750))
	require.NoError(t, os.WriteFile(in("sub/file"), []byte("text"), 0o640))
	require.NoError(t, os.Chmod(in("sub/file"), 0o4751))
	require.NoError(t, os.Link(in("sub/file"), in("same")))
	require.NoError(t, os.Symlink("/no/where", in("link")))
	require.NoError(t, unix.Mkfifo(in("pipe"), 0o600))
	require.NoError(t, unix.Mknod(in("socket"), unix.S_IFSOCK|0o660, 0))
	require.NoError(t, os.WriteFile(in("sub.first"), bytes.Repeat([]byte("long"), 50000), 0o600))
	const hole = 1 << 20
	f, err := os.Create(in("sparse"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("data"), hole)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(2*hole))
	require.NoError(t, f.Close())
	marked := unix.Lsetxattr(in("sub/file"), "user.kind", []byte("x\x00y"), 0) == nil
	then := time.Unix(1_000_000_000, 123456789)
	for _, name := range []string{"sub/file", "sub/deep", "sub", ""} {
		require.NoError(t, os.Chtimes(in(name), then, then))
	}

	var out bytes.Buffer
	require.NoError(t, WriteTree(&out, from))
	size, err := TreeSize(from, 1<<30)
	require.NoError(t, err)
	require.EqualValues(t, out.Len(), size)
	_, err = ReadTree(bytes.NewReader(out.Bytes()), nil, volume)
	require.NoError(t, err)
	to := t.TempDir()
	root, err := os.OpenRoot(to)
	require.NoError(t, err)
	defer root.Close()
	weakened, err := ReadTree(bytes.NewReader(out.Bytes()), root, volume)
	require.NoError(t, err)
	require.Zero(t, weakened, "nobody but the engine enters a volume")
	for _, name := range []string{"", "sub", "sub/deep", "sub/file", "sub.first", "same", "link", "pipe", "socket", "sparse"} {
		var a, b unix.Stat_t
		require.NoError(t, unix.Lstat(in(name), &a))
		require.NoError(t, unix.Lstat(filepath.Join(to, "0", name), &b), name)
		require.Equal(t, a.Mode, b.Mode, name)
		require.Equal(t, []uint32{a.Uid, a.Gid}, []uint32{b.Uid, b.Gid}, name)
		require.Equal(t, a.Mtim, b.Mtim, name)
		if a.Mode&unix.S_IFMT == unix.S_IFREG {
			require.Equal(t, a.Nlink, b.Nlink, name)
			text, err := os.ReadFile(in(name))
			require.NoError(t, err)
			copied, err := os.ReadFile(filepath.Join(to, "0", name))
			require.NoError(t, err)
			require.True(t, bytes.Equal(text, copied), name)
		}
		if name == "sparse" {
			require.Less(t, b.Blocks*512, int64(hole), "the hole takes space")
		}
	}
	if marked {
		value := make([]byte, 10)
		n, err := unix.Lgetxattr(filepath.Join(to, "0/sub/file"), "user.kind", value)
		require.NoError(t, err)
		require.Equal(t, "x\x00y", string(value[:n]))
	}
	target, err := os.Readlink(filepath.Join(to, "0/link"))
	require.NoError(t, err)
	require.Equal(t, "/no/where", target)
}

// What the writer writes, Verify accepts; a member of another size is refused.
func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, time.Unix(0, 0))
	require.NoError(t, err)
	require.NoError(t, w.AddJSON(NameValues, map[string]string{"A": "b"}))
	require.NoError(t, w.AddJSON("shop/"+NameSettings, Settings{Application: "shop", ArtifactName: "shop-1"}))
	text := release(t, "shop", "shop-1")
	require.Error(t, w.Add("shop/"+NameArtifact, int64(len(text)+1), func(o io.Writer) error { _, err := io.WriteString(o, text); return err }))
	w.Abort()

	out.Reset()
	w, err = NewWriter(&out, time.Unix(0, 0))
	require.NoError(t, err)
	require.NoError(t, w.AddJSON(NameValues, map[string]string{"A": "b"}))
	require.NoError(t, w.AddJSON("shop/"+NameSettings, Settings{Application: "shop", ArtifactName: "shop-1"}))
	require.NoError(t, w.Add("shop/"+NameArtifact, int64(len(text)), func(o io.Writer) error { _, err := io.WriteString(o, text); return err }))
	require.NoError(t, w.Close())
	c, err := Verify(&out)
	require.NoError(t, err)
	require.Equal(t, "shop", c.Apps[0])
}

// FuzzVerify: no tar makes Verify panic or take much memory, whatever zstd had unpacked.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(archive(f, indexed(f, whole(f)...)...)))
	f.Add([]byte(archive(f, whole(f)...)))
	f.Fuzz(func(t *testing.T, text []byte) {
		zw, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		_, _ = Verify(bytes.NewReader(zw.EncodeAll(text, nil)))
		_ = zw.Close()
	})
}

// FuzzReadTree: nothing is written outside of the root.
func FuzzReadTree(f *testing.F) {
	f.Add([]byte(archive(f, dir("0/"), file("0/a", "data"), dir("0/b/"), file("0/b/c", ""))))
	f.Fuzz(func(t *testing.T, text []byte) {
		outside := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(outside, "in"), 0o700))
		root, err := os.OpenRoot(filepath.Join(outside, "in"))
		require.NoError(t, err)
		defer root.Close()
		_, _ = ReadTree(bytes.NewReader(text), root, volume)
		left, err := os.ReadDir(outside)
		require.NoError(t, err)
		require.Len(t, left, 1)
	})
}

// Holes cost no time when a backup is planned, and one that would take hours is refused.
func TestHoles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "0"), 0o755))
	hole := filepath.Join(dir, "0", "hole")
	require.NoError(t, os.WriteFile(hole, nil, 0o600))
	const size = 8 << 40
	require.NoError(t, os.Truncate(hole, size))
	n, err := TreeSize(dir, 2*size)
	require.NoError(t, err)
	require.Greater(t, n, int64(size))
	require.Less(t, n, int64(size)+1<<20)
	_, err = TreeSize(dir, size-1)
	require.ErrorIs(t, err, ErrHoles)
	require.ErrorContains(t, err, "0/hole")
}
