package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// report writes what was asked for.
func (p plan) report(results []*result, load string, out io.Writer, svg, page string) error {
	table := writeTable(results) + verdict(results)
	errs := []error{nil}
	_, errs[0] = io.WriteString(out, table)
	if svg != "" {
		errs = append(errs, os.WriteFile(svg, []byte(plot(results)), 0o644))
	}
	if page != "" {
		errs = append(errs, os.WriteFile(filepath.Join(filepath.Dir(page), "images", "latency.svg"), []byte(plot(results)), 0o644), writePage(page, table, load))
	}
	return errors.Join(errs...)
}

// writeTable returns the results as Markdown.
func writeTable(results []*result) string {
	var b strings.Builder
	b.WriteString("| jobs a second | how | processes | jobs | p50 | p95 | p99 | longest | one dequeue, p50 | one dequeue, p99 | p50 beyond it | p99 beyond it | sent late, p99 |\n" +
		"|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %g | %v | %d | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.rate.perSecond, r.transport, r.transport.processes, len(r.waits),
			milliseconds(percentile(r.waits, 50)), milliseconds(percentile(r.waits, 95)), milliseconds(percentile(r.waits, 99)), milliseconds(percentile(r.waits, 100)),
			milliseconds(percentile(r.trips, 50)), milliseconds(percentile(r.trips, 99)), milliseconds(r.beyond(50)), milliseconds(r.beyond(99)), milliseconds(percentile(r.late, 99)))
	}
	return b.String()
}

// beyond returns how much longer this percentile of the jobs waited than that of the dequeues took.
func (r *result) beyond(percent int) time.Duration {
	return percentile(r.waits, percent) - percentile(r.trips, percent)
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
	return fmt.Sprintf("\nWith wake-ups jobs wait longer than dequeues take by at most %s (p50 of both) and %s (p99 of both) in these rows.\n", milliseconds(median), milliseconds(end))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// The marks of a page around what is replaced.
const (
	pageBegins = "<!-- latency: written by bench/latency -->\n"
	pageEnds   = "<!-- latency: end -->\n"
)

// writePage replaces the table of a page.
func writePage(path, table, load string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), pageBegins)
	_, after, ends := strings.Cut(rest, pageEnds)
	if !begins || !ends {
		return fmt.Errorf("%s does not have the lines %q and %q", path, strings.TrimSpace(pageBegins), strings.TrimSpace(pageEnds))
	}
	machine := fmt.Sprintf("%d processors, %s/%s, %s%s.\n\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
	return os.WriteFile(path, []byte(before+pageBegins+"\n"+machine+table+"\n"+pageEnds+after), 0o644)
}

// loadBefore returns what Linux says of the other work of the machine; nothing elsewhere.
func loadBefore() string {
	text, err := os.ReadFile("/proc/loadavg")
	minute, _, found := strings.Cut(string(text), " ")
	if err != nil || !found {
		return ""
	}
	return fmt.Sprintf(", a load of %s in the minute before", minute)
}
