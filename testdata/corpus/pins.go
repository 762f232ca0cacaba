package corpus

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pins are the inputs of the public benchmark: packages with their SHA-256, size and
// path in Debian's archives, sets of them, and the SHA-256 of Go programs.
type Pins struct {
	files map[string]pin      // by the last part of the path
	sets  map[string][]string // names of files, by architecture, suite and packages asked for
	progs map[string]string   // SHA-256 by what is built
	// record is set while the list is made: from what apt finds, and what Go builds.
	record bool
}

type pin struct {
	sum  string
	size int64
	path string
}

// Toolchain is the Go release that builds the programs. The go command downloads it
// where it is another one itself (GOTOOLCHAIN).
const Toolchain = "go1.26.8"

// MirrorsVariable names the variable with mirrors of Debian, separated by blanks. Without it
// packages come from where apt has them from on this machine.
const MirrorsVariable = "MENDER_APP_MIRRORS"

// NewPins returns an empty list, which building fills.
func NewPins() *Pins {
	return &Pins{files: map[string]pin{}, sets: map[string][]string{}, progs: map[string]string{}, record: true}
}

// RecordedPins returns public/inputs.txt.
func RecordedPins() (*Pins, error) {
	f, err := recorded.Open("public/inputs.txt")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := readPins(f)
	if err != nil {
		return nil, fmt.Errorf("public/inputs.txt: %w", err)
	}
	return p, nil
}

func readPins(r io.Reader) (*Pins, error) {
	p := NewPins()
	p.record = false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		f := strings.Fields(rest)
		switch {
		case kind == "" || kind == "#":
		case kind == "file" && len(f) == 3:
			size, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return nil, err
			}
			p.files[path.Base(f[2])] = pin{f[0], size, f[2]}
		case kind == "set":
			key, names, ok := strings.Cut(rest, ": ")
			if !ok {
				return nil, fmt.Errorf("no set: %s", lines.Text())
			}
			p.sets[key] = strings.Fields(names)
		case kind == "program" && len(f) > 1:
			p.progs[strings.Join(f[1:], " ")] = f[0]
		default:
			return nil, fmt.Errorf("not understood: %s", lines.Text())
		}
	}
	return p, lines.Err()
}

// Merge writes the list into a file that may have others.
func (p *Pins) Merge(file string) error {
	f, err := os.Open(file)
	if err == nil {
		var have *Pins
		if have, err = readPins(f); err == nil {
			maps.Copy(have.files, p.files)
			maps.Copy(have.sets, p.sets)
			maps.Copy(have.progs, p.progs)
			p = have
		}
		f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	b.WriteString("# What the images of the public benchmark are made of. Written by\n# go run ./testdata/corpus/build -record testdata/corpus/public; README.md beside it explains it.\n")
	for _, what := range sortedKeys(p.progs) {
		fmt.Fprintf(&b, "program %s %s\n", p.progs[what], what)
	}
	for _, name := range sortedKeys(p.files) {
		f := p.files[name]
		fmt.Fprintf(&b, "file %s %d %s\n", f.sum, f.size, f.path)
	}
	for _, key := range sortedKeys(p.sets) {
		fmt.Fprintf(&b, "set %s: %s\n", key, strings.Join(p.sets[key], " "))
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	return keys
}

// add records a package that apt found at an address, whose file is there.
func (p *Pins) add(address, file string) (name string, err error) {
	for _, archive := range []string{"debian-security", "debian"} {
		_, rest, ok := strings.Cut(address, "/"+archive+"/pool/")
		if !ok {
			continue
		}
		sum, size, err := sumFile(file)
		if err != nil {
			return "", err
		}
		name = path.Base(rest)
		p.files[name] = pin{sum, size, archive + "/pool/" + rest}
		return name, nil
	}
	return "", fmt.Errorf("%s is in no known archive of Debian", address)
}

// program records or compares what Go has built.
func (p *Pins) program(what string, b []byte) error {
	sum := hex.EncodeToString(sum256(b))
	if p.record {
		p.progs[what] = sum
		return nil
	}
	if want := p.progs[what]; want != sum {
		return fmt.Errorf("%s: SHA-256 is %s, recorded is %q: another toolchain or other modules", what, sum, want)
	}
	return nil
}

func sum256(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:]
}

func sumFile(name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// pinned returns the files of a recorded set, and downloads what is missing.
func (b *builder) pinned(key string) ([]string, error) {
	names, ok := b.pins.sets[key]
	if !ok {
		return nil, fmt.Errorf("public/inputs.txt has no set %s", key)
	}
	var all []string
	for _, name := range names {
		f, ok := b.pins.files[name]
		if !ok {
			return nil, fmt.Errorf("public/inputs.txt has no file %s", name)
		}
		file, err := b.download(f)
		if err != nil {
			return nil, err
		}
		all = append(all, file)
	}
	return all, nil
}

// download returns the file of a package, whose SHA-256 it has compared.
func (b *builder) download(p pin) (string, error) {
	dir := filepath.Join(b.cache, "debs")
	file := filepath.Join(dir, path.Base(p.path))
	if sum, _, err := sumFile(file); err == nil && sum == p.sum {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	addresses, err := b.addresses(p)
	if err != nil {
		return "", err
	}
	var all []error
	for _, address := range addresses {
		err := b.get(address, file, p)
		if err == nil {
			return file, nil
		}
		all = append(all, fmt.Errorf("%s: %w", address, err))
	}
	return "", fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(all...))
}

// addresses returns where a package is looked for, one after the other.
func (b *builder) addresses(p pin) (list []string, err error) {
	archive, rest, _ := strings.Cut(p.path, "/")
	for _, m := range strings.Fields(os.Getenv(MirrorsVariable)) {
		list = append(list, strings.NewReplacer("{archive}", archive, "{path}", rest).Replace(m))
	}
	if len(list) > 0 {
		return list, nil
	}
	archives, err := b.archives()
	if err != nil {
		return nil, err
	}
	label := map[string]string{"debian": "Debian", "debian-security": "Debian-Security"}[archive]
	if archives[label] == "" {
		return nil, fmt.Errorf("%w: apt has no archive %s on this machine, and %s is not set", ErrUnavailable, archive, MirrorsVariable)
	}
	return []string{strings.TrimSuffix(archives[label], "/") + "/" + rest}, nil
}

// get reads at most as much as is recorded, and leaves nothing that is not what is
// recorded.
func (b *builder) get(address, to string, p pin) error {
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: 5 * time.Minute}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	part, err := os.CreateTemp(filepath.Dir(to), ".part-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(part, h), io.LimitReader(resp.Body, p.size+1))
	if cerr := part.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != p.sum || n != p.size {
		return fmt.Errorf("has %d bytes with SHA-256 %s, recorded are %d with %s", n, sum, p.size, p.sum)
	}
	return os.Rename(part.Name(), to)
}
