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
	table := p.writeTable(results) + verdict(results)
	errs := []error{nil}
	_, errs[0] = io.WriteString(out, table)
	if svg != "" {
		errs = append(errs, os.WriteFile(svg, []byte(p.plot(results)), 0o644))
	}
	if page != "" {
		errs = append(errs, os.WriteFile(filepath.Join(filepath.Dir(page), "images", "pickup.svg"), []byte(p.plot(results)), 0o644), writePage(page, table, load))
	}
	return errors.Join(errs...)
}

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
			milliseconds(percentile(r.pickups, 50)), milliseconds(percentile(r.pickups, 95)), milliseconds(percentile(r.pickups, 99)), milliseconds(percentile(r.pickups, 100)),
			times(results, r), milliseconds(percentile(r.late, 99)), r.heavy)
	}
	return b.String()
}

// ratio returns how many times as long as without the flood the 99th percentile is; 0 for a row without it.
func ratio(results []*result, r *result) float64 {
	for _, other := range results {
		if r.flood && !other.flood && other.reserve == r.reserve {
			return float64(percentile(r.pickups, 99)) / float64(max(percentile(other.pickups, 99), time.Microsecond))
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

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// The marks of a page around what is replaced.
const (
	pageBegins = "<!-- pickup: written by bench/pickup -->\n"
	pageEnds   = "<!-- pickup: end -->\n"
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
	machine := fmt.Sprintf("%d processors, %s/%s, %s%s. ", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
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
