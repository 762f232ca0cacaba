package main

import (
	"fmt"
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

// readPairs reads the first table of docs/BENCHMARKS.md and the list before it. Rows
// without a peer, as those of the time that starting takes, are left out.
func readPairs(text string) ([]pair, error) {
	_, text, _ = strings.Cut(text, "\n## Deep deltas\n")
	list, table, found := strings.Cut(text, "\n| pair | tool | KiB |")
	if !found {
		return nil, fmt.Errorf("docs/BENCHMARKS.md has no table of deep deltas")
	}
	about := map[string]string{}
	for line := range strings.Lines(list) {
		if name, words, ok := strings.Cut(strings.TrimPrefix(line, "- "), ": "); ok && strings.HasPrefix(line, "- ") {
			about[name] = strings.TrimSpace(words)
		}
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var pairs []pair
	for n, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if n < 2 || len(cells) < 3 {
			continue
		}
		kib, err := strconv.ParseFloat(cells[2], 64)
		if err != nil {
			return nil, fmt.Errorf("docs/BENCHMARKS.md: %s: %w", line, err)
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
		return nil, fmt.Errorf("docs/BENCHMARKS.md: the table of deep deltas names no pair")
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
