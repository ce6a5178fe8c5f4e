package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/scaling/replay"
)

// enough is the share of jobs that must end within the SLA for a rule to hold it. What is best was defined before anything was compared: of
// the rules that hold the SLA, the one with the fewest instance-hours.
const enough = 0.99

// row is what came of one candidate.
type row struct {
	candidate
	replay.Result
}

// holds reports whether the rule held the SLA.
func (r *row) holds() bool { return r.LateShare() <= 1-enough+1e-12 }

// better reports whether r is better than another: it holds the SLA with fewer instance-hours, or misses it less.
func (r *row) better(than *row) bool {
	if r.holds() != than.holds() {
		return r.holds()
	}
	if r.holds() {
		return r.InstanceHours < than.InstanceHours
	}
	return r.LateShare() < than.LateShare()
}

// dominates reports whether r is no worse than another in late jobs and in instance-hours, and better in one of them.
func (r *row) dominates(other *row) bool {
	late, otherLate, hours, otherHours := r.LateShare(), other.LateShare(), r.InstanceHours, other.InstanceHours
	return late <= otherLate && hours <= otherHours && (late < otherLate || hours < otherHours)
}

// compared is a trace with the rows of all rules.
type compared struct {
	trace replay.Trace
	rows  []row // those with known settings, and then the tuned ones
}

// best returns the best row of those with known settings, or of the tuned ones; nil if there is none.
func (c *compared) best(tuned bool) *row {
	var best *row
	for i := range c.rows {
		if r := &c.rows[i]; r.tuned == tuned && (best == nil || r.better(best)) {
			best = r
		}
	}
	return best
}

// agent returns the row of the agent, which is the first one.
func (c *compared) agent() *row { return &c.rows[0] }

// comparison compares.
type comparison struct {
	tune     bool
	progress io.Writer
	mutex    sync.Mutex
}

func (c *comparison) say(format string, args ...any) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, _ = fmt.Fprintf(c.progress, format+"\n", args...) // nothing depends on it
}

// compare replays traces against all rules, as many at a time as there are processors.
func (c *comparison) compare(ctx context.Context, traces []replay.Trace) ([]compared, error) {
	all := make([]compared, len(traces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range traces {
		group.Go(func() (err error) {
			all[i], err = c.one(ctx, traces[i])
			c.say("%s: done", traces[i].Name)
			return err
		})
	}
	return all, group.Wait()
}

func (c *comparison) one(ctx context.Context, t replay.Trace) (compared, error) {
	result := compared{trace: t}
	for _, candidate := range known(&t) {
		r, err := try(ctx, t, candidate)
		if err != nil {
			return result, err
		}
		result.rows = append(result.rows, r)
	}
	if !c.tune {
		return result, nil
	}
	for _, grid := range grids(&t) {
		r, err := bestOf(ctx, t, grid)
		if err != nil {
			return result, err
		}
		result.rows = append(result.rows, r)
	}
	r, err := bestFixed(ctx, t)
	result.rows = append(result.rows, r)
	return result, err
}

func try(ctx context.Context, t replay.Trace, c candidate) (row, error) {
	if err := ctx.Err(); err != nil {
		return row{}, err
	}
	result, err := replay.Run(t, c.rule)
	return row{c, result}, err
}

// bestOf returns the best of several settings.
func bestOf(ctx context.Context, t replay.Trace, grid []candidate) (best row, err error) {
	for i, one := range grid {
		r, err := try(ctx, t, one)
		if err != nil {
			return best, err
		}
		r.Timeline = nil // only the known ones are drawn
		if i == 0 || r.better(&best) {
			best = r
		}
	}
	return best, nil
}

// bestFixed returns the fewest instances that hold the SLA at all times, or else the most that there may be.
func bestFixed(ctx context.Context, t replay.Trace) (row, error) {
	var err error
	of := func(n int) row {
		r, failed := try(ctx, t, candidate{fixed, fmt.Sprint(n), true, replay.Fixed(n)})
		if failed != nil {
			err = failed
		}
		r.Timeline = nil
		return r
	}
	fewest := sort.Search(t.Max-1, func(i int) bool {
		r := of(i + 1)
		return r.holds()
	}) + 1
	return of(fewest), err
}

// elsewhere replays the traces of other seeds against the rules with known settings, and returns a table: how often the agent held the SLA, and
// its instance-hours beside those of the best other rule that did.
func (c *comparison) elsewhere(ctx context.Context, seed uint64, seeds int, wanted *regexp.Regexp) (string, error) {
	quick := comparison{progress: c.progress}
	var bySeed [][]compared
	for i := range seeds {
		var traces []replay.Trace
		for _, t := range generated(seed + 1 + uint64(i)) {
			if wanted.MatchString(t.Name) {
				traces = append(traces, t)
			}
		}
		all, err := quick.compare(ctx, traces)
		if err != nil {
			return "", err
		}
		for i := range all {
			for j := range all[i].rows {
				all[i].rows[j].Timeline = nil
			}
		}
		bySeed = append(bySeed, all)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Other seeds\n\nThe same traces with %d other seeds, for which nothing was chosen: the agent, set by the SLA, against the best of the other rules with known settings, which may be another one each time.\n\n", seeds)
	b.WriteString("| trace with other seeds | agent holds the SLA | most late jobs | instance-hours against the best other rule | that rule |\n|---|--:|--:|--:|---|\n")
	for i := range bySeed[0] {
		b.WriteString(elsewhereRow(bySeed, i))
	}
	return b.String(), nil
}

// elsewhereRow returns the row of one trace.
func elsewhereRow(bySeed [][]compared, trace int) string {
	held, most := 0, 0.0
	low, high := 0.0, 0.0
	var names []string
	for _, all := range bySeed {
		a := all[trace].agent()
		if a.holds() {
			held++
		}
		most = max(most, a.LateShare())
		other := all[trace].bestOther()
		ratio := a.InstanceHours / other.InstanceHours
		if low == 0 || ratio < low {
			low = ratio
		}
		high = max(high, ratio)
		if name := other.name(); !strings.Contains(strings.Join(names, "; "), name) {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("| %s | %d of %d | %s | × %.2f to %.2f | %s |\n", bySeed[0][trace].trace.Name, held, len(bySeed), percent(most), low, high, strings.Join(names, "; "))
}

// bestOther returns the best row of other rules than the agent with known settings.
func (c *compared) bestOther() *row {
	var best *row
	for i := range c.rows {
		if r := &c.rows[i]; !r.tuned && r.family != agent && (best == nil || r.better(best)) {
			best = r
		}
	}
	return best
}
