package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

// replayTrace plays a trace against the policy of a pool and the rules that others use.
func (s *agentSettings) replayTrace(c *console, file *agentfile.File) error {
	pool, err := s.replayedPool(file)
	if err != nil {
		return err
	}
	trace, err := readTrace(s.replay)
	if err != nil {
		return err
	}
	bound(&trace, &pool.Policy)
	var results []replay.Result
	for _, rule := range rules(&pool, file.Interval, trace.Max) {
		result, err := replay.Run(trace, rule)
		if err != nil {
			return fmt.Errorf("%s: %s", s.replay, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		results = append(results, result)
	}
	if s.asJSON {
		return printReplayJSON(c.out, results, file.Prices)
	}
	return printReplay(c.out, &trace, results, file.Prices)
}

func (s *agentSettings) replayedPool(file *agentfile.File) (agentfile.Pool, error) {
	var names []string
	for _, p := range file.Pools {
		if p.Name == s.pool || s.pool == "" && len(file.Pools) == 1 {
			return p, nil
		}
		names = append(names, p.Name)
	}
	what := "-replay takes one policy"
	if s.pool != "" {
		what = s.config + " has no pool " + quote(s.pool)
	}
	return agentfile.Pool{}, usageError{fmt.Errorf("%s: choose with -pool one of %s", what, strings.Join(names, ", "))}
}

func readTrace(path string) (replay.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return replay.Trace{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return replay.Read(f, path)
}

// bound gives all rules the same bound: that of the policy if it has one, otherwise that of the trace.
func bound(t *replay.Trace, p *scaling.Policy) {
	if p.Max > 0 {
		t.Max = p.Max
	}
	p.Max = max(t.Max, p.Min)
}

// rules returns the policy of a pool, and the rules that others use with their usual settings.
func rules(p *agentfile.Pool, interval time.Duration, most int) []replay.Rule {
	own := replay.Agent("this policy", p.Policy)
	if interval > 0 {
		own.Interval = interval
	}
	if len(p.Beacons) == 0 {
		own = withoutReports(own, p.Policy)
	}
	return []replay.Rule{
		own,
		replay.Fixed(most),
		replay.Fixed((most + 1) / 2),
		replay.Table(),
		replay.KEDA{}.Rule("KEDA, length/5"),
		replay.Functions{}.Rule("Azure Functions, length/16"),
		replay.Backlog{}.Rule("AWS, backlog per instance"),
		replay.Latency{}.Rule("range of latency"),
	}
}

// withoutReports hides from a rule what only instances know, as an agent of a pool without beacons does not have it.
func withoutReports(r replay.Rule, p scaling.Policy) replay.Rule {
	r.Beacon = 0
	begin := r.Begin
	r.Begin = func(t *replay.Trace) func(scaling.History) scaling.Decision {
		decide := begin(t)
		read := 0
		var seen scaling.History
		return func(h scaling.History) scaling.Decision {
			for _, s := range h[read:] {
				seen = append(seen, scaling.Sample{At: s.At, Instances: s.Instances, Depth: s.Depth, Visible: s.Visible, HeadAge: s.HeadAge})
			}
			read = len(h)
			if !p.Forecast { // otherwise the policy looks back for a week
				span := max(2*p.DownAfter, time.Hour) // as an agent keeps them
				seen = slices.DeleteFunc(seen, func(s scaling.Sample) bool { return h[read-1].At.Sub(s.At) > span })
			}
			return decide(seen)
		}
	}
	return r
}

func printReplay(out io.Writer, t *replay.Trace, results []replay.Result, prices agent.Prices) error {
	printf(out, "%s: %s jobs in %s, each within %s; %d instances at most, which start in %s.\n\n",
		escapeControls(t.Name), rounded(results[0].Jobs), span(t.Length()), span(t.SLA), t.Max, span(t.Start))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	money := ""
	if prices.InstanceHour > 0 {
		money = "cost\t"
	}
	_, _ = fmt.Fprintf(w, "  rule\tlate\tworst\tinstance-hours\t%schanges\tback and forth\trequests\n", money) // Flush reports the error
	for i := range results {
		r := &results[i]
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%.1f\t", r.Rule, percent(r.LateShare()), span(r.Worst.Round(time.Second)), r.InstanceHours)
		if money != "" {
			_, _ = fmt.Fprintf(w, "%.2f\t", r.InstanceHours*prices.InstanceHour)
		}
		_, _ = fmt.Fprintf(w, "%d\t%d\t%s\n", r.Changes, r.Reversals, rounded(r.Requests))
	}
	return w.Flush()
}

// percent returns a share with so many decimals that a small one is not zero.
func percent(share float64) string {
	switch p := share * 100; {
	case p == 0:
		return "none"
	case p < 0.01:
		return "<0.01%"
	case p < 1:
		return fmt.Sprintf("%.2f%%", p)
	default:
		return fmt.Sprintf("%.1f%%", p)
	}
}

// printReplayJSON prints an object for each rule.
func printReplayJSON(out io.Writer, results []replay.Result, prices agent.Prices) error {
	for i := range results {
		r := &results[i]
		one := struct {
			Trace         string   `json:"trace"`
			Rule          string   `json:"rule"`
			Jobs          float64  `json:"jobs"`
			Late          float64  `json:"late"`
			LateShare     float64  `json:"late_share"`
			WorstSeconds  float64  `json:"worst_seconds"`
			InstanceHours float64  `json:"instance_hours"`
			Cost          *float64 `json:"cost"` // of the instances; nil without a price
			Changes       int      `json:"changes"`
			Reversals     int      `json:"reversals"`
			Requests      float64  `json:"requests"`
		}{r.Trace, r.Rule, r.Jobs, r.Late, r.LateShare(), r.Worst.Seconds(), r.InstanceHours, nil, r.Changes, r.Reversals, r.Requests}
		if prices.InstanceHour > 0 {
			cost := prices.InstanceHour * r.InstanceHours
			one.Cost = &cost
		}
		if err := printJSON(out, one); err != nil {
			return err
		}
	}
	return nil
}
