package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mender-app/mender-app/delta/vcdiff"
	"github.com/stretchr/testify/require"
)

// files is an archive's content by name; links begin with "-> ".
type files map[string]string

func unpack(t testing.TB, r io.Reader) files {
	t.Helper()
	out := files{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		switch h.Typeflag {
		case tar.TypeReg:
			b, err := io.ReadAll(tr)
			require.NoError(t, err)
			out[path.Clean(h.Name)] = string(b)
		case tar.TypeSymlink:
			out[path.Clean(h.Name)] = "-> " + h.Linkname
		}
	}
}

func unpackFile(t testing.TB, name string) files {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	return unpack(t, f)
}

func pack(t testing.TB, in files) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(in)) {
		h := &tar.Header{Name: "./" + name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(in[name]))}
		link, ok := strings.CutPrefix(in[name], "-> ")
		if ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		}
		require.NoError(t, tw.WriteHeader(h))
		if !ok {
			_, err := io.WriteString(tw, in[name])
			require.NoError(t, err)
		}
	}
	require.NoError(t, tw.Close())
	return buf.Bytes()
}

// old is an old image's content by digest; it counts what is open.
type old struct {
	blobs map[string]string
	open  int
}

func oldImage(in files) *old {
	o := &old{blobs: map[string]string{}}
	for _, content := range in {
		o.blobs[sum(content)] = content
	}
	return o
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func (o *old) OpenBlob(_ context.Context, digest string) (Blob, error) {
	s, ok := o.blobs[digest]
	if !ok {
		return nil, fmt.Errorf("blob %s: %w", digest, fs.ErrNotExist)
	}
	o.open++
	return &blob{strings.NewReader(s), o}, nil
}

type blob struct {
	*strings.Reader
	o *old
}

func (b *blob) Close() error {
	b.o.open--
	return nil
}

func plan(b []byte) (*Archive, error) { return Plan(bytes.NewReader(b), int64(len(b))) }

func rebuild(t testing.TB, delta []byte, o *old) (files, error) {
	t.Helper()
	a, err := plan(delta)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	err = a.WriteTar(context.Background(), &buf, o, nil)
	require.Zero(t, o.open, "blobs left open")
	if err != nil {
		return nil, err
	}
	return unpack(t, &buf), nil
}

type fixture struct {
	delta files
	old   *old
	sums  map[string]string // of the new image
}

func load(t testing.TB, name string) fixture {
	t.Helper()
	f := fixture{
		delta: unpackFile(t, "testdata/"+name+"-delta.tar"),
		old:   oldImage(unpackFile(t, "testdata/"+name+"-old.tar")),
		sums:  map[string]string{},
	}
	b, err := os.ReadFile("testdata/" + name + "-new.sums")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		f.sums[name] = sum
	}
	return f
}

// named gives the one file of the delta whose name ends so.
func (f fixture) named(t testing.TB, suffix string) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(f.delta)) {
		if strings.HasSuffix(name, suffix) {
			return name
		}
	}
	t.Fatalf("no %s", suffix)
	return ""
}

func same(t testing.TB, sums map[string]string, got files) {
	t.Helper()
	have := map[string]string{}
	for name, content := range got {
		if !strings.HasPrefix(content, "-> ") {
			have[name] = sum(content)
		}
	}
	require.Equal(t, sums, have)
}

func TestVectors(t *testing.T) {
	for name, want := range map[string]struct {
		format Format
		kinds  map[Kind]int
	}{
		"docker": {DockerArchive, map[Kind]int{Delta: 3, Unchanged: 1, Symlink: 1, Verbatim: 12}},
		"oci":    {OCILayout, map[Kind]int{Delta: 2, Unchanged: 1, Verbatim: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			f := load(t, name)
			raw, err := os.ReadFile("testdata/" + name + "-delta.tar")
			require.NoError(t, err)
			a, err := plan(raw)
			require.NoError(t, err)
			require.Equal(t, want.format, a.Format)
			kinds := map[Kind]int{}
			for _, m := range a.Members {
				kinds[m.Kind]++
				if m.Kind == Symlink {
					continue
				}
				require.Contains(t, f.sums, m.Name)
				if m.SHA256 != "" {
					require.Equal(t, f.sums[m.Name], m.SHA256)
				}
				require.Equal(t, m.Kind == Delta || m.Kind == Unchanged, m.Source != "")
			}
			require.Equal(t, want.kinds, kinds)
			require.Positive(t, a.Size())
			require.NoError(t, a.Check(context.Background(), f.old, true))
			require.Subset(t, slices.Collect(maps.Keys(f.old.blobs)), a.Needs(true))

			got, err := rebuild(t, raw, f.old)
			require.NoError(t, err)
			same(t, f.sums, got)

			// Without the layers that the engine has.
			var buf bytes.Buffer
			require.NoError(t, a.WriteTar(context.Background(), &buf, f.old, func(m Member) bool { return m.Kind != Unchanged }))
			require.Len(t, unpack(t, &buf), len(got)-1)
			for _, digest := range a.Needs(true) {
				if !slices.Contains(a.Needs(false), digest) {
					delete(f.old.blobs, digest)
				}
			}
			require.NoError(t, a.Check(context.Background(), f.old, false))
			require.ErrorIs(t, a.Check(context.Background(), f.old, true), ErrMissing)
		})
	}
}

func TestMembersAreReaders(t *testing.T) {
	f := load(t, "docker")
	a, err := plan(pack(t, f.delta))
	require.NoError(t, err)
	for _, m := range a.Members {
		c, err := a.Open(context.Background(), m, f.old)
		if m.Kind == Symlink {
			require.ErrorContains(t, err, "a symlink has no content")
			require.Contains(t, f.sums, m.Link)
			continue
		}
		require.NoError(t, err)
		got, err := io.ReadAll(iotest.OneByteReader(c))
		require.NoError(t, err)
		require.Equal(t, f.sums[m.Name], sum(string(got)))
		require.Equal(t, c.Size, int64(len(got)))
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	}
	// Two at once get decoders of their own.
	var both []*Content
	for _, m := range a.Members {
		if m.Kind == Delta {
			c, err := a.Open(context.Background(), m, f.old)
			require.NoError(t, err)
			both = append(both, c)
		}
	}
	for _, c := range both {
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, f.sums[c.m.Name], sum(string(got)))
		require.NoError(t, c.Close())
	}
	require.Zero(t, f.old.open)
}

func TestOldContentMissingOrDamaged(t *testing.T) {
	for _, name := range []string{"docker", "oci"} {
		f := load(t, name)
		delta := pack(t, f.delta)
		a, err := plan(delta)
		require.NoError(t, err)
		found := 0
		for _, digest := range a.Needs(true) {
			whole := f.old.blobs[digest]
			delete(f.old.blobs, digest)
			_, err := rebuild(t, delta, f.old)
			require.ErrorIs(t, err, ErrMissing)
			require.ErrorContains(t, err, digest)

			for damage, content := range map[string]string{
				"cut off": whole[:len(whole)/2],
				"changed": strings.NewReplacer("a", "A", "1", "7").Replace(whole),
			} {
				f.old.blobs[digest] = content
				got, err := rebuild(t, delta, f.old)
				if err == nil { // the damage is where the delta does not read
					same(t, f.sums, got)
					continue
				}
				require.ErrorIs(t, err, ErrDamaged, damage)
				require.ErrorContains(t, err, digest)
				found++
			}
			f.old.blobs[digest] = whole
		}
		require.GreaterOrEqual(t, found, 2)
	}
}

// stater has old content, and cannot open it.
type stater struct{ o *old }

func (s stater) OpenBlob(context.Context, string) (Blob, error) { return nil, errors.New("opened") }

func (s stater) StatBlob(_ context.Context, digest string) (int64, error) {
	content, ok := s.o.blobs[digest]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return int64(len(content)), nil
}

func TestCheckBySize(t *testing.T) {
	ctx, f := context.Background(), load(t, "docker")
	a, err := plan(pack(t, f.delta))
	require.NoError(t, err)
	require.NoError(t, a.Check(ctx, stater{f.old}, true))
	digest := a.Needs(false)[0]
	f.old.blobs[digest] = f.old.blobs[digest][:10]
	require.ErrorIs(t, a.Check(ctx, stater{f.old}, true), ErrDamaged)
	delete(f.old.blobs, digest)
	require.ErrorIs(t, a.Check(ctx, stater{f.old}, true), ErrMissing)
}

func TestDamagedDelta(t *testing.T) {
	f := load(t, "docker")
	name := f.named(t, "layer.tar.vcdiff")
	whole := f.delta[name]
	f.delta[name] = whole[:len(whole)-9] + "x" + whole[len(whole)-8:]
	_, err := rebuild(t, pack(t, f.delta), f.old)
	require.ErrorContains(t, err, "rebuilt content has the wrong checksum")
	require.NotErrorIs(t, err, ErrDamaged)
	f.delta[name] = whole[:len(whole)-9]
	_, err = rebuild(t, pack(t, f.delta), f.old)
	require.ErrorIs(t, err, vcdiff.ErrCorrupt)

	// The reference never looks at this sum.
	f.delta[name] = whole
	note := strings.TrimSuffix(name, ".vcdiff") + ".new.sha256sum"
	f.delta[note] = sum("something else") + "\n"
	_, err = rebuild(t, pack(t, f.delta), f.old)
	require.ErrorIs(t, err, vcdiff.ErrChecksum)
	require.NotErrorIs(t, err, ErrDamaged)

	// A blob that is there verbatim is verified as well.
	f = load(t, "oci")
	for name, content := range f.delta {
		if blobName(name) != "" {
			f.delta[name] = content[:len(content)-1] + "!"
		}
	}
	_, err = rebuild(t, pack(t, f.delta), f.old)
	require.ErrorIs(t, err, vcdiff.ErrChecksum)
}

func TestRefused(t *testing.T) {
	digest := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		of     string
		change func(t *testing.T, f fixture)
		says   string
	}{
		"dot-dot":        {"docker", func(t *testing.T, f fixture) { f.delta["../x"] = "" }, `name "./../x"`},
		"dot-dot inside": {"docker", func(t *testing.T, f fixture) { f.delta["a/../b"] = "" }, "a/../b"},
		"backslash":      {"docker", func(t *testing.T, f fixture) { f.delta[`a\b`] = "" }, "name"},
		"long name":      {"docker", func(t *testing.T, f fixture) { f.delta[strings.Repeat("x/", 150)+"x"] = "" }, "name"},
		"link out":       {"docker", func(t *testing.T, f fixture) { f.delta["x/y"] = "-> ../../etc" }, "x/y leads to"},
		"link absolute":  {"docker", func(t *testing.T, f fixture) { f.delta["x/y"] = "-> /etc" }, "x/y leads to"},
		"twice":          {"docker", func(t *testing.T, f fixture) { f.delta["./manifest.json"] = "" }, "comes twice"},
		"delta and file": {"docker", func(t *testing.T, f fixture) {
			f.delta[strings.TrimSuffix(f.named(t, ".vcdiff"), ".vcdiff")] = "x"
		}, "comes twice"},
		"no current sum": {"docker", func(t *testing.T, f fixture) { delete(f.delta, f.named(t, ".current.sha256sum")) }, "no "},
		"no new sum":     {"docker", func(t *testing.T, f fixture) { delete(f.delta, f.named(t, ".new.sha256sum")) }, "no "},
		"no sum":         {"docker", func(t *testing.T, f fixture) { f.delta[f.named(t, ".new.sha256sum")] = "hello" }, `holds "hello"`},
		"short sum":      {"docker", func(t *testing.T, f fixture) { f.delta[f.named(t, "layer.tar.sha256sum")] = digest[1:] }, "holds"},
		"upper case sum": {"docker", func(t *testing.T, f fixture) { f.delta[f.named(t, "layer.tar.sha256sum")] = digest[1:] + "A" }, "holds"},
		"long note":      {"docker", func(t *testing.T, f fixture) { f.delta[f.named(t, ".new.sha256sum")] = strings.Repeat("0", 5000) }, "5000 bytes"},
		"note is a link": {"docker", func(t *testing.T, f fixture) { f.delta[f.named(t, ".new.sha256sum")] = "-> x" }, "no "},
		"no source":      {"oci", func(t *testing.T, f fixture) { delete(f.delta, f.named(t, ".source")) }, "no "},
		"source outside": {"oci", func(t *testing.T, f fixture) { f.delta[f.named(t, ".source")] = "../../etc/passwd\n" }, "name"},
		"source no blob": {"oci", func(t *testing.T, f fixture) { f.delta[f.named(t, ".source")] = "index.json\n" }, `names "index.json"`},
		"stray delta":    {"docker", func(t *testing.T, f fixture) { f.delta["blobs/sha256/"+digest+".vcdiff"] = "" }, "something else"},
		"many": {"oci", func(t *testing.T, f fixture) {
			for i := range maxMembers {
				f.delta[fmt.Sprint("x", i)] = ""
			}
		}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			f := load(t, c.of)
			c.change(t, f)
			_, err := plan(pack(t, f.delta))
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := plan([]byte(strings.Repeat("not a tar", 200)))
	require.ErrorIs(t, err, ErrInvalid)
	whole := pack(t, load(t, "oci").delta)
	_, err = plan(whole[:3000])
	require.ErrorIs(t, err, ErrInvalid)
}

func TestSpecialFilesAreRefused(t *testing.T) {
	for _, typ := range []byte{tar.TypeLink, tar.TypeChar, tar.TypeFifo} {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: "x", Linkname: "y", Typeflag: typ}))
		require.NoError(t, tw.Close())
		_, err := plan(buf.Bytes())
		require.ErrorIs(t, err, ErrInvalid)
	}
}

func TestContextEndsAMember(t *testing.T) {
	f := load(t, "oci")
	a, err := plan(pack(t, f.delta))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, a.WriteTar(ctx, io.Discard, f.old, nil), context.Canceled)
	require.Zero(t, f.old.open)
}

func FuzzPlan(f *testing.F) {
	var olds []*old
	for _, name := range []string{"docker", "oci"} {
		fx := load(f, name)
		olds = append(olds, fx.old)
		f.Add(pack(f, fx.delta))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := plan(b)
		if err != nil {
			return
		}
		for _, m := range a.Members {
			if clean, err := local(m.Name); err != nil || clean != m.Name {
				t.Fatalf("name %q", m.Name)
			}
		}
		a.Options = vcdiff.Options{MaxWindow: 1 << 20, MaxMemory: 2 << 20, MaxTarget: 4 << 20}
		for _, o := range olds {
			err := a.WriteTar(context.Background(), io.Discard, o, nil)
			if o.open != 0 {
				t.Fatalf("%d blobs left open", o.open)
			}
			if err != nil && errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	})
}
