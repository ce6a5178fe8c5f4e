package main

import (
	"fmt"
	"strings"
)

// enough is what part of k times one shard k shards must give, and busy from which part of the processors
// on they are the limit.
const (
	enough = 0.9
	busy   = 0.9
)

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

// link is the plot on the page.
const link = "![Jobs a second by the number of shards](images/shards.svg)"
