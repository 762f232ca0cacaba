package delta_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// Encoding, decoding and unpacking in processes of their own, whose processor
// time and peak memory can be told: the test binary in a role.

const benchRole = "MENDER_APP_BENCH_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(benchRole) {
	case "encode":
		benchMain(benchEncode(encoder.Options{}))
	case "encode-quick":
		benchMain(benchEncode(encoder.Options{Effort: encoder.Quick, Sums: true}))
	case "encode-packed":
		benchMain(benchEncode(encoder.Options{Effort: encoder.Quick, Sums: true, ByteCost: 1}))
	case "encode-best":
		benchMain(benchEncode(encoder.Options{Effort: encoder.Best}))
	case "encode-fast":
		benchMain(benchEncode(encoder.Options{Effort: encoder.Stored}))
	case "decode":
		benchMain(benchDecode)
	case "encode-large":
		benchMain(encodeLarge)
	case "decode-large":
		benchMain(decodeLarge)
	case "unpack":
		benchMain(unpackImage)
	case "idle":
		os.Exit(0)
	case "measure":
		measureMain()
	}
	os.Exit(m.Run())
}

func benchMain(f func(dir, file string) error) {
	if err := f(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hostMemory is the limit that app-gen sets for itself.
const hostMemory = 1400 << 20

func benchEncode(o encoder.Options) func(dir, file string) error {
	return func(dir, file string) error {
		old, err := dirImage(dir, "v1")
		if err != nil {
			return err
		}
		new, err := dirImage(dir, "v2")
		if err != nil {
			return err
		}
		if len(old.Objects) == 0 {
			return encodeFile(file, nil, new, o)
		}
		return encodeFile(file, []delta.Image{old}, new, o)
	}
}

// encodeFile writes a delta to a file. One with the effort Stored is compressed as app-gen
// compresses its payload.
func encodeFile(file string, old []delta.Image, new delta.Image, o encoder.Options) error {
	debug.SetMemoryLimit(hostMemory)
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	out := io.WriteCloser(w)
	if o.Effort == encoder.Stored {
		out = gzip.NewWriter(w)
	}
	if _, err := encoder.Encode(context.Background(), out, old, new, o); err != nil {
		return err
	}
	if out != io.WriteCloser(w) {
		if err := out.Close(); err != nil {
			return err
		}
	}
	return w.Close()
}

func benchDecode(dir, file string) error {
	debug.SetMemoryLimit(24 << 20) // as the programs on a device do
	old, err := dirImage(dir, "v1")
	if err != nil {
		return err
	}
	s := tarstore.New()
	for _, o := range old.Objects {
		r, err := o.Open()
		if err != nil {
			return err
		}
		if err := s.Add(o.Digest, o.Kind, r.(*os.File), o.Size); err != nil {
			return err
		}
	}
	d, err := openDelta(file)
	if err != nil {
		return err
	}
	return d.Apply(context.Background(), s, "", func(delta.ObjectInfo) (delta.Sink, error) { return nullSink{}, nil })
}

func openDelta(name string) (*decoder.Decoder, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return decoder.New(f)
}

// encodeLarge makes the delta of a pair of so many MiB.
func encodeLarge(mib, file string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	old, new := largeImages(n)
	return encodeFile(file, []delta.Image{old}, new, encoder.Options{})
}

// decodeLarge applies it. It takes the digest of the old layer from the delta.
func decodeLarge(mib, file string) error {
	debug.SetMemoryLimit(24 << 20)
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	d, err := openDelta(file)
	if err != nil {
		return err
	}
	a, _ := largeLayers(n)
	s := tarstore.New()
	if err := s.Add(d.Header().Bases[0].Digest, delta.Tar, a, a.size); err != nil {
		return err
	}
	return d.Apply(context.Background(), s, "", func(delta.ObjectInfo) (delta.Sink, error) { return nullSink{}, nil })
}

// dirImage reads the image that unpackImage wrote; digests are in the names.
func dirImage(dir, v string) (im delta.Image, err error) {
	im.Name = v
	files, err := filepath.Glob(filepath.Join(dir, v, "*"))
	if err != nil {
		return im, err
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			return im, err
		}
		_, sum, _ := strings.Cut(filepath.Base(f), "-")
		k := delta.Tar
		if strings.HasPrefix(filepath.Base(f), "00") {
			k = delta.Blob
		}
		im.Objects = append(im.Objects, delta.Object{Digest: delta.Digest("sha256:" + sum), Size: st.Size(), Kind: k,
			Open: func() (io.ReadCloser, error) { return os.Open(f) }})
	}
	return im, nil
}

// unpackImage writes the config and the layers of a docker-archive to dir.
func unpackImage(archive, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	files := map[string][]byte{}
	t := tar.NewReader(f)
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if files[h.Name], err = io.ReadAll(t); err != nil {
				return err
			}
		}
	}
	var man []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &man); err != nil {
		return err
	}
	for i, n := range append([]string{man[0].Config}, man[0].Layers...) {
		b := files[n]
		name := fmt.Sprintf("%02d-%s", i, strings.TrimPrefix(string(digest.Of(b)), "sha256:"))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// corpus unpacks the pairs and returns their directories.
func corpus(t testing.TB) []string {
	src := filepath.SplitList(os.Getenv("MENDER_APP_CORPUS"))
	var pairs []string
	if len(src) == 0 {
		if cache, err := os.UserCacheDir(); err == nil && os.Getenv("MENDER_APP_BENCH") != "" {
			names := strings.Fields(os.Getenv("MENDER_APP_PAIRS"))
			if len(names) == 0 {
				names = []string{"*"}
			}
			for _, name := range names {
				list, _ := filepath.Glob(filepath.Join(cache, "mender-app", "corpus", name, "v1.tar*"))
				pairs = append(pairs, list...)
			}
		}
	}
	for _, d := range src {
		list, _ := filepath.Glob(filepath.Join(d, "*", "v1.tar*"))
		pairs = append(list, pairs...)
	}
	if len(pairs) == 0 {
		t.Skip("needs pairs of images in a directory that MENDER_APP_CORPUS names")
	}
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("zstd is missing")
	}
	var dirs []string
	for _, p := range pairs {
		in := filepath.Dir(p)
		dir := filepath.Join(os.TempDir(), "mender-app-corpus", filepath.Base(in))
		dirs = append(dirs, dir)
		_, archive := os.Stat(filepath.Join(dir, "v1.tar")) // it may be a link to what is gone
		if _, err := os.Stat(filepath.Join(dir, "v2")); err == nil && archive == nil {
			continue
		}
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		run := func(args ...string) {
			c := exec.Command(args[0], args[1:]...)
			c.Dir = dir
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		abs, err := filepath.Abs(in)
		require.NoError(t, err)
		if strings.HasSuffix(p, ".zst") {
			run("zstd", "-qdf", "--long=31", filepath.Join(abs, "v1.tar.zst"), "-o", "v1.tar")
			run("zstd", "-qdf", "--long=31", "--patch-from=v1.tar", filepath.Join(abs, "v2.tar.zst.patch"), "-o", "v2.tar")
		} else {
			run("ln", "-sf", filepath.Join(abs, "v1.tar"), filepath.Join(abs, "v2.tar"), ".")
		}
		run("sha256sum", "-c", filepath.Join(abs, "SHA256SUMS"))
		// In processes of their own: a child's peak memory begins with its parent's.
		self, err := os.Executable()
		require.NoError(t, err)
		measure(t, benchRole+"=unpack", self, filepath.Join(dir, "v1.tar"), filepath.Join(dir, "v1"))
		measure(t, benchRole+"=unpack", self, filepath.Join(dir, "v2.tar"), filepath.Join(dir, "v2.part"))
		require.NoError(t, os.Rename(filepath.Join(dir, "v2.part"), filepath.Join(dir, "v2")))
	}
	return dirs
}

type cost struct {
	cpu float64 // seconds
	rss int64   // KiB
	low int64   // KiB, of pages below 4 GiB: a 32 bit program's own, where qemu-user runs it
}

func (c *cost) add(d cost) {
	c.cpu += d.cpu
	c.rss, c.low = max(c.rss, d.rss), max(c.low, d.low)
}

// least is the least processor time of two runs, and the most memory.
func (c cost) least(d cost) cost {
	return cost{min(c.cpu, d.cpu), max(c.rss, d.rss), max(c.low, d.low)}
}

// measure runs a command and tells what it cost. Between the two is a small
// process: the peak memory of a child begins with what its parent has.
func measure(t testing.TB, env string, args ...string) cost {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, append([]string{env}, args...)...)
	c.Env = append(os.Environ(), benchRole+"=measure")
	var out, costs bytes.Buffer
	c.Stdout, c.Stderr = &costs, &out
	require.NoError(t, c.Run(), "%v: %s", args, out.String())
	var r cost
	_, err = fmt.Sscan(costs.String(), &r.cpu, &r.rss, &r.low)
	require.NoError(t, err)
	return r
}

func measureMain() {
	c := exec.Command(os.Args[2], os.Args[3:]...)
	c.Env = append(os.Environ(), os.Args[1])
	c.Stderr = os.Stderr
	err := c.Start()
	low := make(chan int64)
	if err == nil {
		done := make(chan struct{})
		go watchLow(c.Process.Pid, done, low)
		err = c.Wait()
		close(done)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	u := c.ProcessState.SysUsage().(*syscall.Rusage)
	fmt.Println(float64(u.Utime.Nano()+u.Stime.Nano())/1e9, int64(u.Maxrss), <-low)
	os.Exit(0)
}

// watchLow sends the most that a process had of pages below 4 GiB, in KiB, of
// looks that are 20 ms apart.
func watchLow(pid int, done <-chan struct{}, most chan<- int64) {
	n := int64(0)
	for {
		select {
		case <-done:
			most <- n
			return
		case <-time.After(20 * time.Millisecond):
			n = max(n, lowPages(pid))
		}
	}
}

// lowPages adds up a process's resident pages below 4 GiB, from proc(5)'s smaps.
func lowPages(pid int) (kib int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0
	}
	low := false
	for line := range strings.Lines(string(b)) {
		var from, to uint64
		var n int64
		if k, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); k == 2 {
			low = to <= 1<<32
		} else if k, _ := fmt.Sscanf(line, "Rss: %d kB", &n); k == 1 && low {
			kib += n
		}
	}
	return kib
}
