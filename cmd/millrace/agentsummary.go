package main

import (
	"fmt"
	"io"
	"math/big"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/scaling"
)

func printSummaryJSON(out io.Writer, states []agent.PoolState) error {
	for _, s := range states {
		if err := printJSON(out, struct {
			Pool    string        `json:"pool"`
			DryRun  bool          `json:"dry_run"`
			Summary agent.Summary `json:"summary"`
		}{s.Pool, s.DryRun, s.Summary}); err != nil {
			return err
		}
	}
	return nil
}

// printSummary prints what the decisions came to, and what that cost, or would have cost.
func (r *agentRun) printSummary(states []agent.PoolState, passed time.Duration) error {
	p := &summaryPrinter{out: r.out, table: tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0), priced: r.file.Prices.InstanceHour > 0 || r.file.Prices.Requests.Class1 > 0}
	verb := "was done"
	if r.settings.dryRun {
		verb = "would have been done"
	}
	printf(r.out, "In %s this %s:\n\n", span(passed.Round(time.Second)), verb)
	p.head()
	var all agent.Summary
	for i, s := range states {
		p.row(s.Pool, &s.Summary)
		if i == 0 {
			all = s.Summary
			continue
		}
		all = plus(all, s.Summary)
	}
	if len(states) > 1 {
		p.row("in all", &all)
	}
	if err := p.table.Flush(); err != nil {
		return err
	}
	p.explain(&all, r.settings.dryRun)
	requests, cost := perDay(states, r.interval())
	p.line("Measuring takes %s requests a day at this rate", rounded(requests))
	if priced := r.file.Prices.Requests.Class1 > 0; priced {
		p.line(", for %.4f", cost)
	}
	p.line(".\n")
	if !p.priced {
		p.line("What that costs is not known: write price into the file, with instance_hour and transactions.\n")
	}
	return p.err
}

type summaryPrinter struct {
	out    io.Writer
	table  *tabwriter.Writer
	priced bool
	err    error // of the output
}

func (p *summaryPrinter) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format, args...); err != nil && p.err == nil {
		p.err = err
	}
}

func (p *summaryPrinter) head() {
	money := ""
	if p.priced {
		money = "\tinstances cost\trequests cost"
	}
	_, _ = fmt.Fprintf(p.table, "  pool\tup\tdown\tinstances\tinstance-hours\trequests\tlate%s\n", money) // Flush reports the error
}

func (p *summaryPrinter) row(name string, s *agent.Summary) {
	late := span(time.Duration(s.LateMinutes * float64(time.Minute)).Round(time.Second))
	if s.UnseenMinutes > 0 {
		late += " or more"
	}
	instances := strconv.Itoa(s.Least)
	if s.Most > s.Least {
		instances = fmt.Sprintf("%d to %d", s.Least, s.Most)
	}
	_, _ = fmt.Fprintf(p.table, "  %s\t%d\t%d\t%s\t%s\t%s\t%s", name, s.Ups, s.Downs, instances, hours(s.InstanceHours), thousands(whole(s.Requests.Total().Requests)), late)
	if p.priced {
		_, _ = fmt.Fprintf(p.table, "\t%s\t%s", amount(s.InstanceCost), amount(s.RequestCost))
	}
	_, _ = fmt.Fprintln(p.table)
}

// hours returns hours with so many decimals that a short time is not zero.
func hours(h float64) string {
	if h < 1 {
		return strconv.FormatFloat(h, 'f', 4, 64)
	}
	return strconv.FormatFloat(h, 'f', 2, 64)
}

func (p *summaryPrinter) explain(all *agent.Summary, dry bool) {
	late := "\nLate is for how long the oldest message had waited longer than the target"
	if dry {
		late += ", with the instances that there are"
	}
	p.line("%s.\n", late)
	if all.Failed > 0 {
		p.line("%s could not be carried out; the lines above say why.\n", plural(all.Failed, "decision"))
	}
}

// perDay returns what measuring takes in a day, in requests and in money, if all measurements are like those that were made.
func perDay(states []agent.PoolState, interval time.Duration) (requests, cost float64) {
	rounds := float64(24*time.Hour) / float64(interval)
	for i := range states {
		s := &states[i].Summary
		if s.Decisions > 0 {
			share := rounds / float64(s.Decisions)
			requests += share * float64(s.Requests.Total().Requests)
			cost += share * s.RequestCost.Or(0)
		}
	}
	return requests, cost
}

// plus adds up the summaries of two pools.
func plus(a, b agent.Summary) agent.Summary {
	a.Decisions += b.Decisions
	a.Ups += b.Ups
	a.Downs += b.Downs
	a.Failed += b.Failed
	a.Least += b.Least
	a.Most += b.Most
	a.InstanceHours += b.InstanceHours
	a.Requests = a.Requests.Plus(b.Requests)
	a.InstanceCost = added(a.InstanceCost, b.InstanceCost)
	a.RequestCost = added(a.RequestCost, b.RequestCost)
	a.LateMinutes = max(a.LateMinutes, b.LateMinutes)
	a.UnseenMinutes = max(a.UnseenMinutes, b.UnseenMinutes)
	return a
}

// added adds figures of which both are known.
func added(a, b scaling.Optional[float64]) scaling.Optional[float64] {
	x, known := a.Get()
	y, both := b.Get()
	if !known || !both {
		return scaling.Optional[float64]{}
	}
	return scaling.Known(x + y)
}

// amount returns a sum of money with four decimals, or that it is unknown.
func amount(o scaling.Optional[float64]) string {
	if v, known := o.Get(); known {
		return strconv.FormatFloat(v, 'f', 4, 64)
	}
	return "unknown"
}

// rounded returns a whole number with its digits in groups.
func rounded(v float64) string {
	n, _ := new(big.Float).SetFloat64(v + 0.5).Int64()
	return thousands(whole(n))
}
