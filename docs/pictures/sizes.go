package main

import (
	"fmt"
	"strings"
)

// sizes draws for each pair of images a panel with bars of KiB. Each panel has its own
// scale, because the pairs differ by a factor of a thousand.
func sizes(pairs []pair) []byte {
	const (
		margin, gap = 24.0, 16.0
		width       = 400.0 // of a panel
		barLeft     = 91.0
		barMost     = width - barLeft - 78
		step        = 19.0 // from bar to bar
		head        = 64.0 // above the bars
	)
	most := 0
	for _, p := range pairs {
		most = max(most, len(p.peers))
	}
	height := head + step*float64(most+1)
	rows := (len(pairs) + 1) / 2
	s := &svg{width: int(2*margin + 2*width + gap), height: int(78 + float64(rows)*(height+gap))}
	s.text("title", "start", margin, 34, "What an update costs, in KiB")
	s.text("dim", "start", margin, 54, "All changed content of an image pair, as a delta. Shorter is better; each pair has its own scale.")
	for n, p := range pairs {
		x, y := margin+float64(n%2)*(width+gap), 70+float64(n/2)*(height+gap)
		s.rect("panel", x, y, width, height, 8)
		next := p.smallest()
		s.text("name", "start", x+14, y+24, p.name)
		s.text("small accent", "end", x+width-14, y+24, fmt.Sprintf("%s of %s", percent(p.ours/next.kib), next.tool))
		s.text("small dim", "start", x+14, y+43, shorten(p.about, 64))
		largest := p.ours
		for _, peer := range p.peers {
			largest = max(largest, peer.kib)
		}
		for i, bar := range append([]size{{"mender-app", p.ours}}, p.peers...) {
			class, word := "peer", "small dim"
			if i == 0 {
				class, word = "ours", "small accent"
			}
			top := y + head - 8 + step*float64(i)
			length := max(1.5, barMost*bar.kib/largest)
			s.text(word, "end", x+barLeft, top+10, bar.tool)
			s.rect(class, x+barLeft+8, top, length, 12, 2)
			s.text(word, "start", x+barLeft+8+length+6, top+10, fmt.Sprintf("%.1f", bar.kib))
		}
	}
	return s.done("Sizes of deltas", describe(pairs))
}

// describe says in words what the bars show.
func describe(pairs []pair) string {
	var words []string
	for _, p := range pairs {
		next := p.smallest()
		words = append(words, fmt.Sprintf("%s: %.1f KiB, the smallest other is %s with %.1f", p.name, p.ours, next.tool, next.kib))
	}
	return strings.Join(words, "; ") + "."
}

func percent(part float64) string {
	if part < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*part)
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}

// shorten cuts a text between words to at most so many characters.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	cut := string(runes[:most-1])
	if n := strings.LastIndexByte(cut, ' '); n > 0 {
		cut = cut[:n]
	}
	return strings.TrimRight(cut, ",;") + " …"
}
