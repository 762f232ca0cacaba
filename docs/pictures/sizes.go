package main

import "fmt"

// sizes draws the sizes of deltas in docs/deltas.csv: a row for each pair of images, a
// mark for each tool.
func sizes(pairs []pair) ([]byte, error) {
	p := panel{title: "What an update costs: KiB of a delta of all changed content", tools: []series{{name: project}}}
	for _, name := range peers {
		p.tools = append(p.tools, series{name: name})
	}
	for _, pair := range pairs {
		next := pair.smallest()
		p.rows = append(p.rows, fmt.Sprintf("%s: %s of %s", pair.name, percent(pair.ours/next.kib), next.tool))
		row := len(p.rows) - 1
		p.tools[0].add(row, pair.ours)
		for _, peer := range pair.peers {
			for i := range p.tools {
				if p.tools[i].name == peer.tool {
					p.tools[i].add(row, peer.kib)
				}
			}
		}
	}
	return picture([]panel{p})
}

func percent(part float64) string {
	if part < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*part)
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}
