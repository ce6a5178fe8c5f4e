package main

import (
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/replay"
)

// The names of rules in tables.
const (
	agent     = "agent"
	fixed     = "fixed instances"
	table     = "depth table"
	keda      = "KEDA queueLength"
	functions = "Functions target"
	backlog   = "AWS backlog per instance"
	latency   = "latency range"
)

// families are those that the plots tell apart.
var families = []string{agent, fixed, table, keda, functions, backlog, latency}

// candidate is a rule in a comparison.
type candidate struct {
	family  string
	setting string // what it was told
	tuned   bool   // its settings are the best for this trace, known only afterwards
	rule    replay.Rule
}

// known returns the rules with settings that can be known before a trace happens: those that their documents have by default, and those
// that follow from the SLA, the slots and the handling time.
func known(t *replay.Trace) []candidate {
	first := t.Handling
	if t.Handlings != nil {
		first = t.Handlings[0]
	}
	forSLA := float64(t.Slots) * max(t.SLA.Seconds()/2/first.Seconds(), 1)
	policy := replay.For(t, scaling.Policy{})
	forecast := policy
	forecast.Forecast = true
	defaults := scaling.Policy{Start: policy.Start, Max: t.Max}
	candidates := []candidate{{agent, "set by the SLA", false, replay.Agent("", policy)}}
	if t.Length() > 25*time.Hour { // there is a day before
		candidates = append(candidates, candidate{agent, "with the forecast too", false, replay.Agent("", forecast)})
	}
	return append(candidates, []candidate{
		{agent, "defaults", false, replay.Agent("", defaults)},
		{fixed, fmt.Sprintf("all %d", t.Max), false, replay.Fixed(t.Max)},
		{table, "as it is", false, replay.Table()},
		{keda, "5, the default", false, replay.KEDA{}.Rule("")},
		{keda, fmt.Sprintf("%d, the slots", t.Slots), false, replay.KEDA{QueueLength: float64(t.Slots)}.Rule("")},
		{keda, fmt.Sprintf("%.0f, half of the SLA", forSLA), false, replay.KEDA{QueueLength: forSLA}.Rule("")},
		{functions, "16, the default", false, replay.Functions{}.Rule("")},
		{functions, fmt.Sprintf("%.0f, half of the SLA", forSLA), false, replay.Functions{Executions: forSLA}.Rule("")},
		{backlog, fmt.Sprintf("the SLA, %v", short(t.SLA)), false, replay.Backlog{}.Rule("")},
		{backlog, fmt.Sprintf("half of it, %v", short(t.SLA/2)), false, replay.Backlog{Latency: t.SLA / 2}.Rule("")},
		{latency, "by 1", false, replay.Latency{}.Rule("")},
		{latency, fmt.Sprintf("by %d, a tenth", max(t.Max/10, 1)), false, replay.Latency{Jump: max(t.Max/10, 1)}.Rule("")},
	}...)
}

// grids returns the settings of each family to try: a rule's own ones, over the ranges in which they make sense.
func grids(t *replay.Trace) [][]candidate {
	var grids [][]candidate
	add := func(grid []candidate) { grids = append(grids, grid) }
	try := func(grid *[]candidate, family string, r replay.Rule, format string, args ...any) {
		*grid = append(*grid, candidate{family, fmt.Sprintf(format, args...), true, r})
	}
	start := max(t.Start, 20*time.Second)
	var agents, kedas, targets, backlogs, latencies []candidate
	for _, u := range []float64{0.8, 0.9, 1} {
		for _, down := range []time.Duration{start / 2, start, 3 * start, 10 * time.Minute} {
			p := replay.For(t, scaling.Policy{Utilization: u, DownAfter: down})
			try(&agents, agent, replay.Agent("", p), "utilization %g, down after %v", u, short(down))
		}
	}
	unit := float64(t.Slots)
	for _, factor := range []float64{1, 1.5, 3, 10, 30, 100} {
		for _, down := range []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute} {
			try(&kedas, keda, replay.KEDA{QueueLength: unit * factor, Down: down}.Rule(""), "%.0f, down after %v", unit*factor, short(down))
		}
	}
	for _, factor := range []float64{0.5, 1, 1.5, 2, 3, 5, 10, 20, 30, 50, 100} {
		try(&targets, functions, replay.Functions{Executions: unit * factor}.Rule(""), "%.0f", unit*factor)
	}
	for _, share := range []float64{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1} {
		l := time.Duration(share * float64(t.SLA))
		try(&backlogs, backlog, replay.Backlog{Latency: l}.Rule(""), "%v", short(l))
	}
	for _, jump := range []float64{0, 0.05, 0.1, 0.2, 0.5} {
		n := max(int(math.Round(jump*float64(t.Max))), 1)
		for _, high := range []float64{0.03, 0.1, 0.3, 0.5} {
			h := time.Duration(high * float64(t.SLA))
			try(&latencies, latency, replay.Latency{Low: h / 5, High: h, Jump: n}.Rule(""), "%v to %v by %d", short(h/5), short(h), n)
		}
	}
	add(agents)
	add(kedas)
	add(targets)
	add(backlogs)
	add(latencies)
	return grids
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
