package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// style has the colours, light and dark as the reader's browser asks for.
const style = `
:root{--ground:#fff;--panel:#f6f8fa;--line:#d0d7de;--text:#1f2328;--dim:#59636e;--ours:#0969da;--tint:#ddf4ff;--peer:#b6bfc9;--back:#bc4c00;--t1:#cf222e;--t2:#8250df;--t3:#1a7f37;--t4:#9a6700;--t5:#6e7781;--t6:#bf3989}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--panel:#151b23;--line:#3d444d;--text:#f0f6fc;--dim:#9198a1;--ours:#4493f8;--tint:#12283f;--peer:#59626d;--back:#f0883e;--t1:#ff7b72;--t2:#bc8cff;--t3:#56d364;--t4:#e3b341;--t5:#8b949e;--t6:#ff80c8}}
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:var(--text)}
.title{font-size:15px;font-weight:600}.name{font-size:13px;font-weight:600}.dim{fill:var(--dim)}.small{font-size:11px}
.code{font-family:ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace;font-size:12px}
.accent{fill:var(--ours);font-weight:600}.warn{fill:var(--back)}
.ground{fill:var(--ground)}.panel{fill:var(--panel);stroke:var(--line)}.box{fill:var(--ground);stroke:var(--line)}.main{fill:var(--tint);stroke:var(--ours)}
.new{fill:var(--ground);stroke:var(--back)}.learn{fill:none;stroke:var(--ours);stroke-width:1.5}
.ours{fill:var(--ours)}.peer{fill:var(--peer)}.track{fill:none;stroke:var(--dim);stroke-width:1.5}.return{fill:none;stroke:var(--back);stroke-width:1.5;stroke-dasharray:5 4}
.t0{fill:var(--ours)}.t1{fill:var(--t1)}.t2{fill:var(--t2)}.t3{fill:var(--t3)}.t4{fill:var(--t4)}.t5{fill:var(--t5)}.t6{fill:var(--t6)}
.mark{stroke:var(--panel);stroke-width:.8}.grid{stroke:var(--line);stroke-width:.6;fill:none}
.tip{fill:var(--dim)}.backtip{fill:var(--back)}
`

// svg is a picture in the making.
type svg struct {
	width, height int
	body          bytes.Buffer
}

func (s *svg) add(format string, args ...any) { fmt.Fprintf(&s.body, format+"\n", args...) }

func (s *svg) rect(class string, x, y, width, height, radius float64) {
	s.add(`<rect class="%s" x="%g" y="%g" width="%.1f" height="%g" rx="%g"/>`, class, x, y, width, height, radius)
}

// text writes at x, y: the baseline. The anchor is start, middle or end.
func (s *svg) text(class, anchor string, x, y float64, words string) {
	s.add(`<text class="%s" text-anchor="%s" x="%.1f" y="%g">%s</text>`, class, anchor, x, y, escape(words))
}

// done returns the picture. The title and the description are for who cannot see it.
func (s *svg) done(title, description string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title description">`+"\n",
		s.width, s.height, s.width, s.height)
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n<desc id=\"description\">%s</desc>\n", escape(title), escape(description))
	fmt.Fprintf(&out, "<style>%s</style>\n", style)
	fmt.Fprintf(&out, `<rect class="ground" width="%d" height="%d" rx="8"/>`+"\n", s.width, s.height)
	out.Write(s.body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer takes everything
	return out.String()
}
