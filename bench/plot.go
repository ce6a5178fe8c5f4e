package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"
)

// picture is an SVG of charts, one above the other or in columns, below a legend of the names of their series.
type picture struct {
	title, note   string
	columns       int
	width, height int // of a chart
	charts        []chart
}

// chart draws series over two axes.
type chart struct {
	title  string
	x, y   axis
	series []series
}

// axis maps values to positions. Values outside lie at its ends.
type axis struct {
	from, to float64
	log      bool
	ticks    []float64
	text     func(float64) string // of a tick
}

// series is drawn as a line, or as circles.
type series struct {
	name, colour string // a series without a name is not in the legend
	line, dashed bool
	points       []point
}

type point struct {
	x, y  float64
	title string // shown when the pointer rests on it
}

// The colours of series, in their order.
var colours = []string{"#c0392b", "#8a8f98", "#7d5ba6", "#2f6fb7", "#1f9e89", "#d48a1c", "#4d4d4d"}

func (a axis) share(v float64) float64 {
	v = min(max(v, a.from), a.to)
	if a.log {
		return math.Log(v/a.from) / math.Log(a.to/a.from)
	}
	return (v - a.from) / (a.to - a.from)
}

func format(verb string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf(verb, v) }
}

// The margins of a chart, in pixels, and the height of a line of the legend.
const (
	marginLeft, marginRight, marginTop, marginBottom = 80, 30, 34, 34
	legendLine, legendWidth                          = 20, 220
)

func (p picture) svg() string {
	var b strings.Builder
	columns := max(p.columns, 1)
	legend, top := p.legend(columns)
	width, height := columns*p.width, top+(len(p.charts)+columns-1)/columns*p.height
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="#24292f">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="20" y="26" font-size="15" font-weight="bold">%s</text><text x="20" y="46">%s</text>`+"\n", escaped(p.title), escaped(p.note))
	b.WriteString(legend)
	rows := (len(p.charts) + columns - 1) / columns
	for i, c := range p.charts { // down the columns
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i/rows*p.width, top+i%rows*p.height)
		c.draw(&b, p.width, p.height)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// legend returns the legend, and the height at which the charts begin.
func (p picture) legend(columns int) (svg string, top int) {
	var b strings.Builder
	across, n := max(columns*p.width/legendWidth, 1), 0
	seen := map[string]bool{"": true}
	for _, c := range p.charts {
		for _, s := range c.series {
			if seen[s.name] {
				continue
			}
			seen[s.name] = true
			x, y := 20+n%across*legendWidth, 68+n/across*legendLine
			s.draw(&b, []point{{float64(x), float64(y) - 4, ""}, {float64(x) + 20, float64(y) - 4, ""}})
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", x+30, y, escaped(s.name))
			n++
		}
	}
	return b.String(), 60 + (n+across-1)/across*legendLine
}

func (c chart) draw(b *strings.Builder, width, height int) {
	left, right, top, bottom := float64(marginLeft), float64(width-marginRight), float64(marginTop), float64(height-marginBottom)
	x := func(v float64) float64 { return left + (right-left)*c.x.share(v) }
	y := func(v float64) float64 { return bottom + (top-bottom)*c.y.share(v) }
	fmt.Fprintf(b, `<text x="%.0f" y="20" font-weight="bold">%s</text>`+"\n", left, escaped(c.title))
	for _, v := range c.y.ticks {
		fmt.Fprintf(b, `<line x1="%.0f" y1="%.1[2]f" x2="%.0[3]f" y2="%.1[2]f" stroke="#d8dee4"/>`, left, y(v), right)
		fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end" font-size="10">%s</text>`+"\n", left-6, y(v)+3, escaped(c.y.text(v)))
	}
	for _, v := range c.x.ticks {
		fmt.Fprintf(b, `<line x1="%.1[1]f" y1="%.0[2]f" x2="%.1[1]f" y2="%.0[3]f" stroke="#d8dee4"/>`, x(v), top, bottom)
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" text-anchor="middle" font-size="10">%s</text>`+"\n", x(v), bottom+16, escaped(c.x.text(v)))
	}
	for _, s := range c.series {
		var at []point
		for _, one := range s.points {
			at = append(at, point{x(one.x), y(one.y), one.title})
		}
		s.draw(b, at)
	}
}

// draw draws a series at positions.
func (s series) draw(b *strings.Builder, at []point) {
	if !s.line {
		for _, p := range at {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s" fill-opacity="0.8"><title>%s</title></circle>`+"\n", p.x, p.y, s.colour, escaped(p.title))
		}
		return
	}
	dashes := ""
	if s.dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, s.colour, dashes)
	for _, p := range at {
		fmt.Fprintf(b, "%.1f,%.1f ", p.x, p.y)
	}
	b.WriteString(`"/>` + "\n")
}

// escaped returns text as XML has it.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}

// waitsChart draws which share of jobs had begun after each time.
func waitsChart(title string, all []series) chart {
	return chart{
		title: title, series: all,
		x: axis{from: 1e-4, to: 10, log: true, ticks: []float64{1e-4, 1e-3, 1e-2, 0.1, 1, 10}, text: func(s float64) string {
			return time.Duration(math.Round(s * 1e9)).String()
		}},
		y: axis{to: 1, ticks: []float64{0, 0.25, 0.5, 0.75, 1}, text: func(share float64) string { return fmt.Sprintf("%g %%", 100*share) }},
	}
}

// waitsSeries returns a line of such a chart, of sorted times.
func waitsSeries(name, colour string, waits []time.Duration) series {
	s := series{name: name, colour: colour, line: true}
	for i := range 401 { // points enough
		at := i * (len(waits) - 1) / 400
		s.points = append(s.points, point{waits[at].Seconds(), float64(at+1) / float64(len(waits)), ""})
	}
	return s
}
