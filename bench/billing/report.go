package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

// The limits of memory: of all processes together, and how many times that of the smallest run the largest may take.
const (
	maxMemory = 500 << 20
	maxGrowth = 1.2
)

const day = 24 * 60 * 60

// link is the plot on the page.
const link = "![Records in the books over time](images/billing.svg)"

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// table returns the results as Markdown.
func (p plan) table(results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Batches of %d records, %d workers, one process for each other role, and the server:\n\n", p.batch, p.workers)
	b.WriteString("| records | seconds | records a second | as millions a day | latency of a batch, p50 | p99 | memory, sum of all peaks |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %d | %.1f | %.0f | %.0f | %.2f s | %.2f s | %s |\n", r.records, r.took().Seconds(), r.rate(), r.rate()*day/1e6,
			r.percentile(50).Seconds(), r.percentile(99).Seconds(), mebibytes(r.memory()))
	}
	b.WriteString("\nThe peak of each process:\n\n| records |")
	names := slices.Sorted(maps.Keys(results[0].peaks))
	for _, name := range names {
		b.WriteString(" " + name + " |")
	}
	b.WriteString("\n|--:|" + strings.Repeat("--:|", len(names)) + "\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %d |", r.records)
		for _, name := range names {
			b.WriteString(" " + mebibytes(r.peaks[name]) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// verdict says whether memory is flat.
func verdict(results []*result) string {
	first, last := results[0], results[len(results)-1]
	growth := float64(last.memory()) / float64(first.memory())
	is := "is"
	if growth > maxGrowth || last.memory() > maxMemory {
		is = "is NOT"
	}
	return fmt.Sprintf("Memory for %d records is %.2f times that for %d. It %s within %s and %.1f times.\n", last.records, growth, first.records, is, mebibytes(maxMemory), maxGrowth)
}

// The measures of the plot, in pixels.
const (
	plotWidth  = 760
	plotHeight = 420
	plotLeft   = 90
	plotRight  = plotWidth - 40
	plotTop    = 80
	plotBottom = plotHeight - 60
)

// plot returns an SVG of the records in the books over time, of the largest run.
func (p plan) plot(results []*result) string {
	r := results[len(results)-1]
	x := func(d time.Duration) float64 { return plotLeft + (plotRight-plotLeft)*d.Seconds()/r.took().Seconds() }
	y := func(records float64) float64 {
		return plotBottom - (plotBottom-plotTop)*records/float64(r.records)
	}
	var b strings.Builder
	report.BeginPlot(&b, plotWidth, plotHeight, "Records in the books over time")
	fmt.Fprintf(&b, `<text x="20" y="46">%d records in %d batches, from handing over the first; dashed: %.0f a second, which is %.0f million a day</text>`+"\n", r.records, len(r.batches), r.rate(), r.rate()*day/1e6)
	for i := range 5 {
		records := float64(r.records) * float64(i) / 4
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1[2]f" x2="%[3]d" y2="%.1[2]f" stroke="#d8dee4"/><text x="%[4]d" y="%.1[5]f" text-anchor="end">%.0[6]f</text>`+"\n", plotLeft, y(records), plotRight, plotLeft-8, y(records)+4, records)
		at := time.Duration(float64(r.took()) * float64(i) / 4)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.1f s</text>`+"\n", x(at), plotBottom+20, at.Seconds())
	}
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#b5622a" stroke-dasharray="6 4"/>`+"\n", x(0), y(0), x(r.took()), y(float64(r.records)))
	points, sum := []string{fmt.Sprintf("%.1f,%.1f", x(0), y(0))}, 0
	for _, one := range r.batches {
		at := x(one.reported.Sub(r.begun))
		points = append(points, fmt.Sprintf("%.1f,%.1f", at, y(float64(sum))))
		sum += one.records
		points = append(points, fmt.Sprintf("%.1f,%.1f", at, y(float64(sum))))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#2f6fb7" stroke-width="2"/>`+"\n", strings.Join(points, " "))
	b.WriteString("</svg>\n")
	return b.String()
}
