package delta

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pairsOf returns the changed objects of a pair as files, old and new, paired
// by place; what has none is paired with the last.
func pairsOf(t *testing.T, dir string) (out [][2]string) {
	old, _ := filepath.Glob(filepath.Join(dir, "v1", "*"))
	new, _ := filepath.Glob(filepath.Join(dir, "v2", "*"))
	for i, n := range new {
		if o := old[min(i, len(old)-1)]; filepath.Base(o) != filepath.Base(n) {
			out = append(out, [2]string{o, n})
		}
	}
	return out
}

// largeMiB are the sizes of the layers that show that the memory does not grow
// with them; MENDER_APP_LARGE sets others. Their content is computed, which is
// part of the processor time.
const largeMiB = "1024 4096"

// bench prints rows as they are measured, and keeps them for the ratios.
type bench struct {
	t    *testing.T
	self string
	tmp  string
	rows map[[2]string]result
}

type result struct {
	size     int64
	enc, dec cost
}

func (b *bench) row(pair, tool string, size int64, enc, dec cost) {
	b.rows[[2]string{pair, tool}] = result{size, enc, dec}
	fmt.Printf("| %s | %s | %.1f | %.2f | %d | %.2f | %d |\n", pair, tool, float64(size)/1024, enc.cpu, enc.rss>>10, dec.cpu, dec.rss>>10)
}

func (b *bench) size(name string) int64 {
	st, err := os.Stat(name)
	require.NoError(b.t, err)
	return st.Size()
}

const (
	ours     = "delta"
	oursArm  = "delta, decoded on arm/v7"
	whole    = "xdelta3, whole"
	byLayer  = "xdelta3 by layer"
	bsdiff   = "bsdiff by layer"
	zstdFrom = "zstd -19 --patch-from"
	idle     = "idle on arm/v7"
	noPair   = "nothing"
	pairHead = "| pair | tool | KiB | encode CPU s | encode RSS MiB | decode CPU s | decode RSS MiB |\n|---|---|---|---|---|---|---|\n"
)

// The measurements of the corpus pairs, with their peers in the same run, as a
// Markdown table:
//
//	MENDER_APP_BENCH=1 go test -run TestBench -v ./delta
//
// Each side runs in a process of its own, so that its processor time and its
// peak memory are its alone. The corpus is ../../shared/corpus and, for the
// benchmark, what `make corpus` built: those pairs that MENDER_APP_PAIRS names
// (separated by blanks), or all. MENDER_APP_CORPUS names other directories
// (separated by colons). Pairs are unpacked to the system's temporary directory.
func TestBench(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("MENDER_APP_BENCH is not set")
	}
	dirs := corpus(t)
	self, err := os.Executable()
	require.NoError(t, err)
	b := &bench{t: t, self: self, tmp: t.TempDir(), rows: map[[2]string]result{}}
	fmt.Print(pairHead)
	// The same tests built for arm: what qemu takes counts too, and is what the
	// program takes that does nothing.
	arm := os.Getenv("MENDER_APP_BENCH_ARM")
	if arm != "" {
		b.row(noPair, idle, 0, cost{}, measure(t, benchRole+"=idle", arm))
	}
	for _, dir := range dirs {
		d := filepath.Join(b.tmp, "delta")
		enc := measure(t, benchRole+"=encode", self, dir, d)
		b.row(filepath.Base(dir), ours, b.size(d), enc, decodes(t, benchRole+"=decode", self, dir, d))
		if arm != "" {
			b.row(filepath.Base(dir), oursArm, b.size(d), enc, decodes(t, benchRole+"=decode", arm, dir, d))
		}
		if os.Getenv("MENDER_APP_BENCH") != "self" {
			b.peers(dir)
		}
	}
	for _, mib := range strings.Fields(cmp.Or(os.Getenv("MENDER_APP_LARGE"), largeMiB)) {
		d := filepath.Join(b.tmp, "large")
		enc := measure(t, benchRole+"=encode-large", self, mib, d)
		b.row("a layer of "+mib+" MiB", ours, b.size(d), enc, measure(t, benchRole+"=decode-large", self, mib, d))
	}
	b.ratios(dirs)
}

// decodes measures a command three times, of which the first finds less in the
// page cache: the least time counts, and the most memory.
func decodes(t testing.TB, env string, args ...string) cost {
	c := measure(t, env, args...)
	for range 2 {
		again := measure(t, env, args...)
		c.cpu, c.rss, c.low = min(c.cpu, again.cpu), max(c.rss, again.rss), max(c.low, again.low)
	}
	return c
}

// peers measures the other tools on a pair.
func (b *bench) peers(dir string) {
	t := b.t
	d, out := filepath.Join(b.tmp, "delta"), filepath.Join(b.tmp, "out")
	v1, v2 := filepath.Join(dir, "v1.tar"), filepath.Join(dir, "v2.tar")
	size := strconv.FormatInt(max(b.size(v1), 1<<20), 10)
	if _, err := exec.LookPath("xdelta3"); err == nil {
		e := measure(t, "", "xdelta3", "-e", "-f", "-9", "-B", size, "-s", v1, v2, d)
		x := decodes(t, "", "xdelta3", "-d", "-f", "-B", size, "-s", v1, d, out)
		b.row(filepath.Base(dir), whole, b.size(d), e, x)
	}
	each := func(tool string, enc, dec func(old, new string) cost) {
		if _, err := exec.LookPath(strings.Fields(tool)[0]); err != nil {
			return
		}
		var e, x cost
		var n int64
		for _, p := range pairsOf(t, dir) {
			e.add(enc(p[0], p[1]))
			x.add(dec(p[0], p[1]))
			n += b.size(d)
		}
		b.row(filepath.Base(dir), tool, n, e, x)
	}
	each(byLayer,
		func(o, n string) cost { return measure(t, "", "xdelta3", "-e", "-f", "-9", "-s", o, n, d) },
		func(o, n string) cost { return decodes(t, "", "xdelta3", "-d", "-f", "-s", o, d, out) })
	each(bsdiff,
		func(o, n string) cost { return measure(t, "", "bsdiff", o, n, d) },
		func(o, n string) cost { return decodes(t, "", "bspatch", o, out, d) })
	each(zstdFrom,
		func(o, n string) cost {
			return measure(t, "", "zstd", "-19", "--long=27", "-qf", "--patch-from="+o, n, "-o", d)
		},
		func(o, n string) cost {
			return decodes(t, "", "zstd", "-qdf", "--long=27", "--patch-from="+o, d, "-o", out)
		})
}

// ratios prints what the rows come to: ours by the peers'.
func (b *bench) ratios(dirs []string) {
	fmt.Print("\n| pair | size by the smallest peer's | encode CPU by bsdiff's | decode CPU by xdelta3's, whole | by layer | decode RSS by xdelta3's, whole | by layer | RSS on arm/v7 less the emulator's, MiB |\n|---|---|---|---|---|---|---|---|\n")
	for _, dir := range dirs {
		pair := filepath.Base(dir)
		us := b.rows[[2]string{pair, ours}]
		small := int64(0)
		for _, tool := range []string{whole, byLayer, bsdiff, zstdFrom} {
			if r, ok := b.rows[[2]string{pair, tool}]; ok && (small == 0 || r.size < small) {
				small = r.size
			}
		}
		ratio := func(tool string, us float64, of func(result) float64) string {
			r, ok := b.rows[[2]string{pair, tool}]
			if !ok || of(r) == 0 {
				return "–"
			}
			return fmt.Sprintf("%.2f", us/of(r))
		}
		cpu := func(r result) float64 { return r.dec.cpu }
		rss := func(r result) float64 { return float64(r.dec.rss) }
		onArm := "–"
		if r, ok := b.rows[[2]string{pair, oursArm}]; ok {
			onArm = strconv.FormatInt(r.dec.low>>10, 10)
		}
		size := "–"
		if small > 0 {
			size = fmt.Sprintf("%.2f", float64(us.size)/float64(small))
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", pair, size,
			ratio(bsdiff, us.enc.cpu, func(r result) float64 { return r.enc.cpu }),
			ratio(whole, us.dec.cpu, cpu), ratio(byLayer, us.dec.cpu, cpu),
			ratio(whole, float64(us.dec.rss), rss), ratio(byLayer, float64(us.dec.rss), rss), onArm)
	}
}
