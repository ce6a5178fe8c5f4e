package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

// writeTable returns the results as Markdown.
func (p plan) writeTable(results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d slots, of which %d are the reserve where there is one; %g critical jobs a second of %v take %.1f on average; heavy jobs of %v.\n\n",
		p.slots, p.reserve, p.perSecond, p.critical, p.inUse(), p.heavy)
	b.WriteString("| the critical queue has | beside it | critical jobs | p50 | p95 | p99 | longest | p99 to unloaded | sent late, p99 | heavy jobs done |\n" +
		"|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		how, beside := "weights alone", "nothing"
		if r.reserve {
			how = fmt.Sprintf("a reserve of %d", p.reserve)
		}
		if r.flood {
			beside = "a flood"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %d |\n", how, beside, len(r.pickups),
			report.PercentileText(r.pickups, 50), report.PercentileText(r.pickups, 95), report.PercentileText(r.pickups, 99), report.PercentileText(r.pickups, 100),
			times(results, r), report.PercentileText(r.late, 99), r.heavy)
	}
	return b.String()
}

// ratio returns how many times as long as without the flood the 99th percentile is; 0 for a row without it.
func ratio(results []*result, r *result) float64 {
	for _, other := range results {
		if r.flood && !other.flood && other.reserve == r.reserve {
			return float64(report.Percentile(r.pickups, 99)) / float64(max(report.Percentile(other.pickups, 99), time.Microsecond))
		}
	}
	return 0
}

func times(results []*result, r *result) string {
	if n := ratio(results, r); n > 0 {
		return fmt.Sprintf("× %.1f", n)
	}
	return ""
}

// most is how many times as long as without the flood the 99th percentile may be.
const most = 2

// verdict says whether the reserve does what it is for.
func verdict(results []*result) string {
	for _, r := range results {
		if n := ratio(results, r); r.reserve && n > 0 {
			is := "which is within"
			if n > most {
				is = "which is more than"
			}
			return fmt.Sprintf("\nWith the reserve a flood makes the 99th percentile %.1f times as long, %s %d times.\n", n, is, most)
		}
	}
	return ""
}
