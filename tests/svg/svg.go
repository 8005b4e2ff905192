// Package svg draws charts for documents. The same figures make the same bytes.
package svg

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Spread is the median and the range of some figures.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Chart is a chart of lines. Its x axis has names, or numbers from 0 on.
type Chart struct {
	Title, Subtitle string
	Note            string // second line of the subtitle
	XLabel, YLabel  string
	Ticks           []string // names on the x axis, evenly spaced
	XMost           float64  // not 0: the x axis has numbers up to this one
	Log             bool     // the y axis is logarithmic
	Lines           []Line
}

// Line has a point with its range for each name (nil: none), or one level for all, or over numbers a Path.
type Line struct {
	Name   string
	Points []*Spread
	Level  *Spread
	Path   []Point
	Dashed bool
}

// Point is a point of a Path.
type Point struct{ X, Y float64 }

// all returns what the y axis must hold.
func (l *Line) all() []*Spread {
	all := slices.DeleteFunc(append(slices.Clone(l.Points), l.Level), func(p *Spread) bool { return p == nil })
	for _, p := range l.Path {
		all = append(all, &Spread{p.Y, p.Y, p.Y})
	}
	return all
}

// Add adds a line if it has any points.
func (c *Chart) Add(l Line) {
	if len(l.all()) > 0 {
		c.Lines = append(c.Lines, l)
	}
}

// ranges reports whether a line has points that are more than one figure.
func (c *Chart) ranges() bool {
	return slices.ContainsFunc(c.Lines, func(l Line) bool {
		return slices.ContainsFunc(l.all(), func(p *Spread) bool { return p.Min < p.Max })
	})
}

// Sizes of the page, and of the plot in it, in pixels.
const (
	pageWidth, pageHeight       = 840, 440
	left, right, top, bottom    = 64, 590, 80, 376
	legendX, legendY, legendGap = right + 24, top + 10, 22
)

// style has colours that the colour-blind can distinguish, too. The chart brings its own background, because a page may
// be dark where the browser prefers light, and the other way round.
const style = `
.page { fill: #fff }
text { font: 12px sans-serif; fill: #333 }
.title { font-size: 15px; font-weight: bold }
.faint { fill: #666 }
.key { stroke: #666; fill: #666 }
.grid { stroke: #ddd } .axis { stroke: #888 }
.line { stroke-width: 2 } .dashed { stroke-dasharray: 6 4 }
.c0 { stroke: #0b62a4; fill: #0b62a4 } .c1 { stroke: #c05000; fill: #c05000 } .c2 { stroke: #00805a; fill: #00805a }
.c3 { stroke: #a0408a; fill: #a0408a } .c4 { stroke: #777; fill: #777 } .c5 { stroke: #8a6d00; fill: #8a6d00 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 }
text { fill: #ddd } .faint { fill: #aaa }
.key { stroke: #aaa; fill: #aaa }
.grid { stroke: #444 } .axis { stroke: #888 }
.c0 { stroke: #5fb0f0; fill: #5fb0f0 } .c1 { stroke: #ff9a4d; fill: #ff9a4d } .c2 { stroke: #3fcf9f; fill: #3fcf9f }
.c3 { stroke: #e38fd0; fill: #e38fd0 } .c4 { stroke: #aaa; fill: #aaa } .c5 { stroke: #dcc04a; fill: #dcc04a }
}
.line { fill: none }
`

const colours = 6

// Write draws the chart.
func (c *Chart) Write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", pageWidth,
		pageHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(c.Title), style)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", pageWidth, pageHeight)
	text(&b, left, 24, "title", "start", c.Title)
	text(&b, left, 44, "faint", "start", c.Subtitle)
	text(&b, left, 60, "faint", "start", c.Note)
	y := c.scale()
	for _, tick := range y.ticks {
		at := y.at(tick)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", left, right, at, at)
		text(&b, left-8, at+4, "", "end", fmt.Sprintf("%.6g", tick))
	}
	for i, tick := range c.Ticks {
		text(&b, c.x(i), bottom+20, "", "middle", tick)
	}
	if c.XMost > 0 {
		for _, tick := range linearScale(c.XMost).ticks {
			if tick <= c.XMost {
				text(&b, c.number(tick), bottom+20, "", "middle", fmt.Sprintf("%.6g", tick))
			}
		}
	}
	fmt.Fprintf(&b, `<path class="axis line" d="M%d %dV%dH%d"/>`+"\n", left, top, bottom, right)
	text(&b, (left+right)/2, bottom+44, "faint", "middle", c.XLabel)
	fmt.Fprintf(&b, `<text class="faint" text-anchor="middle" transform="translate(18 %d) rotate(-90)">%s</text>`+"\n",
		(top+bottom)/2, escape(c.YLabel))
	for i, l := range c.Lines {
		c.draw(&b, y, l, i)
	}
	if c.ranges() {
		explainWhiskers(&b, legendY+len(c.Lines)*legendGap+legendGap/2)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func text(b *strings.Builder, x, y float64, class, anchor, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

// x returns the position of a tick of the x axis.
func (c *Chart) x(i int) float64 {
	return left + (float64(i)+0.5)*(right-left)/float64(len(c.Ticks))
}

// number returns the position of a number on the x axis.
func (c *Chart) number(v float64) float64 { return left + v/c.XMost*(right-left) }

// draw draws line number i and its entry in the legend.
func (c *Chart) draw(b *strings.Builder, y scale, l Line, i int) {
	class := fmt.Sprintf("c%d", i%colours)
	lineClass := class + " line"
	if l.Dashed {
		lineClass += " dashed"
	}
	aside := (float64(i) - float64(len(c.Lines)-1)/2) * 4 // so that ranges do not cover each other
	path, op := "", "M"
	for tick, p := range l.Points {
		if p == nil || c.Log && p.Min <= 0 {
			op = "M" // a gap
			continue
		}
		x := c.x(tick) + aside
		path += fmt.Sprintf("%s%.1f %.1f", op, x, y.at(p.Median))
		op = "L"
		whisker(b, class, x, y.at(p.Min), y.at(p.Median), y.at(p.Max))
	}
	if l.Level != nil && !(c.Log && l.Level.Min <= 0) {
		path = fmt.Sprintf("M%d %.1fH%d", left, y.at(l.Level.Median), right)
		whisker(b, class, right+2*aside-20, y.at(l.Level.Min), y.at(l.Level.Median), y.at(l.Level.Max))
	}
	for _, p := range l.Path {
		path += fmt.Sprintf("%s%.1f %.1f", op, c.number(p.X), y.at(p.Y))
		op = "L"
	}
	if path != "" {
		fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", lineClass, path)
	}
	at := legendY + i*legendGap
	fmt.Fprintf(b, `<path class="%s" d="M%d %dh24"/>`+"\n", lineClass, legendX, at)
	text(b, legendX+32, float64(at+4), "", "start", l.Name)
}

// whisker draws a median with the range around it.
func whisker(b *strings.Builder, class string, x, least, median, most float64) {
	const half = 3.5 // of the bars at both ends
	fmt.Fprintf(b, `<path class="%s line" d="M%.1f %.1fV%.1fM%.1f %.1fh%gM%.1f %.1fh%g"/>`, class, x, least, most,
		x-half, least, 2*half, x-half, most, 2*half)
	fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"/>`+"\n", class, x, median)
}

// explainWhiskers draws a whisker with the names of its parts, below the legend.
func explainWhiskers(b *strings.Builder, y int) {
	const x, step = legendX + 12, 16
	at := float64(y)
	whisker(b, "key", x, at+2*step, at+step, at)
	for i, name := range []string{"most", "median of the rounds", "least"} {
		text(b, legendX+32, at+float64(i*step)+4, "faint", "start", name)
	}
}

// scale is a y axis.
type scale struct {
	log      bool
	min, max float64
	ticks    []float64
}

// at returns the position of a value, which is the bottom if the value is too small.
func (s scale) at(v float64) float64 {
	share := (v - s.min) / (s.max - s.min)
	if s.log {
		share = math.Log(max(v, s.min)/s.min) / math.Log(s.max/s.min)
	}
	return bottom - share*(bottom-top)
}

// scale chooses a scale with round ticks for all points.
func (c *Chart) scale() scale {
	least, most := math.Inf(1), 0.0
	for _, l := range c.Lines {
		for _, p := range l.all() {
			if p.Min > 0 || !c.Log {
				least, most = min(least, p.Min), max(most, p.Max)
			}
		}
	}
	if most == 0 { // there is nothing to show
		least, most = 1, 1
	}
	if c.Log {
		return logScale(max(least, most/maxDecades), most)
	}
	return linearScale(most)
}

// maxDecades limits the range of a logarithmic axis.
const maxDecades = 1e6

// steps are the round numbers within a decade.
var steps = []float64{1, 2, 5}

// linearScale returns a scale from 0 with about five ticks.
func linearScale(most float64) scale {
	decade := math.Pow(10, math.Floor(math.Log10(most/5)))
	step := 10 * decade
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i]*decade*5 >= most {
			step = steps[i] * decade
		}
	}
	s := scale{}
	for i := 0; s.max < most; i++ {
		s.max = float64(i) * step
		s.ticks = append(s.ticks, s.max)
	}
	return s
}

// logScale returns a scale between two round numbers.
func logScale(least, most float64) scale {
	s := scale{log: true}
	for exponent := int(math.Floor(math.Log10(least))) - 1; ; exponent++ {
		for _, step := range steps {
			v := step * math.Pow10(exponent)
			if v <= least {
				s.ticks = s.ticks[:0]
			}
			s.ticks = append(s.ticks, v)
			if v > most {
				s.min, s.max = s.ticks[0], v
				return s
			}
		}
	}
}
