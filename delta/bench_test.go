package delta_test

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

	"github.com/mender-app/mender-app/testdata/peers"
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
	whole    = "xdelta3 whole"
	byLayer  = "xdelta3 by layer"
	bsdiff   = "bsdiff by layer"
	zstdFrom = "zstd -19 --patch-from"
	hdiff    = "HDiffPatch whole"
	hdiffBy  = "HDiffPatch by layer"
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
// peak memory are its alone. The corpus is what `make corpus` built: those pairs that
// MENDER_APP_PAIRS names (separated by blanks), or all. MENDER_APP_CORPUS names other
// directories (separated by colons). Pairs are unpacked to the system's temporary directory.
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
		b.pair(dir, b.tools(dir, arm))
	}
	for _, mib := range strings.Fields(cmp.Or(os.Getenv("MENDER_APP_LARGE"), largeMiB)) {
		d := filepath.Join(b.tmp, "large")
		enc := measure(t, benchRole+"=encode-large", self, mib, d)
		b.row("a layer of "+mib+" MiB", ours, b.size(d), enc, measure(t, benchRole+"=decode-large", self, mib, d))
	}
	b.ratios(dirs)
}

// tool makes and applies deltas of whole images or of their layers.
type tool struct {
	name  string
	pairs [][2]string                      // the old and the new files
	enc   func(old, new, file string) cost // nil: it applies what the tool before it made
	dec   func(old, file string) cost
	runs  int // of the decoder
}

// runs is how often decoding is measured where processor time is compared, and
// fewRuns where it is not.
const (
	runs    = 9
	fewRuns = 3
)

// tools are ours and the peers that are installed.
func (b *bench) tools(dir, arm string) []tool {
	t, self := b.t, b.self
	out := filepath.Join(b.tmp, "out")
	encode := func(old, new, d string) cost { return measure(t, benchRole+"=encode", self, dir, d) }
	decode := func(program string) func(old, d string) cost {
		return func(old, d string) cost { return measure(t, benchRole+"=decode", program, dir, d) }
	}
	image := [][2]string{{filepath.Join(dir, "v1.tar"), filepath.Join(dir, "v2.tar")}}
	all := []tool{{ours, image, encode, decode(self), runs}}
	if arm != "" {
		all = append(all, tool{oursArm, image, nil, decode(arm), fewRuns})
	}
	if os.Getenv("MENDER_APP_BENCH") == "self" {
		return all
	}
	size := strconv.FormatInt(max(b.size(image[0][0]), 1<<20), 10)
	layers := pairsOf(t, dir)
	// The options that give HDiffPatch's smallest deltas.
	hdiffz, hpatchz := noPackage("hdiffz"), noPackage("hpatchz")
	hencode := func(o, n, d string) cost {
		return measure(t, "", hdiffz, "-m-4", "-SD-4m", "-p-1", "-d", "-f", "-c-lzma2-9-64m", o, n, d)
	}
	hdecode := func(o, d string) cost { return measure(t, "", hpatchz, "-f", o, d, out) }
	for _, peer := range []tool{
		{whole, image,
			func(o, n, d string) cost {
				return measure(t, "", "xdelta3", "-e", "-f", "-9", "-B", size, "-s", o, n, d)
			},
			func(o, d string) cost { return measure(t, "", "xdelta3", "-d", "-f", "-B", size, "-s", o, d, out) }, runs},
		{byLayer, layers,
			func(o, n, d string) cost { return measure(t, "", "xdelta3", "-e", "-f", "-9", "-s", o, n, d) },
			func(o, d string) cost { return measure(t, "", "xdelta3", "-d", "-f", "-s", o, d, out) }, runs},
		{bsdiff, layers,
			func(o, n, d string) cost { return measure(t, "", "bsdiff", o, n, d) },
			func(o, d string) cost { return measure(t, "", "bspatch", o, out, d) }, fewRuns},
		{zstdFrom, layers,
			func(o, n, d string) cost {
				return measure(t, "", "zstd", "-19", "--long=27", "-qf", "--patch-from="+o, n, "-o", d)
			},
			func(o, d string) cost {
				return measure(t, "", "zstd", "-qdf", "--long=27", "--patch-from="+o, d, "-o", out)
			}, fewRuns},
		{hdiff, image, hencode, hdecode, fewRuns},
		{hdiffBy, layers, hencode, hdecode, fewRuns},
	} {
		program, _, _ := strings.Cut(peer.name, " ")
		if program == "HDiffPatch" {
			program = hdiffz
		}
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not measured: %v", peer.name, err)
			continue
		}
		all = append(all, peer)
	}
	return all
}

// noPackage is the path of a program that no package has, or its name if this machine does
// not have it.
func noPackage(program string) string {
	path, err := peers.Find(program)
	if err != nil {
		return program
	}
	return path
}

// pair measures all tools on a pair of images. They decode in turn, so that what
// else the machine does meets all of them; the least time counts, and the most
// memory.
func (b *bench) pair(dir string, tools []tool) {
	type deltas struct {
		names []string // by pair of files
		size  int64
		enc   cost
	}
	made := make([]deltas, len(tools))
	dec := make([][]cost, len(tools)) // by pair of files
	for k, tool := range tools {
		dec[k] = make([]cost, len(tool.pairs))
		if tool.enc == nil {
			made[k] = made[k-1]
			continue
		}
		for i, p := range tool.pairs {
			name := filepath.Join(b.tmp, fmt.Sprintf("delta-%d-%d", k, i))
			made[k].enc.add(tool.enc(p[0], p[1], name))
			made[k].size += b.size(name)
			made[k].names = append(made[k].names, name)
		}
	}
	for run := range runs {
		for k, tool := range tools {
			if run >= tool.runs {
				continue
			}
			for i, p := range tool.pairs {
				c, d := tool.dec(p[0], made[k].names[i]), &dec[k][i]
				if run == 0 {
					*d = c
				}
				*d = d.least(c)
			}
		}
	}
	for k, tool := range tools {
		var sum cost
		for _, d := range dec[k] {
			sum.add(d)
		}
		b.row(filepath.Base(dir), tool.name, made[k].size, made[k].enc, sum)
	}
}

// ratios prints what the rows come to: ours by the peers'.
func (b *bench) ratios(dirs []string) {
	columns := []string{
		"pair", "size by the smallest peer's", "encode CPU by bsdiff's", "decode CPU by xdelta3's, whole", "by layer",
		"decode RSS by xdelta3's, whole", "by layer", "RSS on arm/v7 less the emulator's, MiB",
	}
	fmt.Print("\n| ", strings.Join(columns, " | "), " |\n|", strings.Repeat("---|", len(columns)), "\n")
	for _, dir := range dirs {
		pair := filepath.Base(dir)
		us := b.rows[[2]string{pair, ours}]
		small := int64(0)
		for _, tool := range []string{whole, byLayer, bsdiff, zstdFrom, hdiff, hdiffBy} {
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
