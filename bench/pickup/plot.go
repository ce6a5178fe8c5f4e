package main

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench/internal/report"
)

// The measures of the plot, in pixels. Times are on a logarithmic axis, shares from 0 to 100 %.
const (
	plotWidth  = 860
	plotHeight = 420
	plotLeft   = 70 // of the axes
	plotRight  = plotWidth - 30
	plotTop    = 100
	plotBottom = plotHeight - 50
)

// axis is that of the times.
var axis = report.TimeAxis{Left: plotLeft, Right: plotRight}

// height returns where a share of the jobs is, from 0 to 1.
func height(share float64) float64 { return plotBottom - (plotBottom-plotTop)*share }

// style returns how a row is drawn: a colour for how slots are shared, dashed without the flood.
func (r row) style() string {
	style := `stroke="#b5622a"`
	if r.reserve {
		style = `stroke="#2d8a5f"`
	}
	if !r.flood {
		style += ` stroke-dasharray="5 4"`
	}
	return style
}

// points is how many points a curve has at most.
const points = 400

// plot returns an SVG of how many of the critical jobs of each row had begun after how long.
func (p plan) plot(results []*result) string {
	var b strings.Builder
	report.BeginPlot(&b, plotWidth, plotHeight, "How many critical jobs have begun, and how long after Send has returned")
	for i, r := range results {
		x, y := 20+400*(i/2), 50+20*(i%2)
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%[2]d" %[4]s stroke-width="2"/><text x="%[5]d" y="%[6]d">%[7]v: p99 %[8]s</text>`+"\n",
			x, y, x+40, r.style(), x+50, y+4, r.row, report.PercentileText(r.pickups, 99))
	}
	axis.Draw(&b, plotTop, plotBottom, plotBottom+18)
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 0.99} {
		fmt.Fprintf(&b, `<line x1="%[1]d" y1="%.1[3]f" x2="%[2]d" y2="%.1[3]f" stroke="#d8dee4"/><text x="%[4]d" y="%.1[5]f" text-anchor="end">%[6]g %%</text>`+"\n",
			plotLeft, plotRight, height(share), plotLeft-8, height(share)+4, share*100)
	}
	for _, r := range results {
		drawCurve(&b, r)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawCurve draws which share of the jobs had begun after each time.
func drawCurve(b *strings.Builder, r *result) {
	fmt.Fprintf(b, `<polyline fill="none" %s stroke-width="2" points="%.1f,%.1f`, r.style(), axis.Position(r.pickups[0]), height(0))
	step := max(len(r.pickups)/points, 1)
	for i := step - 1; i < len(r.pickups); i += step {
		fmt.Fprintf(b, " %.1f,%.1f", axis.Position(r.pickups[i]), height(float64(i+1)/float64(len(r.pickups))))
	}
	fmt.Fprintf(b, ` %.1f,%.1f"><title>%v</title></polyline>`+"\n", axis.Position(r.pickups[len(r.pickups)-1]), height(1), r.row)
}
