package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// enough is what part of k times one shard k shards must give, and busy from which part of the processors
// on they are the limit.
const (
	enough = 0.9
	busy   = 0.9
)

// report writes what was asked for.
func (p plan) report(results []*result, load string, out io.Writer, svg, page string) error {
	table := p.table(results) + "\n" + verdict(results)
	errs := []error{nil}
	_, errs[0] = io.WriteString(out, table)
	if svg != "" {
		errs = append(errs, os.WriteFile(svg, []byte(p.plot(results)), 0o644))
	}
	if page != "" {
		errs = append(errs, os.WriteFile(filepath.Join(filepath.Dir(page), "images", "shards.svg"), []byte(p.plot(results)), 0o644), writePage(page, table, load))
	}
	return errors.Join(errs...)
}

// bound returns what k queues carry at most, from sending to deleting; 0 if there is no limit.
func (p plan) bound(k int) float64 { return float64(p.limit*k) / 3 }

// ratio returns how much of k times the throughput of one shard k shards give, in the medians.
func (r *result) ratio(first *result) float64 {
	one := first.median(sample.perSecond) / float64(first.shards)
	return r.median(sample.perSecond) / one / float64(r.shards)
}

// table returns the results as Markdown.
func (p plan) table(results []*result) string {
	var b strings.Builder
	b.WriteString("| shards k | jobs a second | of k times one shard | of what the limit allows | processors used | requests a job | 503 among them |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		rate, allowed := r.median(sample.perSecond), "no limit"
		if p.limit > 0 {
			allowed = fmt.Sprintf("%.2f", rate/p.bound(r.shards))
		}
		fmt.Fprintf(&b, "| %d | %.0f | %.2f | %s | %.0f %% | %.2f | %.2f |\n", r.shards, rate, r.ratio(results[0]), allowed, 100*r.median(sample.used), r.median(sample.requestsPerJob), r.median(sample.limitedPerJob))
	}
	return b.String()
}

// verdict says up to how many shards the throughput grows as it should, and what bounds it then.
func verdict(results []*result) string {
	good := results[0].shards
	for _, r := range results[1:] {
		if ratio := r.ratio(results[0]); ratio < enough {
			why := "although the processors are not busy"
			if r.median(sample.used) >= busy {
				why = "because the processors are busy"
			}
			return fmt.Sprintf("Up to %d shards each adds %.1f of one at least; %d shards give %.2f of %d times one, %s.\n", good, enough, r.shards, ratio, r.shards, why)
		}
		good = r.shards
	}
	return fmt.Sprintf("Up to %d shards, all that were measured, each adds %.1f of one at least.\n", good, enough)
}

// The marks of a page around what is replaced, and the plot there.
const (
	pageBegins = "<!-- shards: written by bench/shards -->\n"
	pageEnds   = "<!-- shards: end -->\n"
	link       = "![Jobs a second by the number of shards](images/shards.svg)"
)

// writePage replaces the table of a page, and the link to the plot.
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
	return os.WriteFile(path, []byte(before+pageBegins+"\n"+link+"\n\n"+machine+table+"\n"+pageEnds+after), 0o644)
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
