package main

import (
	"fmt"
	"io"
	"math"
)

// writeTable writes the results as Markdown. Ratios are to the first contender, in
// the same round.
func writeTable(w io.Writer, results []result) error {
	if len(results) == 0 {
		return nil
	}
	first := results[0].contenders[0].name
	line := func(format string, args ...any) (err error) {
		_, err = fmt.Fprintf(w, format+"\n", args...)
		return err
	}
	if err := line("| concurrency | handler | latency | over | bound/s | contender | messages/s | of the bound | × %s | messages per client-processor-second | × %s | allocations a message | dequeues held back |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|", first, first); err != nil {
		return err
	}
	for _, r := range results {
		for i, who := range r.contenders {
			bound, share := "–", "–"
			if r.cell.waiting() {
				bound = fmt.Sprintf("%.0f", r.cell.bound())
				share = fmt.Sprintf("%.2f", r.median(i, func(own, _ sample) float64 { return own.perSecond() })/r.cell.bound())
			}
			if err := line("| %d | %v | %v | %s | %s | %s | %.0f | %s | %.2f | %.0f | %.2f | %.0f | %.0f |",
				r.cell.concurrency, r.cell.handler, r.cell.latency, r.cell.wire(), bound, who.name,
				r.median(i, func(own, _ sample) float64 { return own.perSecond() }), share,
				r.median(i, func(own, first sample) float64 { return own.perSecond() / first.perSecond() }),
				r.median(i, func(own, _ sample) float64 { return own.perProcessorSecond() }),
				r.median(i, func(own, first sample) float64 { return own.perProcessorSecond() / first.perProcessorSecond() }),
				r.median(i, func(own, _ sample) float64 { return float64(own.mallocs) / math.Max(float64(own.messages), 1) }),
				r.median(i, func(own, _ sample) float64 { return float64(own.heldBack) }),
			); err != nil {
				return err
			}
		}
	}
	return nil
}
