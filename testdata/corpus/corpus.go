// Package corpus builds pairs of container images, an old one and its successor, to
// test and measure deltas with. The pairs are made of Debian packages and of Go
// programs, two releases of each, and of everything that a layer's tar may contain.
// They are built outside the repository. Two builds of a pair give the same bytes if
// the packages and the Go version are the same: those of the public benchmark (Public)
// are recorded with both.
package corpus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Pair is a pair of images that can be built.
type Pair struct {
	Name  string
	About string // one line
	Kind  string // of a public pair: what changes, in a word or two
	// Synthetic pairs are generated without other sources, in about a second. The
	// others need the network: the Debian archive from this machine's apt sources,
	// or the Go module proxy.
	Synthetic bool

	platform string
	public   bool
	build    func(b *builder) (old, new []layer, err error)
}

// All returns all pairs.
func All() []Pair {
	var list []Pair
	list = append(list, synthetic()...)
	list = append(list, goPairs()...)
	return append(list, debianPairs()...)
}

// Platform is the images' platform, as linux/arm/v7.
func (p Pair) Platform() string { return p.platform }

// Dir returns the directory of the pairs that the tests and the benchmarks share. It
// is in the user's cache directory (XDG_CACHE_HOME).
func Dir() (string, error) {
	d, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(d, "mender-app", "corpus"), nil
}

// ErrUnavailable means that a package or module cannot be downloaded here.
var ErrUnavailable = errors.New("not available here")

// Build makes the pair in dir/Name, unless it exists: the docker-archives v1.tar and
// v2.tar, and SHA256SUMS. made reports whether it was built. Downloads are kept
// beside the pairs.
//
// The images of a public pair are compared with what is recorded, and go to
// dir/public.
func (p Pair) Build(ctx context.Context, dir string) (made bool, err error) {
	if !p.public {
		return p.make(ctx, dir, nil, nil)
	}
	pins, err := RecordedPins()
	if err != nil {
		return false, err
	}
	sums, err := recordedSums()
	if err != nil {
		return false, err
	}
	return p.make(ctx, filepath.Join(dir, "public"), pins, func(name, sum string) error {
		if want := sums[name]; sum != want {
			return fmt.Errorf("%s: SHA-256 is %s, recorded is %q", name, sum, want)
		}
		return nil
	})
}

// Record makes a public pair of what the archives have now. It puts its inputs into
// the list, and hands the digests of the images to sum.
func (p Pair) Record(ctx context.Context, dir string, pins *Pins, sum func(name, sum string)) error {
	_, err := p.make(ctx, filepath.Join(dir, "public"), pins, func(name, s string) error {
		sum(name, s)
		return nil
	})
	return err
}

// make builds the pair below dir, unless check accepts the digests of the one that is
// there.
func (p Pair) make(ctx context.Context, dir string, pins *Pins, check func(name, sum string) error) (made bool, err error) {
	to := filepath.Join(dir, p.Name)
	if p.isThere(to, pins, check) {
		return false, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	temp, err := os.MkdirTemp(dir, ".build-*")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(temp)
	b := &builder{ctx: ctx, cache: dir, temp: temp, pins: pins}
	old, next, err := p.build(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.Name, err)
	}
	out := filepath.Join(temp, "pair")
	if err := os.Mkdir(out, 0o755); err != nil {
		return false, err
	}
	var sums strings.Builder
	for i, layers := range [][]layer{old, next} {
		name := fmt.Sprintf("v%d.tar", i+1)
		sum, err := writeArchive(filepath.Join(out, name), fmt.Sprintf("corpus/%s:%d", p.Name, i+1), p.platform, layers)
		if err != nil {
			return false, fmt.Errorf("%s: %s: %w", p.Name, name, err)
		}
		if check != nil {
			if err := check(p.Name+"/"+name, sum); err != nil {
				return false, err
			}
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
	}
	if err := os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644); err != nil {
		return false, err
	}
	if err := os.RemoveAll(to); err != nil {
		return false, err
	}
	return true, os.Rename(out, to)
}

// isThere reports whether the pair was built before: with the recorded digests, if it
// has such.
func (p Pair) isThere(dir string, pins *Pins, check func(name, sum string) error) bool {
	b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil || pins == nil {
		return err == nil
	}
	if pins.record {
		return false
	}
	for line := range strings.Lines(string(b)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if check(p.Name+"/"+name, sum) != nil {
			return false
		}
	}
	return true
}

// builder is one run of Build.
type builder struct {
	ctx   context.Context
	cache string // for downloads
	pins  *Pins  // of public pairs: what they are made of
	temp  string
	n     int
}

// layer is a file with a layer's tar.
type layer struct {
	path string
	size int64
	sum  string // SHA-256, hex
}

// tar makes a layer of the bytes that fill writes.
func (b *builder) tar(fill func(w io.Writer) error) (layer, error) {
	b.n++
	l := layer{path: filepath.Join(b.temp, fmt.Sprintf("layer-%d", b.n))}
	f, err := os.Create(l.path)
	if err != nil {
		return l, err
	}
	h := sha256.New()
	c := &counter{w: io.MultiWriter(f, h)}
	err = fill(c)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	l.size, l.sum = c.n, hex.EncodeToString(h.Sum(nil))
	return l, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// writeArchive writes a docker-archive and returns its SHA-256.
func writeArchive(path, ref, platform string, layers []layer) (string, error) {
	os, rest, _ := strings.Cut(platform, "/")
	arch, variant, _ := strings.Cut(rest, "/")
	type history struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	}
	var diffIDs []string
	var hist []history
	for i, l := range layers {
		diffIDs = append(diffIDs, "sha256:"+l.sum)
		hist = append(hist, history{"2025-01-01T00:00:00Z", fmt.Sprintf("corpus layer %d", i)})
	}
	config := map[string]any{
		"architecture": arch, "os": os, "created": "2025-01-01T00:00:00Z",
		"config":  map[string]any{"Env": []string{"PATH=/usr/bin:/bin"}, "Cmd": []string{"/bin/true"}},
		"history": hist,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": diffIDs},
	}
	if variant != "" {
		config["variant"] = variant
	}
	c, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(c))
	var names []string
	for _, l := range layers {
		names = append(names, l.sum+"/layer.tar")
	}
	m, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{ref}, "Layers": names}})
	if err != nil {
		return "", err
	}
	return archiveFile(path, configName, c, m, layers)
}
