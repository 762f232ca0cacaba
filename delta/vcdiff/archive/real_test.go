package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mender-app/mender-app/delta/vcdiff"
	"github.com/stretchr/testify/require"
)

func need(t testing.TB, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("missing: %s", c)
			}
			t.Skipf("missing: %s", c)
		}
	}
}

func runIn(t testing.TB, dir string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", argv, out)
}

// The vectors can be made again, and another container tool takes what is
// rebuilt from them for the image it was.
func TestReferenceProcedure(t *testing.T) {
	need(t, "xdelta3", "tar", "awk")
	dir := t.TempDir()
	here, err := os.Getwd()
	require.NoError(t, err)
	runIn(t, dir, filepath.Join(here, "testdata/make.sh"), dir)
	for name, kind := range map[string]string{"docker": "docker-archive", "oci": "oci-archive"} {
		t.Run(name, func(t *testing.T) {
			for _, suffix := range []string{"-old.tar", "-delta.tar", "-new.sums"} {
				want, err := os.ReadFile("testdata/" + name + suffix)
				require.NoError(t, err)
				got, err := os.ReadFile(filepath.Join(dir, name+suffix))
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got), "%s%s differs", name, suffix)
			}
			need(t, "skopeo")
			f := load(t, name)
			a, err := plan(pack(t, f.delta))
			require.NoError(t, err)
			out, err := os.Create(filepath.Join(dir, name+".tar"))
			require.NoError(t, err)
			require.NoError(t, a.WriteTar(context.Background(), out, f.old, nil))
			require.NoError(t, out.Close())
			runIn(t, dir, "skopeo", "copy", "--insecure-policy", kind+":"+out.Name(), "dir:"+filepath.Join(dir, name))
		})
	}
}

// Large layers of real files, by the reference's procedure.
func TestRealLayers(t *testing.T) {
	need(t, "xdelta3", "tar", "sha256sum")
	if testing.Short() {
		t.Skip("takes long")
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	for _, form := range []string{"docker", "oci"} {
		t.Run(form, func(t *testing.T) {
			dir := t.TempDir()
			oldFiles, newFiles := files{}, files{}
			var oldIDs, newIDs []string
			put := func(to files, ids *[]string, id string, paths ...string) {
				args := append([]string{"-cf", filepath.Join(dir, "layer"), "--sort=name", "-C", "/"}, paths...)
				runIn(t, dir, append([]string{"tar"}, args...)...)
				b, err := os.ReadFile(filepath.Join(dir, "layer"))
				require.NoError(t, err)
				if form == "oci" {
					id = sum(string(b))
					to["blobs/sha256/"+id] = string(b)
					to["oci-layout"] = "{}"
				} else {
					to[id+"/layer.tar"] = string(b)
				}
				*ids = append(*ids, id)
			}
			put(oldFiles, &oldIDs, "a", "usr/share/perl5", "usr/bin/find")
			put(oldFiles, &oldIDs, "b", "usr/bin/openssl", "usr/bin/bash", "usr/bin/tar")
			put(newFiles, &newIDs, "c", "usr/share/perl5", "usr/bin/find")
			put(newFiles, &newIDs, "d", "usr/bin/tar", "usr/bin/sort", "usr/bin/openssl")
			put(newFiles, &newIDs, "e", "usr/bin/cut")
			for name, in := range map[string]files{"old": oldFiles, "new": newFiles} {
				for file, content := range in {
					p := filepath.Join(dir, name, file)
					require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
					require.NoError(t, os.WriteFile(p, []byte(content), 0o644))
				}
			}
			out := filepath.Join(dir, "delta.tar")
			runIn(t, dir, filepath.Join(here, "testdata/reference.sh"), form, "old", "new", out,
				strings.Join(oldIDs, " "), strings.Join(newIDs, " "))
			delta, err := os.ReadFile(out)
			require.NoError(t, err)
			got, err := rebuild(t, delta, oldImage(oldFiles))
			require.NoError(t, err)
			require.Equal(t, slices.Sorted(maps.Keys(newFiles)), slices.Sorted(maps.Keys(got)))
			for name, content := range newFiles {
				require.True(t, content == got[name], name)
			}
		})
	}
}

// The reference's other delta is one of the whole archive, which the vcdiff
// package alone reads.
func TestWholeImage(t *testing.T) {
	need(t, "xdelta3")
	for _, name := range []string{"docker", "oci"} {
		f := load(t, name)
		from, err := os.ReadFile("testdata/" + name + "-old.tar")
		require.NoError(t, err)
		rebuilt, err := rebuild(t, pack(t, f.delta), f.old)
		require.NoError(t, err)
		to := pack(t, rebuilt)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "current"), from, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), to, 0o644))
		runIn(t, dir, "xdelta3", "-e", "-s", "current", "new", "image.img")
		delta, err := os.ReadFile(filepath.Join(dir, "image.img"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(delta), vcdiff.Magic))
		_, err = plan(delta)
		require.ErrorIs(t, err, ErrInvalid)
		r, err := vcdiff.NewReader(context.Background(), bytes.NewReader(from), int64(len(from)),
			bytes.NewReader(delta), vcdiff.Options{})
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.True(t, bytes.Equal(to, got))
	}
}

// Layers that an image store keeps compressed are refused by name.
func TestCompressedLayers(t *testing.T) {
	need(t, "xdelta3", "gzip", "tar", "sha256sum")
	dir := t.TempDir()
	here, err := os.Getwd()
	require.NoError(t, err)
	var digests [2]string
	for i, name := range []string{"old", "new"} {
		var buf bytes.Buffer
		zw := gzip.NewWriter(&buf)
		_, err := fmt.Fprint(zw, strings.Repeat(name+" content of a layer\n", 1000))
		require.NoError(t, err)
		require.NoError(t, zw.Close())
		digests[i] = sum(buf.String())
		p := filepath.Join(dir, name, "blobs/sha256", digests[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, buf.Bytes(), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "oci-layout"), nil, 0o644))
	}
	out := filepath.Join(dir, "delta.tar")
	runIn(t, dir, filepath.Join(here, "testdata/reference.sh"), "oci", "old", "new", out, digests[0], digests[1])
	delta, err := os.ReadFile(out)
	require.NoError(t, err)
	_, err = plan(delta)
	require.ErrorIs(t, err, ErrRecompressed)
	require.ErrorContains(t, err, digests[1])
}
