package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/scaling"
	"golang.org/x/sync/errgroup"
)

// comparison replays traces of load against the agent's policy and the rules that people use today, and shows what each
// misses and costs. Nothing is measured: the results are those of a simulation, the same wherever it runs.
type comparison struct {
	files  []string // traces as package replay reads them
	only   *regexp.Regexp
	seed   uint64
	others int

	traces   []replay.Trace
	progress io.Writer
	mutex    sync.Mutex // guards progress
}

func (c *comparison) flags(f *flag.FlagSet) {
	f.Func("trace", "replay the trace in this `file` instead of the generated ones; may be given several times", func(name string) error {
		c.files = append(c.files, name)
		return nil
	})
	one(f, &c.only, regexp.MustCompile(""), regexp.Compile, "only", "replay only the traces whose names match this `pattern`")
	one(f, &c.seed, 1, seed, "seed", "of the generated traces")
	one(f, &c.others, 3, notNegative, "others", "how many other seeds the generated traces are replayed with, for the table of those; 0 for none")
}

// check reads the traces.
func (c *comparison) check() error {
	all := generated(c.seed)
	if len(c.files) > 0 {
		all = nil
	}
	for _, name := range c.files {
		t, err := readTrace(name)
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	if c.traces = c.wanted(all); len(c.traces) == 0 {
		return fmt.Errorf("-only %q: no trace has such a name", c.only)
	}
	return nil
}

func (c *comparison) wanted(all []replay.Trace) (traces []replay.Trace) {
	for _, t := range all {
		if c.only.MatchString(t.Name) {
			traces = append(traces, t)
		}
	}
	return traces
}

func readTrace(name string) (replay.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return replay.Trace{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	t, err := replay.Read(f, name)
	if err != nil {
		return t, err
	}
	return t, t.Check()
}

// wrong is how far readings are off, and which share of them fails, on the traces with wrong readings.
const wrong = 0.1

// generated returns the traces of both sizes, and of each size one with wrong readings.
func generated(seed uint64) (traces []replay.Trace) {
	for _, size := range []replay.Size{replay.Small(), replay.Large()} {
		disturbed := replay.Flash(size, seed)
		disturbed.Name += ", wrong readings"
		disturbed.Noise, disturbed.Missing = wrong, wrong
		traces = append(append(traces, replay.Generated(size, seed)...), disturbed)
	}
	return traces
}

func (c *comparison) run(ctx context.Context, h *harness) (*report, error) {
	c.progress = h.progress
	all, err := c.compare(ctx, c.traces)
	if err != nil {
		return nil, err
	}
	r := &report{table: scalingTables(all)}
	if len(c.files) == 0 && c.others > 0 {
		held, err := c.elsewhere(ctx)
		if err != nil {
			return nil, err
		}
		r.table += held
	}
	return r, nil
}

// heldShare is the share of jobs that must end within the SLA for a rule to hold it. What is best was defined before anything was compared: of
// the rules that hold the SLA, the one with the fewest instance-hours.
const heldShare = 0.99

// outcome is what came of one candidate.
type outcome struct {
	candidate
	replay.Result
}

// holds reports whether the rule held the SLA.
func (r *outcome) holds() bool { return r.LateShare() <= 1-heldShare+1e-12 }

// better reports whether r is better than another: it holds the SLA with fewer instance-hours, or misses it less.
func (r *outcome) better(than *outcome) bool {
	if r.holds() != than.holds() {
		return r.holds()
	}
	if r.holds() {
		return r.InstanceHours < than.InstanceHours
	}
	return r.LateShare() < than.LateShare()
}

type compared struct {
	trace replay.Trace
	rows  []outcome
}

// best returns the best row, or the best of other rules than the agent.
func (c *compared) best(others bool) *outcome {
	var best *outcome
	for i := range c.rows {
		if r := &c.rows[i]; (!others || r.family != ruleAgent) && (best == nil || r.better(best)) {
			best = r
		}
	}
	return best
}

// agent returns the row of the agent, which is the first one.
func (c *compared) agent() *outcome { return &c.rows[0] }

// compare replays traces against all rules, as many at a time as there are processors.
func (c *comparison) compare(ctx context.Context, traces []replay.Trace) ([]compared, error) {
	all := make([]compared, len(traces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range traces {
		group.Go(func() (err error) {
			all[i], err = compareOne(ctx, traces[i])
			c.mutex.Lock()
			defer c.mutex.Unlock()
			_, _ = fmt.Fprintf(c.progress, "%s: done\n", traces[i].Name) // the results matter more
			return err
		})
	}
	return all, group.Wait()
}

func compareOne(ctx context.Context, t replay.Trace) (compared, error) {
	c := compared{trace: t}
	for _, one := range candidates(&t) {
		result, err := replay.Run(t, one.rule)
		if err = errors.Join(ctx.Err(), err); err != nil {
			return c, err
		}
		result.Timeline = nil // it is large
		c.rows = append(c.rows, outcome{one, result})
	}
	return c, nil
}

// elsewhere replays the traces of other seeds against the rules with known settings, and returns a table: how often the agent held the SLA, and
// its instance-hours beside those of the best other rule that did.
func (c *comparison) elsewhere(ctx context.Context) (string, error) {
	var bySeed [][]compared
	for i := range c.others {
		all, err := c.compare(ctx, c.wanted(generated(c.seed+1+uint64(i))))
		if err != nil {
			return "", err
		}
		bySeed = append(bySeed, all)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Other seeds\n\nThe same traces with %d other seeds, for which nothing was chosen: the agent, set by the SLA, against the best of the other rules, which may be another one each time.\n\n", c.others)
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
		other := all[trace].best(true)
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

// name returns the rule and its setting.
func (r *outcome) name() string { return r.family + ": " + r.setting }

// percent returns the text of a share, with as many digits as tell small ones apart.
func percent(share float64) string {
	switch p := 100 * share; {
	case p < 0.0005:
		return "0 %"
	case p < 0.1:
		return fmt.Sprintf("%.3f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// hours returns the text of instance-hours.
func hours(h float64) string {
	if h < 1000 {
		return fmt.Sprintf("%.1f", h)
	}
	return fmt.Sprintf("%.0f", h)
}

// tables returns all results as Markdown: what is best on each trace, and then a table for each.
func scalingTables(all []compared) string {
	var b strings.Builder
	b.WriteString("### The best on each trace\n\n")
	fmt.Fprintf(&b, "A rule holds the SLA if it holds for at least %.0f %% of the jobs that are not poison. The best one holds it with the fewest instance-hours.\n\n", 100*heldShare)
	b.WriteString("| trace | best rule | instance-hours | the agent, set by the SLA | late |\n|---|---|--:|--:|--:|\n")
	for i := range all {
		b.WriteString(all[i].summary())
	}
	for i := range all {
		b.WriteString(all[i].table())
	}
	return b.String()
}

// summary returns the outcome of the first table.
func (c *compared) summary() string {
	best, a := c.best(false), c.agent()
	return fmt.Sprintf("| %s | %s | %s | %s (× %.2f) | %s |\n", c.trace.Name, best.name(), hours(best.InstanceHours), hours(a.InstanceHours),
		a.InstanceHours/best.InstanceHours, percent(a.LateShare()))
}

func (c *compared) table() string {
	t := &c.trace
	peak, _ := t.Peak()
	more := ""
	if n := len(t.Accounts); n > 1 {
		more = fmt.Sprintf("; %d storage accounts", n)
	}
	if t.Noise > 0 || t.Missing > 0 {
		more += fmt.Sprintf("; readings are off by up to %.0f %%, and %.0f %% of them fail", 100*t.Noise, 100*t.Missing)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n%.0f million jobs in %v, at most %.0f a second; %d slots an instance, which starts in %v; SLA %v; at most %d instances%s.\n\n",
		strings.ToUpper(t.Name[:1])+t.Name[1:], math.Ceil(c.rows[0].Jobs/1e6), short(t.Length()), peak, t.Slots, short(t.Start), short(t.SLA), t.Max, more)
	b.WriteString("| rule: setting | late | instance-hours | changes | reversals | requests | worst |\n|---|--:|--:|--:|--:|--:|--:|\n")
	best := c.best(false)
	for i := range c.rows {
		r := &c.rows[i]
		name := r.name()
		if t.Noise > 0 || t.Missing > 0 {
			name += " (wrong readings)" // rows of rules that look at nothing are those of the right readings
		}
		if r == best {
			name = "**" + name + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %s | %v |\n", name, percent(r.LateShare()), hours(r.InstanceHours), r.Changes, r.Reversals, millions(r.Requests), short(r.Worst.Round(time.Second)))
	}
	return b.String()
}

// millions returns the text of a number of requests.
func millions(n float64) string { return fmt.Sprintf("%.2f M", n/1e6) }

// The names of rules in tables.
const (
	ruleAgent     = "agent"
	ruleFixed     = "fixed instances"
	ruleTable     = "depth table"
	ruleKEDA      = "KEDA queueLength"
	ruleFunctions = "Functions target"
	ruleBacklog   = "AWS backlog per instance"
	ruleLatency   = "latency range"
)

type candidate struct {
	family  string
	setting string // what it was told
	rule    replay.Rule
}

// candidates returns the rules with settings that can be known before a trace happens: the defaults of their documents, and those
// that follow from the SLA, the slots and the handling time.
func candidates(t *replay.Trace) []candidate {
	first := t.Handling
	if t.Handlings != nil {
		first = t.Handlings[0]
	}
	forSLA := float64(t.Slots) * max(t.SLA.Seconds()/2/first.Seconds(), 1)
	policy := replay.For(t, scaling.Policy{})
	forecast := policy
	forecast.Forecast = true
	defaults := scaling.Policy{Start: policy.Start, Max: t.Max}
	all := []candidate{{ruleAgent, "set by the SLA", replay.Agent("", policy)}}
	if t.Length() > 25*time.Hour { // there is a day before
		all = append(all, candidate{ruleAgent, "with the forecast too", replay.Agent("", forecast)})
	}
	return append(all, []candidate{
		{ruleAgent, "defaults", replay.Agent("", defaults)},
		{ruleFixed, fmt.Sprintf("all %d", t.Max), replay.Fixed(t.Max)},
		{ruleTable, "as it is", replay.Table()},
		{ruleKEDA, "5, the default", replay.KEDA{}.Rule("")},
		{ruleKEDA, fmt.Sprintf("%d, the slots", t.Slots), replay.KEDA{QueueLength: float64(t.Slots)}.Rule("")},
		{ruleKEDA, fmt.Sprintf("%.0f, half of the SLA", forSLA), replay.KEDA{QueueLength: forSLA}.Rule("")},
		{ruleFunctions, "16, the default", replay.Functions{}.Rule("")},
		{ruleFunctions, fmt.Sprintf("%.0f, half of the SLA", forSLA), replay.Functions{Executions: forSLA}.Rule("")},
		{ruleBacklog, fmt.Sprintf("the SLA, %v", short(t.SLA)), replay.Backlog{}.Rule("")},
		{ruleBacklog, fmt.Sprintf("half of it, %v", short(t.SLA/2)), replay.Backlog{Latency: t.SLA / 2}.Rule("")},
		{ruleLatency, "by 1", replay.Latency{}.Rule("")},
		{ruleLatency, fmt.Sprintf("by %d, a tenth", max(t.Max/10, 1)), replay.Latency{Jump: max(t.Max/10, 1)}.Rule("")},
	}...)
}

// short returns a duration without what is zero.
func short(d time.Duration) string {
	s := d.Round(100 * time.Millisecond).String()
	for _, zero := range []string{"0s", "0m"} {
		if n := len(s) - len(zero); n > 0 && s[n:] == zero && (s[n-1] == 'm' || s[n-1] == 'h') {
			s = s[:n]
		}
	}
	return s
}
