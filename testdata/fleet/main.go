// Command fleet computes what one release costs a large fleet, and writes the tables of
// docs/FLEET.md (make fleet-sim). It draws a million devices, always the same ones. What it
// knows of images is measured: docs/benchmark.csv has the deltas over the previous release,
// images.csv the whole images, history.csv the deltas of one image over twenty older releases.
package main

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

func main() {
	doc := flag.String("doc", "docs/FLEET.md", "document whose tables are written")
	check := flag.Bool("check", false, "only say whether they are what they should be")
	flag.Parse()
	if err := run(".", *doc, *check); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// The tables are between these lines.
const (
	begins = "<!-- written by make fleet-sim -->\n"
	ends   = "<!-- end -->\n"
)

// run writes the tables into a document. root is the directory of the repository.
func run(root, doc string, check bool) error {
	images, err := readImages(root)
	if err != nil {
		return err
	}
	path := filepath.Join(root, doc)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(begins))
	_, after, ok2 := bytes.Cut(rest, []byte(ends))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the tables", path)
	}
	tables, err := simulate(images)
	if err != nil {
		return err
	}
	next := bytes.Join([][]byte{before, []byte(begins), []byte(tables), []byte(ends), after}, nil)
	switch {
	case bytes.Equal(next, text):
		return nil
	case check:
		return fmt.Errorf("%s has other tables: make fleet-sim", path)
	}
	return os.WriteFile(path, next, 0o644)
}

// bases is how many older releases have deltas.
const bases = 20

// image is one of the application, in bytes and seconds of one processor.
type image struct {
	name, platform string
	whole          float64 // as a delta over nothing
	wholeCPU       float64
	gzip           float64            // all layers in gzip, as a registry has them
	layers         float64            // those that the previous release lacks
	delta, cpu     [bases + 1]float64 // over the release that is so many back, from 1
}

// readImages reads what is measured.
func readImages(root string) ([]*image, error) {
	here := filepath.Join(root, "testdata", "fleet")
	rows, err := table(filepath.Join(here, "images.csv"))
	if err != nil {
		return nil, err
	}
	var list []*image
	for _, r := range rows {
		n, err := numbers(r[2:6])
		if err != nil {
			return nil, err
		}
		list = append(list, &image{name: r[0], platform: r[1], whole: n[0], wholeCPU: n[1], gzip: n[2], layers: n[3]})
	}
	if rows, err = table(filepath.Join(root, "docs", "benchmark.csv")); err != nil {
		return nil, err
	}
	for _, r := range rows {
		for _, i := range list {
			if r[0] != i.name || r[3] != "mender-app" {
				continue
			}
			n, err := numbers([]string{r[5], r[6]})
			if err != nil {
				return nil, err
			}
			i.delta[1], i.cpu[1] = n[0], n[1]
		}
	}
	if rows, err = table(filepath.Join(here, "history.csv")); err != nil {
		return nil, err
	}
	return list, age(list, rows)
}

// age gives each image the deltas over older releases. The rows are those of the first image:
// how many releases back, the bytes of the delta, and what encoding it takes. Between them
// lies a straight line. Of what the delta over the previous release does not save of an
// image already, other images lose the same share with age.
func age(list []*image, rows [][]string) error {
	var share, longer [bases + 1]float64 // of the first image
	measured := list[0]
	last := 0
	for _, r := range rows {
		n, err := numbers(r)
		if err != nil {
			return err
		}
		at := int(n[0])
		for k := last + 1; k <= at; k++ {
			part := 1.0
			if last > 0 {
				part = float64(k-last) / float64(at-last)
			}
			share[k] = share[last] + part*(n[1]/measured.whole-share[last])
			longer[k] = longer[last] + part*(n[2]-longer[last])
		}
		last = at
	}
	if last != bases {
		return fmt.Errorf("history.csv ends %d releases back, not %d", last, bases)
	}
	for _, i := range list {
		if i.delta[1] == 0 {
			return fmt.Errorf("benchmark.csv does not have %s", i.name)
		}
		for k := 2; k <= bases; k++ {
			i.delta[k] = i.delta[1] + (i.whole-i.delta[1])*(share[k]-share[1])/(1-share[1])
			i.cpu[k] = i.cpu[1] * longer[k] / longer[1]
		}
	}
	return nil
}

// table reads a CSV file without its first line.
func table(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows[1:], nil
}

func numbers(cells []string) (list []float64, err error) {
	for _, c := range cells {
		n, err := strconv.ParseFloat(c, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
