package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// pair is a pair of images, and how large each tool's delta of it is.
type pair struct {
	name, about string
	ours        float64 // KiB
	peers       []size
}

type size struct {
	tool string
	kib  float64
}

// smallest is the peer with the smallest delta.
func (p pair) smallest() size {
	return slices.MinFunc(p.peers, func(a, b size) int {
		if a.kib < b.kib {
			return -1
		}
		return 1
	})
}

// peers are the tools to compare with, in the order in which they are drawn, with the
// start of their names in the table. Of several ways to call one, the smallest delta
// counts.
var peers = []string{"HDiffPatch", "bsdiff", "zstd", "xdelta3"}

// readPairs reads docs/deltas.csv and, from docs/BENCHMARKS.md, what the pairs are. Rows
// without a peer, such as those of the time that starting takes, are left out.
func readPairs(text string, deltas io.Reader) ([]pair, error) {
	_, text, _ = strings.Cut(text, "\n## Deep deltas\n")
	list, _, _ := strings.Cut(text, "\n## ")
	about := map[string]string{}
	for line := range strings.Lines(list) {
		if name, words, ok := strings.Cut(strings.TrimPrefix(line, "- "), ": "); ok && strings.HasPrefix(line, "- ") {
			about[name] = strings.TrimSpace(words)
		}
	}
	table, err := csv.NewReader(deltas).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("docs/deltas.csv: %w", err)
	}
	if len(table) == 0 || len(table[0]) < 3 || table[0][2] != "KiB" {
		return nil, errors.New("docs/deltas.csv does not begin with pair,tool,KiB")
	}
	var pairs []pair
	for _, cells := range table[1:] {
		kib, err := strconv.ParseFloat(cells[2], 64)
		if err != nil {
			return nil, fmt.Errorf("docs/deltas.csv: %s, %s: %w", cells[0], cells[1], err)
		}
		if len(pairs) == 0 || pairs[len(pairs)-1].name != cells[0] {
			short, _, _ := strings.Cut(cells[0], "-")
			words, ok := about[cells[0]]
			if !ok {
				words = about[short]
			}
			pairs = append(pairs, pair{name: cells[0], about: words})
		}
		pairs[len(pairs)-1].add(cells[1], kib)
	}
	pairs = slices.DeleteFunc(pairs, func(p pair) bool { return p.ours == 0 || len(p.peers) == 0 })
	if len(pairs) == 0 {
		return nil, errors.New("docs/deltas.csv names no pair")
	}
	return pairs, nil
}

func (p *pair) add(tool string, kib float64) {
	if tool == "delta" {
		p.ours = kib
		return
	}
	for _, peer := range peers {
		if !strings.HasPrefix(strings.ToLower(tool), strings.ToLower(peer)) {
			continue
		}
		for n := range p.peers {
			if p.peers[n].tool == peer {
				p.peers[n].kib = min(p.peers[n].kib, kib)
				return
			}
		}
		p.peers = append(p.peers, size{peer, kib})
		slices.SortFunc(p.peers, func(a, b size) int { return slices.Index(peers, a.tool) - slices.Index(peers, b.tool) })
	}
}
