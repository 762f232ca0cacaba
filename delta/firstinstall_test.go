package delta_test

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// firstPairs are the images of the public benchmark that are measured as a first
// installation; MENDER_APP_PAIRS names others.
const firstPairs = "minor-mosquitto-armhf debian-base-arm64 moved-django-amd64 go-mqtt-armv7 go-grpcurl-arm64 go-exporter-amd64"

// TestBenchFirst measures images that have no base, beside compressors of whole archives,
// as a Markdown table:
//
//	MENDER_APP_BENCH=1 go test -run TestBenchFirst -v ./delta
//
// The images are those that `make bench-public` built.
func TestBenchFirst(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("MENDER_APP_BENCH is not set")
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	fmt.Print("| image | MiB | tool | KiB | by xz's | encode CPU s | decode CPU s | decoded MB/s | decode RSS MiB |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, pair := range strings.Fields(cmp.Or(os.Getenv("MENDER_APP_PAIRS"), firstPairs)) {
		archive := filepath.Join(cache, "mender-app", "corpus", "public", pair, "v2.tar")
		if _, err := os.Stat(archive); err != nil {
			t.Logf("%s is not measured: make bench-public builds it", pair)
			continue
		}
		dir := filepath.Join(t.TempDir(), "v2")
		require.NoError(t, unpackImage(archive, dir))
		b := &bench{t: t, tmp: t.TempDir()}
		rows := []firstRow{{tool: ours}}
		d := filepath.Join(b.tmp, "delta")
		rows[0].enc = measure(t, benchRole+"=encode-first", self, filepath.Dir(dir), d)
		rows[0].size = b.size(d)
		rows[0].dec = leastOf(fewRuns, func() cost { return measure(t, benchRole+"=decode-first", self, filepath.Dir(dir), d) })
		rows = append(rows, b.xz(archive, imageMachine(t, dir)),
			b.compressed("zstd -19", archive, []string{"zstd", "-19", "--long=27", "-qf", "-o"}, []string{"zstd", "-qdf", "--long=27", "-o"}),
			b.compressed("gzip -9", archive, []string{"gzip", "-9", "-c"}, []string{"gzip", "-dc"}))
		for _, r := range rows {
			whole := float64(b.size(archive))
			fmt.Printf("| %s | %.1f | %s | %.1f | %.3f | %.2f | %.2f | %.1f | %d |\n", pair, whole/(1<<20), r.tool, float64(r.size)/1024,
				float64(r.size)/float64(rows[1].size), r.enc.cpu, r.dec.cpu, whole/1e6/r.dec.cpu, r.dec.rss>>10)
		}
	}
}

// firstRow is a tool's result for an image without a base.
type firstRow struct {
	tool     string
	size     int64
	enc, dec cost
}

// leastOf is the least processor time of some runs, and the most memory.
func leastOf(runs int, run func() cost) cost {
	least := run()
	for range runs - 1 {
		c := run()
		least.cpu, least.rss = min(least.cpu, c.cpu), max(least.rss, c.rss)
	}
	return least
}

// imageMachine is the machine of the first program in the image's layers.
func imageMachine(t *testing.T, dir string) elf.Machine {
	layers, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, l := range layers {
		b, err := os.ReadFile(l)
		require.NoError(t, err)
		for at := 0; at+512 <= len(b); at += 512 {
			if string(b[at:at+4]) == elf.ELFMAG {
				return elf.Machine(uint16(b[at+18]) | uint16(b[at+19])<<8)
			}
		}
	}
	t.Fatal("no program in ", dir)
	return 0
}

// xz is the smallest archive of xz -9e, of those with a filter for branches that the
// machine has.
func (b *bench) xz(archive string, m elf.Machine) (best firstRow) {
	filters := map[elf.Machine][]string{elf.EM_ARM: {"--arm", "--armthumb"}, elf.EM_AARCH64: {"--arm64"}, elf.EM_X86_64: {"--x86"}}[m]
	require.NotEmpty(b.t, filters, "%v", m)
	for _, f := range filters {
		r := b.compressed("xz "+f+" -9e", archive, []string{"xz", "-T1", f, "--lzma2=preset=9e", "-c"}, []string{"xz", "-T1", "-dc"})
		if best.size == 0 || r.size < best.size {
			best = r
		}
	}
	return best
}

// compressed measures a compressor and its decompressor, whose arguments end with -o FILE
// or -c.
func (b *bench) compressed(name, archive string, enc, dec []string) firstRow {
	b.t.Helper()
	if _, err := exec.LookPath(enc[0]); err != nil {
		b.t.Fatal(err)
	}
	out := filepath.Join(b.tmp, "out")
	run := func(args []string, file, to string) cost {
		if args[len(args)-1] == "-o" {
			args = append(args[:len(args):len(args)], to)
			return measure(b.t, "", append(args, file)...)
		}
		return measure(b.t, "", append([]string{"sh", "-c", `to=$1; shift; exec "$@" >"$to"`, "sh", to}, append(args[:len(args):len(args)], file)...)...)
	}
	r := firstRow{tool: name, enc: run(enc, archive, out)}
	r.size = b.size(out)
	packed := out + map[string]string{"xz": ".xz", "gzip": ".gz", "zstd": ".zst"}[enc[0]]
	require.NoError(b.t, os.Rename(out, packed))
	r.dec = leastOf(fewRuns, func() cost { return run(dec, packed, os.DevNull) })
	return r
}
