package main

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/replay"
)

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
