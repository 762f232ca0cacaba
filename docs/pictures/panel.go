package main

import (
	"bytes"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// panel is a plot: rows from top to bottom, and in each a mark for every tool on a
// logarithmic scale.
type panel struct {
	title, note string
	rows        []string
	tools       []series
}

// series are the figures of a tool.
type series struct {
	name   string
	points []point
}

type point struct {
	row   int // in panel.rows
	value float64
}

func (s *series) add(row int, value float64) { s.points = append(s.points, point{row, value}) }

// least is the smallest figure that is told apart: a hundredth of a second, for one.
const least = 0.01

// Tools differ by shape and by colour.
var (
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}
	// colours are those of Okabe and Ito, which people with any colour vision tell apart.
	colours = []color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
		{230, 159, 0, 255}, {86, 180, 233, 255}, {110, 110, 110, 255}, {0, 0, 0, 255},
	}
)

func glyph(tool int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: colours[tool%len(colours)], Shape: shapes[tool%len(shapes)], Radius: vg.Points(3.5)}
}

const (
	width   = 9 * vg.Inch
	rowStep = 15 * vg.Inch / 72
	margin  = 70 * vg.Inch / 72 // of a panel: title, note and scale
	legend  = 24 * vg.Inch / 72
)

func (p panel) height() vg.Length { return margin + rowStep*vg.Length(len(p.rows)) }

func init() { plot.DefaultFont.Variant = "Sans" }

// plot makes the plot of a panel.
func (p panel) plot() (*plot.Plot, error) {
	out := plot.New()
	out.Title.Text = p.title
	if p.note != "" {
		out.Title.Text += "\n" + p.note
	}
	out.Title.TextStyle.Font.Size = 10
	out.X.Scale, out.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	rows := slices.Clone(p.rows)
	slices.Reverse(rows) // the axis goes up
	out.NominalY(rows...)
	out.Y.Min, out.Y.Max = -0.5, float64(len(rows))-0.5
	out.Add(plotter.NewGrid())
	for i := len(p.tools) - 1; i >= 0; i-- { // ours on top
		var at plotter.XYs
		for _, point := range p.tools[i].points {
			at = append(at, plotter.XY{X: max(point.value, least), Y: float64(len(rows) - 1 - point.row)})
		}
		if len(at) == 0 {
			continue
		}
		marks, err := plotter.NewScatter(at)
		if err != nil {
			return nil, err
		}
		marks.GlyphStyle = glyph(i)
		out.Add(marks)
	}
	out.X.Min, out.X.Max = out.X.Min/1.4, out.X.Max*1.2 // a mark at the edge is whole
	return out, nil
}

// picture draws panels one below the other, with a legend above them, as SVG.
func picture(panels []panel) ([]byte, error) {
	height := legend
	for _, p := range panels {
		height += p.height()
	}
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	names(all, panels[0].tools)
	top := all.Max.Y - legend
	for _, p := range panels {
		plot, err := p.plot()
		if err != nil {
			return nil, err
		}
		area := all
		area.Max.Y, area.Min.Y = top, top-p.height()
		top = area.Min.Y
		area = draw.Crop(area, 6, -14, 6, -4)
		plot.Draw(area)
	}
	var out bytes.Buffer
	_, err := svg.WriteTo(&out)
	return out.Bytes(), err
}

// names draws the legend: the tools' marks and names, from left to right.
func names(c draw.Canvas, tools []series) {
	style := draw.TextStyle{Color: color.Black, Font: font.From(plot.DefaultFont, 11), Handler: plot.DefaultTextHandler, YAlign: draw.YCenter}
	at := vg.Point{X: c.Min.X + 14, Y: c.Max.Y - legend/2}
	for i, t := range tools {
		c.DrawGlyph(glyph(i), at)
		at.X += 9
		c.FillText(style, at, t.name)
		at.X += style.Width(t.name) + 18
	}
}
