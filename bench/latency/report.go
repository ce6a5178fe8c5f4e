package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

// writeTable returns the results as Markdown.
func writeTable(results []*result) string {
	var b strings.Builder
	b.WriteString("| jobs a second | how | processes | jobs | p50 | p95 | p99 | longest | one dequeue, p50 | one dequeue, p99 | p50 beyond it | p99 beyond it | sent late, p99 |\n" +
		"|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %g | %v | %d | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.rate.perSecond, r.transport, r.transport.processes, len(r.waits),
			report.PercentileText(r.waits, 50), report.PercentileText(r.waits, 95), report.PercentileText(r.waits, 99), report.PercentileText(r.waits, 100),
			report.PercentileText(r.trips, 50), report.PercentileText(r.trips, 99), report.Milliseconds(r.beyond(50)), report.Milliseconds(r.beyond(99)), report.PercentileText(r.late, 99))
	}
	return b.String()
}

// beyond returns how much longer this percentile of the jobs waited than that of the dequeues took.
func (r *result) beyond(percent int) time.Duration {
	return report.Percentile(r.waits, percent) - report.Percentile(r.trips, percent)
}

// verdict says how much longer than one dequeue a job that is woken waits, at most; nothing if none was.
func verdict(results []*result) string {
	var median, end time.Duration
	woken := 0
	for _, r := range results {
		if r.transport.wakes {
			median, end = max(median, r.beyond(50)), max(end, r.beyond(99))
			woken++
		}
	}
	if woken == 0 {
		return ""
	}
	return fmt.Sprintf("\nWith wake-ups jobs wait longer than dequeues take by at most %s (p50 of both) and %s (p99 of both) in these rows.\n", report.Milliseconds(median), report.Milliseconds(end))
}
