package flash

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/corpus"
)

// makeImage makes an image of layers whose content can be opened.
func makeImage(t testing.TB, layers ...image.Layer) *image.Image {
	t.Helper()
	ids := make([]image.Digest, len(layers))
	for i, l := range layers {
		ids[i] = l.DiffID
	}
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "config": map[string]any{"Cmd": []string{"/bin/sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	require.NoError(t, err)
	img, err := image.New(config, layers)
	require.NoError(t, err)
	return img
}

// write writes an image's archive into a directory.
func write(t testing.TB, dir string, img *image.Image, ref string) string {
	t.Helper()
	out := filepath.Join(dir, img.ConfigDigest.Hex()[:12]+".tar")
	f, err := os.Create(out)
	require.NoError(t, err)
	require.NoError(t, image.WriteArchive(f, image.ArchiveSpec{Image: img, RepoTags: []string{ref}}))
	require.NoError(t, f.Close())
	return out
}

// encode writes the delta between two images into a directory.
func encode(t testing.TB, dir string, old, new *image.Image) string {
	t.Helper()
	objects := func(img *image.Image, name string) delta.Image {
		list := delta.Image{Name: name, Objects: []delta.Object{{
			Digest: img.ConfigDigest, Size: int64(len(img.Config)), Kind: delta.Blob,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(img.Config)), nil },
		}}}
		for _, l := range img.Layers {
			list.Objects = append(list.Objects, delta.Object{Digest: l.DiffID, Size: l.Size, Kind: delta.Tar, Open: l.Open})
		}
		return list
	}
	out := filepath.Join(dir, new.ConfigDigest.Hex()[:12]+".delta")
	f, err := os.Create(out)
	require.NoError(t, err)
	_, err = encoder.Encode(t.Context(), f, []delta.Image{objects(old, "old")}, objects(new, "new"), encoder.Options{TempDir: t.TempDir()})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return out
}

// changed returns the total size of the layers of new that old lacks, in bytes.
func changed(old, new *image.Image) (n int64) {
	for i, l := range new.Layers {
		if i >= len(old.DiffIDs) || old.DiffIDs[i] != l.DiffID {
			n += l.Size
		}
	}
	return n
}

const (
	load   = `MODULE_TMPDIR=` + tempDir + ` /usr/share/mender/app-modules/v1/docker-compose LOAD flash flash/web:"$2" "$1"`
	unload = `/usr/share/mender/app-modules/v1/docker-compose DELETE flash/web:"$1" flash; ! docker image inspect flash/web:"$1" >/dev/null 2>&1`
)

// remote runs load in a mount namespace that hides the engine's disk at root. Its
// messages go to /tmp/said.
func remote(root string) string {
	return `unshare --mount bash -ec 'mount -t tmpfs tmpfs "$3"; ` + load + ` 2>/tmp/said' remote "$1" "$2" ` + root
}

// invented makes a layer of at least size bytes, in files of 512 KiB that cannot be
// compressed. seed determines the files' content; version only changes the start of
// each file.
func invented(t testing.TB, seed, version uint64, size int) image.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	rng := rand.New(rand.NewPCG(seed, 0))
	const each = 512 << 10
	data := make([]byte, each)
	for i := 0; i*each < size; i++ {
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		copy(data, fmt.Sprintf("version %d", version))
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("lib/%d-%04d", seed, i), Mode: 0o644, Size: each, ModTime: time.Unix(1.7e9, 0)}))
		_, err := w.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return image.Layer{DiffID: digest.Of(b.Bytes()), Size: int64(b.Len()), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}}
}

// An update writes only the layers that changed. The classic store first unpacks a
// load's archive to its own temporary directory, and so writes them twice.
// containerd keeps the blob beside the unpacked files. Nothing is written elsewhere,
// and our memory is bounded, for full images and for deltas.
func TestBytesWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("tests on a device are not short")
	}
	const size = 24 << 20
	base := invented(t, 1, 1, size)
	old := makeImage(t, base, invented(t, 2, 1, size))
	next := makeImage(t, base, invented(t, 2, 2, size))
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, e, 512<<20)
			file, deltaFile := write(t, r.Share(""), next, "flash/web:2"), encode(t, r.Share(""), old, next)
			r.MustRun(t, "bash", "-ec", load, "load", write(t, r.Share(""), old, "flash/web:1"), "1")
			for name, content := range map[string]string{"whole": file, "delta": deltaFile} {
				c := r.measure(t, load, content, "2")
				t.Logf("%s: %+v", name, c)
				require.Less(t, float64(c.engine), 2.2*float64(changed(old, next)), name)
				require.Less(t, c.temp, int64(256<<10), "%s: the file system's own", name)
				require.Less(t, c.rss, int64(32<<20), name)
				r.MustRun(t, "bash", "-ec", unload, "unload", "2")
			}
			huge := write(t, r.Share(""), makeImage(t, base, hole(t, 10<<30)), "flash/web:3")
			images := func() []string {
				return slices.Sorted(strings.Lines(r.MustRun(t, "docker", "images", "-a", "--no-trunc")))
			}
			before := images()
			c := r.measure(t, `! { `+load+`; } 2>/tmp/said && grep -q "error: .*free some and try again" /tmp/said`, huge, "3")
			require.Less(t, c.engine, int64(1<<20), "a file of 10 GB in a few KiB")
			require.Less(t, c.rss, int64(32<<20))
			require.Equal(t, before, images())
			r.MustRun(t, "bash", "-ec", unload, "unload", "1")
		})
	}
}

// hole makes a layer of a few KiB with a sparse file of size bytes that holds no
// data, as GNU tar writes it.
func hole(t testing.TB, size int64) image.Layer {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hole"), nil, 0o644))
	require.NoError(t, os.Truncate(filepath.Join(dir, "hole"), size))
	out, err := exec.Command("tar", "-C", dir, "--format=posix", "--sparse", "-cf", "-", "hole").Output()
	require.NoError(t, err)
	require.Less(t, len(out), 20<<10)
	return image.Layer{DiffID: digest.Of(out), Size: int64(len(out)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out)), nil }}
}

// bases returns an image of Debian packages and its next release on the same base.
func bases(t testing.TB) (old, next *image.Image) {
	t.Helper()
	dir, err := corpus.Dir()
	require.NoError(t, err)
	const pair = "debian-redis-amd64"
	for _, p := range corpus.All() {
		if p.Name != pair {
			continue
		}
		_, err := p.Build(t.Context(), dir)
		if errors.Is(err, corpus.ErrUnavailable) {
			t.Skip(err)
		}
		require.NoError(t, err)
	}
	open := func(file string) *image.Image {
		a, err := image.OpenArchive(filepath.Join(dir, pair, file))
		require.NoError(t, err)
		t.Cleanup(func() { a.Close() })
		return a.Images()[0]
	}
	v1, v2 := open("v1.tar"), open("v2.tar")
	return makeImage(t, v1.Layers...), makeImage(t, v1.Layers[0], v2.Layers[1])
}

// reference applies a deep delta as the shell reference does, on an engine that
// saves images in the old format. $1 is the directory of the delta's files, $2 the
// new tag.
const reference = `
	cd ` + tempDir + `
	rm -rf old new; mkdir old new
	docker save -o old.tar flash/web:1
	tar -xf old.tar -C old && rm old.tar
	cp -r "$1"/. new
	for delta in new/*/layer.tar.vcdiff; do
		dir=$(dirname "$delta")
		sum=$(cat "$dir"/layer.tar.current.sha256sum)
		for have in old/*/layer.tar; do
			case $(sha256sum "$have") in "$sum"*) break ;; esac
		done
		xdelta3 -d -s "$have" "$delta" "$dir"/layer.tar
		rm "$delta" "$dir"/layer.tar.*.sha256sum
	done
	for same in new/*/layer.tar.sha256sum; do
		[ -e "$same" ] || continue
		for have in old/*/layer.tar; do
			case $(sha256sum "$have") in "$(cat "$same")"*) cp "$have" "$(dirname "$same")"/layer.tar ;; esac
		done
		rm "$same"
	done
	tar -cf new.tar -C new .
	docker load -q -i new.tar
	rm -rf old new new.tar`

// deep makes the files of the reference's deep delta.
func deep(t testing.TB, dir string, old, new *image.Image) string {
	t.Helper()
	dir = filepath.Join(dir, "deep")
	put := func(name string, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	extract := func(l image.Layer) string {
		in, err := l.Open()
		require.NoError(t, err)
		defer in.Close()
		name := filepath.Join(t.TempDir(), "layer.tar")
		f, err := os.Create(name)
		require.NoError(t, err)
		_, err = io.Copy(f, in)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return name
	}
	var layers []string
	for i, l := range new.Layers {
		at := l.DiffID.Hex()
		layers = append(layers, at+"/layer.tar")
		if l.DiffID == old.DiffIDs[i] {
			put(at+"/layer.tar.sha256sum", []byte(at+"\n"))
			continue
		}
		put(at+"/layer.tar.current.sha256sum", []byte(old.DiffIDs[i].Hex()+"\n"))
		put(at+"/layer.tar.new.sha256sum", []byte(at+"\n"))
		out, err := exec.Command("xdelta3", "-e", "-s", extract(old.Layers[i]), extract(l), filepath.Join(dir, at, "layer.tar.vcdiff")).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	put(new.ConfigDigest.Hex()+".json", new.Config)
	manifest, err := json.Marshal([]any{map[string]any{"Config": new.ConfigDigest.Hex() + ".json", "RepoTags": []string{"flash/web:2"}, "Layers": layers}})
	require.NoError(t, err)
	put("manifest.json", manifest)
	return dir
}

// TestBench prints a part of docs/BENCHMARKS.md; testdata/bench runs it. It also
// asserts the bounds of what LOAD writes and of its memory.
func TestBench(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("a benchmark; set MENDER_APP_BENCH=1")
	}
	bed.Require(t, "xdelta3", "time")
	old, next := bases(t)
	n := changed(old, next)
	var all int64
	for _, l := range next.Layers {
		all += l.Size
	}
	fmt.Printf("The image has %.1f MiB, the layers that change %.1f MiB.\n\n", float64(all)/(1<<20), float64(n)/(1<<20))
	fmt.Println("| engine | update | s | engine's disk MiB | temporary files MiB | written × changed | RSS MiB |")
	fmt.Println("|---|---|---|---|---|---|---|")
	dir := t.TempDir()
	v1, v2 := write(t, dir, old, "flash/web:1"), write(t, dir, next, "flash/web:2")
	ours, theirs := encode(t, dir, old, next), deep(t, dir, old, next)
	for _, e := range bed.ChosenEngines(t) {
		r := newRig(t, e, 2<<30)
		out, err := exec.Command("cp", "-r", dir+"/.", r.Share("")).CombinedOutput()
		require.NoError(t, err, "%s", out)
		there := func(file string) string { return r.Share(filepath.Base(file)) }
		r.MustRun(t, "bash", "-ec", load, "load", there(v1), "1")
		step := func(name, script, content string) {
			t.Helper()
			c := r.measure(t, script, there(content), "2")
			fmt.Println(c.row(e.Name, name, n))
			if script == load {
				require.Less(t, c.rss, int64(32<<20), name)
				require.Less(t, c.temp, int64(256<<10), "%s: the file system's own", name)
				require.True(t, e.Containerd || float64(c.engine) < 2.2*float64(n), "%s wrote %d bytes for layers of %d", name, c.engine, n)
			}
			r.MustRun(t, "bash", "-ec", unload+" || docker image rm flash/web:2", "unload", "2")
		}
		step("LOAD, whole image", load, v2)
		step("LOAD, delta", load, ours)
		step("LOAD, delta, through `docker save`", remote(filepath.Join(r.Dir, "docker")), ours)
		fmt.Println(r.MustRun(t, "cat", "/tmp/said"))
		step("`docker save \\| docker load`, saved elsewhere", `cat "$1" | docker load -q`, v2)
		if !e.Containerd {
			step("the shell reference, deep delta", reference, theirs)
			continue
		}
		r.MustRun(t, "bash", "-ec", unload, "unload", "1")
		pulled, err := tarball.ImageFromPath(v1, nil)
		require.NoError(t, err)
		tag, err := name.NewTag("flash/web:1")
		require.NoError(t, err)
		require.NoError(t, tarball.WriteToFile(r.Share("pulled.tar"), tag, pulled)) // gzip'd, as pulled
		r.MustRun(t, "docker", "load", "-q", "-i", r.Share("pulled.tar"))
		step("LOAD, delta over layers that are stored compressed", load, ours)
	}
}
