package main

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench/internal/report"
)

// The measures of the plot, in pixels.
const (
	plotWidth  = 760
	plotHeight = 420
	plotLeft   = 80
	plotRight  = plotWidth - 40
	plotTop    = 80
	plotBottom = plotHeight - 60
)

// plot returns an SVG of the jobs a second by the number of shards, beside what the limits allow and
// nine tenths of as many times one shard.
func (p plan) plot(results []*result) string {
	most, widest := 0.0, results[len(results)-1].shards
	for _, r := range results {
		most = max(most, r.median(sample.perSecond), p.bound(r.shards))
	}
	one := results[0].median(sample.perSecond) / float64(results[0].shards)
	x := func(k int) float64 { return plotLeft + (plotRight-plotLeft)*float64(k)/float64(widest) }
	y := func(rate float64) float64 { return plotBottom - (plotBottom-plotTop)*rate/most }
	var b strings.Builder
	report.BeginPlot(&b, plotWidth, plotHeight, "Jobs a second, from sending to deleting, by the number of shards")
	fmt.Fprintf(&b, `<text x="20" y="46">each queue limited to %d messages a second; circle: measured, with the processors used; dashed: %.1f of k times one shard; grey: what the limit allows</text>`+"\n", p.limit, enough)
	for i := range 5 {
		rate := most * float64(i) / 4
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1[2]f" x2="%[3]d" y2="%.1[2]f" stroke="#d8dee4"/><text x="%[4]d" y="%.1[5]f" text-anchor="end">%.0[6]f</text>`+"\n",
			plotLeft, y(rate), plotRight, plotLeft-8, y(rate)+4, rate)
	}
	line := func(slope float64, stroke string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x(0), y(0), x(widest), y(slope*float64(widest)), stroke)
	}
	if p.limit > 0 {
		line(p.bound(1), `stroke="#8a8f98" stroke-width="2"`)
	}
	line(min(enough*one, most/float64(widest)), `stroke="#b5622a" stroke-dasharray="6 4"`)
	var points []string
	for _, r := range results {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(r.shards), y(r.median(sample.perSecond))))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#2f6fb7" stroke-width="2"/>`+"\n", strings.Join(points, " "))
	for _, r := range results {
		rate := r.median(sample.perSecond)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="5" fill="#2f6fb7"/>`+"\n", x(r.shards), y(rate))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%.0f/s, %.0f %%</text>`+"\n", x(r.shards)-10, y(rate)-6, rate, 100*r.median(sample.used))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(r.shards), plotBottom+20, r.shards)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">shards</text>`+"\n</svg>\n", (plotLeft+plotRight)/2, plotBottom+42)
	return b.String()
}
