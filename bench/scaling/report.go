package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/scaling/replay"
)

// name returns the rule and its setting.
func (r *row) name() string { return r.family + ": " + r.setting }

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
func tables(all []compared) string {
	var b strings.Builder
	b.WriteString("### The best on each trace\n\n")
	fmt.Fprintf(&b, "A rule holds the SLA if it holds for at least %.0f %% of the jobs that are not poison. The best one holds it with the fewest instance-hours.\n\n", 100*enough)
	b.WriteString("| trace | best with known settings | instance-hours | the agent, set by the SLA | late | best tuned afterwards | instance-hours tuned |\n|---|---|--:|--:|--:|---|--:|\n")
	for i := range all {
		b.WriteString(all[i].summary())
	}
	b.WriteString("\n")
	for i := range all {
		if said := all[i].verdict(); said != "" {
			b.WriteString("- " + said + "\n")
		}
	}
	for i := range all {
		b.WriteString(all[i].table())
	}
	return b.String()
}

// summary returns the row of the first table.
func (c *compared) summary() string {
	best, a, tuned := c.best(false), c.agent(), c.best(true)
	tunedName, tunedHours := "", ""
	if tuned != nil {
		tunedName, tunedHours = tuned.name(), hours(tuned.InstanceHours)
	}
	return fmt.Sprintf("| %s | %s | %s | %s (× %.2f) | %s | %s | %s |\n", c.trace.Name, best.name(), hours(best.InstanceHours), hours(a.InstanceHours),
		a.InstanceHours/best.InstanceHours, percent(a.LateShare()), tunedName, tunedHours)
}

// verdict returns a sentence if the agent is not the best, or others dominate it.
func (c *compared) verdict() string {
	best, a := c.best(false), c.agent()
	if best.family == agent {
		return ""
	}
	var over []string
	for i := range c.rows {
		if r := &c.rows[i]; !r.tuned && r.family != agent && r.dominates(a) {
			over = append(over, r.name())
		}
	}
	is := "is not dominated"
	if len(over) > 0 {
		is = "is dominated by " + strings.Join(over, " and by ")
	}
	return fmt.Sprintf("On *%s* the agent is not the best: %s holds the SLA with %s instance-hours, %s with %s; the longest time of a job is %v there and %v here. The agent %s.",
		c.trace.Name, best.name(), hours(best.InstanceHours), "the agent", hours(a.InstanceHours), short(best.Worst.Round(time.Second)), short(a.Worst.Round(time.Second)), is)
}

// table returns the table of one trace.
func (c *compared) table() string {
	t := &c.trace
	peak, _ := t.Peak()
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n%.0f million jobs in %v, at most %.0f a second; %d slots an instance, which starts in %v; SLA %v; at most %d instances%s%s.\n\n",
		strings.ToUpper(t.Name[:1])+t.Name[1:], math.Ceil(c.rows[0].Jobs/1e6), short(t.Length()), peak, t.Slots, short(t.Start), short(t.SLA), t.Max, accounts(len(t.Accounts)), readings(t))
	b.WriteString("| rule: setting | late | instance-hours | changes | reversals | requests | worst |\n|---|--:|--:|--:|--:|--:|--:|\n")
	best, bestTuned, said := c.best(false), c.best(true), false
	for i := range c.rows {
		r := &c.rows[i]
		name := r.name()
		if t.Noise > 0 || t.Missing > 0 {
			name += " (wrong readings)" // rows of rules that look at nothing are those of the right readings
		}
		if r == best || r == bestTuned {
			name = "**" + name + "**"
		}
		if r.tuned && !said {
			said = true
			fmt.Fprintf(&b, "| *tuned afterwards for %s:* | | | | | | |\n", t.Name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %s | %v |\n", name, percent(r.LateShare()), hours(r.InstanceHours), r.Changes, r.Reversals, millions(r.Requests), short(r.Worst.Round(time.Second)))
	}
	return b.String()
}

func accounts(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("; %d storage accounts", n)
}

// readings says how good readings are, if they are not right.
func readings(t *replay.Trace) string {
	if t.Noise == 0 && t.Missing == 0 {
		return ""
	}
	return fmt.Sprintf("; readings are off by up to %.0f %%, and %.0f %% of them fail", 100*t.Noise, 100*t.Missing)
}

// millions returns the text of a number of requests.
func millions(n float64) string { return fmt.Sprintf("%.2f M", n/1e6) }
