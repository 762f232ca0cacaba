package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// row is a line of docs/benchmark.csv that has figures.
type row struct {
	pair, kind, platform, tool string
	measured                   [5]float64 // in the order of measured
}

// measured are what was measured, with the columns of docs/benchmark.csv.
var measured = [5]struct {
	title, column string
	unit          float64 // what the column's figures are divided by
}{
	{"Size of the delta, KiB", "delta bytes", 1024},
	{"Encoding, s of processor time", "encode CPU s", 1},
	{"Encoding, MiB of memory", "encode peak RSS KiB", 1024},
	{"Decoding, s of processor time", "decode CPU s", 1},
	{"Decoding, MiB of memory", "decode peak RSS KiB", 1024},
}

// project is the name of our own tool in docs/benchmark.csv.
const project = "mender-app"

// readRows reads the results. Rows without figures, of tools that failed, are left out.
func readRows(r io.Reader) ([]row, error) {
	table, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("docs/benchmark.csv: %w", err)
	}
	if len(table) == 0 {
		return nil, fmt.Errorf("docs/benchmark.csv is empty")
	}
	column := map[string]int{}
	for i, name := range table[0] {
		column[name] = i
	}
	for _, name := range []string{"pair", "kind", "architecture", "tool", "note"} {
		if _, ok := column[name]; !ok {
			return nil, fmt.Errorf("docs/benchmark.csv has no column %q", name)
		}
	}
	var rows []row
	for _, c := range table[1:] {
		if c[column["note"]] != "" {
			continue
		}
		r := row{pair: c[column["pair"]], kind: c[column["kind"]], platform: c[column["architecture"]], tool: c[column["tool"]]}
		for i, p := range measured {
			n, ok := column[p.column]
			if !ok {
				return nil, fmt.Errorf("docs/benchmark.csv has no column %q", p.column)
			}
			if r.measured[i], err = strconv.ParseFloat(c[n], 64); err != nil {
				return nil, fmt.Errorf("docs/benchmark.csv: %s, %s: %w", r.pair, r.tool, err)
			}
			r.measured[i] /= p.unit
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("docs/benchmark.csv has no figures")
	}
	return rows, nil
}

// distinct returns what the rows name, in the order of the file; ours comes first.
func distinct(rows []row, of func(row) string) (list []string) {
	for _, r := range rows {
		if n := of(r); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	if i := slices.Index(list, project); i > 0 {
		list = slices.Insert(slices.Delete(list, i, i+1), 0, project)
	}
	return list
}

// plots draws a panel for each thing that was measured: a row for each pair, and in it a
// mark for each tool.
func plots(rows []row) ([]byte, error) {
	pairs := distinct(rows, func(r row) string { return r.pair })
	tools := distinct(rows, func(r row) string { return r.tool })
	var list []panel
	for k, m := range measured {
		p := panel{title: m.title, note: summary(rows, tools, k), rows: pairs}
		for _, t := range tools {
			s := series{name: t}
			for _, r := range rows {
				if r.tool == t {
					s.add(slices.Index(pairs, r.pair), r.measured[k])
				}
			}
			p.tools = append(p.tools, s)
		}
		list = append(list, p)
	}
	return picture(list)
}

// ratio is the geometric mean of ours by that of another tool, over the pairs that have
// both, and how many these are.
func ratio(rows []row, tool string, k int) (mean float64, pairs int) {
	sum := 0.0
	for _, ours := range rows {
		for _, r := range rows {
			if ours.tool == project && r.tool == tool && r.pair == ours.pair {
				sum += math.Log(max(ours.measured[k], least) / max(r.measured[k], least))
				pairs++
			}
		}
	}
	if pairs == 0 {
		return 0, 0
	}
	return math.Exp(sum / float64(pairs)), pairs
}

func summary(rows []row, tools []string, k int) string {
	text := ""
	for _, t := range tools {
		if mean, pairs := ratio(rows, t, k); t != project && pairs > 0 {
			if text != "" {
				text += " · "
			}
			text += fmt.Sprintf("%.2f × %s", mean, t)
		}
	}
	if text == "" {
		return ""
	}
	return "ours, geometric mean: " + text
}
