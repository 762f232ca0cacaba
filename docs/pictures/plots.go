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
	measured                   [5]float64 // in the order of the panels
}

// panels are what is drawn, with the columns of docs/benchmark.csv.
var panels = [5]struct {
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
		for i, p := range panels {
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

// names returns what the rows name, in the order of the file; ours comes first.
func names(rows []row, of func(row) string) (list []string) {
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

// plots draws a panel for each thing that was measured: pairs from top to bottom, and
// for each a mark of every tool on a logarithmic scale.
func plots(rows []row) []byte {
	const (
		margin = 24.0
		left   = 250.0 // of the scale
		right  = 840.0
		step   = 19.0 // from pair to pair
		head   = 54.0 // of a panel: its title, and the means below it
	)
	pairs := names(rows, func(r row) string { return r.pair })
	tools := names(rows, func(r row) string { return r.tool })
	about := map[string]string{}
	for _, r := range rows {
		about[r.pair] = r.kind + ", " + r.platform
	}
	panel := head + 24 + step*float64(len(pairs))
	s := &svg{width: 864, height: int(92 + (panel+18)*float64(len(panels)))}
	s.text("title", "start", margin, 34, "The public benchmark")
	s.text("dim", "start", margin, 54, "Each row is a pair of images, each mark a tool. Further left is better; the scales are logarithmic.")
	x := margin
	for i, t := range tools {
		s.mark(i, x+5, 72)
		s.text(mark(i, "small"), "start", x+15, 76, t)
		x += 33 + 6.3*float64(len(t))
	}
	for k, p := range panels {
		top := 92 + (panel+18)*float64(k)
		s.rect("panel", margin-8, top, right-margin+24, panel, 8)
		s.text("name", "start", margin+4, top+24, p.title)
		s.text("small dim", "start", margin+4, top+41, summary(rows, tools, k))
		low, high := span(rows, k)
		at := func(v float64) float64 {
			return left + (right-left)*(math.Log10(max(v, low))-math.Log10(low))/(math.Log10(high)-math.Log10(low))
		}
		bottom := top + head + 4 + step*float64(len(pairs))
		for v := low; v <= high*1.001; v *= 10 {
			s.add(`<path class="grid" d="M%.1f %.1fV%.1f"/>`, at(v), top+head, bottom)
			s.text("small dim", "middle", at(v), bottom+13, fmt.Sprintf("%g", math.Round(v*1000)/1000))
		}
		for n, name := range pairs {
			y := top + head + 13 + step*float64(n)
			s.text("small", "end", left-14, y+4, name)
			s.add(`<path class="grid" d="M%.1f %.1fH%.1f"><title>%s</title></path>`, left, y, right, escape(about[name]))
			for i := len(tools) - 1; i >= 0; i-- { // ours on top
				for _, r := range rows {
					if r.pair == name && r.tool == tools[i] {
						s.mark(i, at(r.measured[k]), y)
					}
				}
			}
		}
	}
	return s.done("The public benchmark", describePlots(rows, tools))
}

// span returns the powers of ten around what was measured. What is below a hundredth is
// drawn there: that is what the processor time is counted in.
func span(rows []row, k int) (low, high float64) {
	low, high = math.Inf(1), 0
	for _, r := range rows {
		low, high = min(low, max(r.measured[k], 0.01)), max(high, r.measured[k])
	}
	low = math.Pow(10, math.Floor(math.Log10(low)+1e-9))
	return low, max(low*10, math.Pow(10, math.Ceil(math.Log10(max(high, low))-1e-9)))
}

// ratio is the geometric mean of ours by that of another tool, over the pairs that have
// both, and how many these are.
func ratio(rows []row, tool string, k int) (mean float64, pairs int) {
	sum := 0.0
	for _, ours := range rows {
		for _, r := range rows {
			if ours.tool == project && r.tool == tool && r.pair == ours.pair {
				sum += math.Log(max(ours.measured[k], 0.01) / max(r.measured[k], 0.01))
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

func describePlots(rows []row, tools []string) string {
	text := ""
	for k, p := range panels {
		if s := summary(rows, tools, k); s != "" {
			text += p.title + ", " + s + ". "
		}
	}
	return text
}

// mark draws a tool's mark: tools differ by shape and by colour.
func (s *svg) mark(tool int, x, y float64) {
	class := mark(tool, "mark")
	switch tool % numMarks {
	case 0:
		s.add(`<circle class="%s" cx="%.1f" cy="%.1f" r="5"/>`, class, x, y)
	case 1:
		s.add(`<path class="%s" d="M%.1f %.1fl4.5 4.5l-4.5 4.5l-4.5 -4.5z"/>`, class, x, y-4.5)
	case 2:
		s.add(`<rect class="%s" x="%.1f" y="%.1f" width="7" height="7"/>`, class, x-3.5, y-3.5)
	case 3:
		s.add(`<path class="%s" d="M%.1f %.1fl4.5 8h-9z"/>`, class, x, y-4.5)
	case 4:
		s.add(`<path class="%s" d="M%.1f %.1fl4.5 -8h-9z"/>`, class, x, y+4.5)
	case 5:
		s.add(`<path class="%s" d="M%.1f %.1fh3v-3h3v3h3v3h-3v3h-3v-3h-3z"/>`, class, x-4.5, y-1.5)
	case 6:
		s.add(`<path class="%s" d="M%.1f %.1fh9l-4.5 4l4.5 4h-9l4.5 -4z"/>`, class, x-4.5, y-4)
	}
}

// numMarks is how many tools are told apart.
const numMarks = 7

// mark is a class of style with the tool's colour.
func mark(tool int, class string) string { return fmt.Sprintf("%s t%d", class, tool%numMarks) }
