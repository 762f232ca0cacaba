package delta_test

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
)

// firstPairs are the images of the public benchmark that are measured as a first
// installation; MENDER_APP_PAIRS names others.
const firstPairs = "minor-mosquitto-armhf debian-base-arm64 moved-django-amd64 go-mqtt-armv7 go-grpcurl-arm64 go-exporter-amd64"

// TestBenchFirst measures images that have no base, with each effort of app-gen, beside
// compressors of whole archives, as a Markdown table:
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
		dir := t.TempDir() // without an old image
		require.NoError(t, unpackImage(archive, filepath.Join(dir, "v2")))
		b := &bench{t: t, tmp: t.TempDir()}
		rows := []firstRow{b.xz(archive, pair)}
		for _, effort := range []struct{ tool, role string }{{"app-gen", "encode-quick"}, {"app-gen --best", "encode-best"}, {"app-gen --fast", "encode-fast"}} {
			d := filepath.Join(b.tmp, "delta")
			r := firstRow{tool: effort.tool, enc: measure(t, benchRole+"="+effort.role, self, dir, d)}
			r.size = b.size(d)
			if effort.role == "encode-fast" { // as the payload is, which is unpacked first
				require.NoError(t, gunzip(d))
			}
			r.dec = leastOf(fewRuns, func() cost { return measure(t, benchRole+"=decode", self, dir, d) })
			rows = append(rows, r)
		}
		rows = append(rows,
			b.compressed("zstd -19", archive, "zstd -q -19 --long=27 -c", "zstd -q -d --long=27 -c"),
			b.compressed("gzip -9", archive, "gzip -9 -c", "gzip -dc"))
		for _, r := range rows {
			whole := float64(b.size(archive))
			fmt.Printf("| %s | %.1f | %s | %.1f | %.3f | %.2f | %.2f | %.1f | %d |\n", pair, whole/(1<<20), r.tool, float64(r.size)/1024,
				float64(r.size)/float64(rows[0].size), r.enc.cpu, r.dec.cpu, whole/1e6/r.dec.cpu, r.dec.rss>>10)
		}
	}
}

// gunzip unpacks a file in its place.
func gunzip(name string) error {
	from, err := os.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	z, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil { // from stays open
		return err
	}
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, z); err != nil {
		return err
	}
	return to.Close()
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
		least = least.least(run())
	}
	return least
}

// branchFilters are those of xz for the architecture that a pair's name ends with.
var branchFilters = map[string][]string{"armhf": {"--arm", "--armthumb"}, "armv7": {"--arm", "--armthumb"}, "arm64": {"--arm64"}, "amd64": {"--x86"}}

// xz is the smallest archive of xz -9e, of those with a filter for branches.
func (b *bench) xz(archive, pair string) (best firstRow) {
	filters := branchFilters[pair[strings.LastIndexByte(pair, '-')+1:]]
	require.NotEmpty(b.t, filters, pair)
	for _, f := range filters {
		r := b.compressed("xz "+f+" -9e", archive, "xz -T1 "+f+" --lzma2=preset=9e -c", "xz -T1 -dc")
		if best.size == 0 || r.size < best.size {
			best = r
		}
	}
	return best
}

// compressed measures the commands of a compressor and its decompressor, which read their
// input and write their output.
func (b *bench) compressed(name, archive, enc, dec string) firstRow {
	b.t.Helper()
	packed := filepath.Join(b.tmp, "packed")
	run := func(command, from, to string) cost {
		return measure(b.t, "", "sh", "-c", "exec "+command+` <"$1" >"$2"`, "sh", from, to)
	}
	r := firstRow{tool: name, enc: run(enc, archive, packed)}
	r.size = b.size(packed)
	r.dec = leastOf(fewRuns, func() cost { return run(dec, packed, os.DevNull) })
	return r
}
