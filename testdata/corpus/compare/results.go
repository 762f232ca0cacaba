package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// result is one row: what a tool took for a pair. Without figures, note says why.
type result struct {
	pair, kind, platform string
	tool, version        string
	bytes                int64
	enc, dec             cost
	note                 string
}

var header = []string{
	"pair", "kind", "architecture", "tool", "version", "delta bytes", "encode CPU s", "encode peak RSS KiB",
	"decode CPU s", "decode peak RSS KiB", "note",
}

func (r result) cells() []string {
	c := []string{r.pair, r.kind, r.platform, r.tool, r.version, "", "", "", "", "", r.note}
	if r.note == "" {
		c[5], c[7], c[9] = strconv.FormatInt(r.bytes, 10), strconv.FormatInt(r.enc.rss, 10), strconv.FormatInt(r.dec.rss, 10)
		c[6], c[8] = fmt.Sprintf("%.2f", r.enc.cpu), fmt.Sprintf("%.2f", r.dec.cpu)
	}
	return c
}

type results map[[2]string]result // by pair and tool

func (all results) has(pair, tool, version string) bool {
	r, ok := all[[2]string{pair, tool}]
	return ok && r.version == version
}

func (all results) put(r result) { all[[2]string{r.pair, r.tool}] = r }

// readResults reads what earlier runs have measured.
func readResults(file string) (results, error) {
	all := results{}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf("%s has other columns: move it away", file)
	}
	for _, c := range rows[1:] {
		r := result{pair: c[0], kind: c[1], platform: c[2], tool: c[3], version: c[4], note: c[10]}
		if r.note == "" {
			var errs [5]error
			r.bytes, errs[0] = strconv.ParseInt(c[5], 10, 64)
			r.enc.cpu, errs[1] = strconv.ParseFloat(c[6], 64)
			r.enc.rss, errs[2] = strconv.ParseInt(c[7], 10, 64)
			r.dec.cpu, errs[3] = strconv.ParseFloat(c[8], 64)
			r.dec.rss, errs[4] = strconv.ParseInt(c[9], 10, 64)
			if err := errors.Join(errs[:]...); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, c[0], err)
			}
		}
		all.put(r)
	}
	return all, nil
}

// write replaces the file, in the order of the pairs and of the tools' names.
func (all results) write(file string, place map[string]int) error {
	var list []result
	for _, r := range all {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b result) int {
		return cmp.Or(place[a.pair]-place[b.pair], cmp.Compare(a.pair, b.pair), cmp.Compare(a.tool, b.tool))
	})
	f, err := os.CreateTemp(filepath.Dir(file), ".benchmark-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := csv.NewWriter(f)
	err = w.Write(header)
	for _, r := range list {
		err = errors.Join(err, w.Write(r.cells()))
	}
	w.Flush()
	if err := errors.Join(err, w.Error(), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
