package main

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench/internal/report"
)

// The measures of the plot, in pixels. Times are on a logarithmic axis.
const (
	plotWidth  = 860
	plotLeft   = 190 // of the axis
	plotRight  = plotWidth - 30
	plotTop    = 70
	rowHeight  = 24
	groupSpace = 34
)

// axis is that of the times.
var axis = report.TimeAxis{Left: plotLeft, Right: plotRight}

// colours are those of the transports.
var colours = map[string]string{"polling": "#8a8f98", "bus": "#2f6fb7", "stream": "#2d8a5f", "nats": "#b5622a"}

// plot returns an SVG of the median, the 95th and the 99th percentile of every result, and of the
// round trip of a dequeue.
func plot(results []*result) string {
	var b strings.Builder
	height := plotTop + 40
	for i, r := range results {
		if i == 0 || r.rate != results[i-1].rate {
			height += groupSpace
		}
		height += rowHeight
	}
	report.BeginPlot(&b, plotWidth, height, "From the return of Send to the first line of the handler")
	b.WriteString(`<text x="20" y="46">bar: median to 99th percentile; circle: median; line across: 95th; dashed: median round trip of one dequeue</text>` + "\n")
	axis.Draw(&b, plotTop-6, height-34, height-16)
	y := plotTop
	for i, r := range results {
		if i == 0 || r.rate != results[i-1].rate {
			y += groupSpace
			jobs := "jobs"
			if r.rate.perSecond == 1 {
				jobs = "job"
			}
			fmt.Fprintf(&b, `<text x="20" y="%d" font-weight="bold">%g %s a second</text>`+"\n", y-10, r.rate.perSecond, jobs)
		}
		drawResult(&b, r, float64(y)+rowHeight/2)
		y += rowHeight
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawResult(b *strings.Builder, r *result, y float64) {
	colour := colours[r.transport.name]
	if colour == "" {
		colour = "#24292f"
	}
	median, most, end, trip := axis.Position(report.Percentile(r.waits, 50)), axis.Position(report.Percentile(r.waits, 95)), axis.Position(report.Percentile(r.waits, 99)), axis.Position(report.Percentile(r.trips, 50))
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-12, y+4, r.transport.title())
	fmt.Fprintf(b, `<line x1="%.1[1]f" y1="%.1[2]f" x2="%.1[1]f" y2="%.1[3]f" stroke="#24292f" stroke-dasharray="2 2"/>`+"\n", trip, y-10, y+10)
	fmt.Fprintf(b, `<line x1="%.1[1]f" y1="%.1[2]f" x2="%.1[3]f" y2="%.1[2]f" stroke="%[4]s" stroke-width="7" stroke-opacity="0.45"/>`+"\n", median, y, end, colour)
	fmt.Fprintf(b, `<line x1="%.1[1]f" y1="%.1[2]f" x2="%.1[1]f" y2="%.1[3]f" stroke="%[4]s" stroke-width="2"/>`+"\n", most, y-7, y+7, colour)
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"><title>%s: p50 %s, p95 %s, p99 %s</title></circle>`+"\n", median, y, colour, r.transport,
		report.PercentileText(r.waits, 50), report.PercentileText(r.waits, 95), report.PercentileText(r.waits, 99))
}

// title names a transport in the plot.
func (t transport) title() string {
	if t.processes == 1 {
		return t.name + ", one process"
	}
	return t.name + ", two processes"
}
