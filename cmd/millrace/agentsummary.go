package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
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
	prices := r.file.Prices
	priced := prices.InstanceHour > 0 || prices.Requests.Class1 > 0
	var text strings.Builder
	verb, late := "was done", ""
	if r.settings.dryRun {
		verb, late = "would have been done", ", with the instances that there are"
	}
	fmt.Fprintf(&text, "In %s this %s:\n\n", span(passed.Round(time.Second)), verb)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	money := ""
	if priced {
		money = "\tinstances cost\trequests cost"
	}
	_, _ = fmt.Fprintf(table, "  pool\tup\tdown\tinstances\tinstance-hours\trequests\tlate%s\n", money) // a strings.Builder never fails
	var all agent.Summary
	for i, s := range states {
		summaryRow(table, s.Pool, &s.Summary, priced)
		if i == 0 {
			all = s.Summary
			continue
		}
		all = plus(all, s.Summary)
	}
	if len(states) > 1 {
		summaryRow(table, "in all", &all, priced)
	}
	_ = table.Flush()
	fmt.Fprintf(&text, "\nLate is for how long the oldest message had waited longer than the target%s.\n", late)
	if all.Failed > 0 {
		fmt.Fprintf(&text, "%s could not be carried out; the lines above say why.\n", plural(all.Failed, "decision"))
	}
	requests, cost := perDay(states, r.interval())
	fmt.Fprintf(&text, "Measuring takes %s requests a day at this rate", rounded(requests))
	if prices.Requests.Class1 > 0 {
		fmt.Fprintf(&text, ", for %.4f", cost)
	}
	text.WriteString(".\n")
	if !priced {
		text.WriteString("What that costs is not known: write price into the file, with instance_hour and transactions.\n")
	}
	_, err := io.WriteString(r.out, text.String())
	return err
}

func summaryRow(table io.Writer, name string, s *agent.Summary, priced bool) {
	late := span(time.Duration(s.LateMinutes * float64(time.Minute)).Round(time.Second))
	if s.UnseenMinutes > 0 {
		late += " or more"
	}
	instances := strconv.Itoa(s.Least)
	if s.Most > s.Least {
		instances = fmt.Sprintf("%d to %d", s.Least, s.Most)
	}
	_, _ = fmt.Fprintf(table, "  %s\t%d\t%d\t%s\t%s\t%s\t%s", name, s.Ups, s.Downs, instances, hours(s.InstanceHours), thousands(whole(s.Requests.Total().Requests)), late)
	if priced {
		_, _ = fmt.Fprintf(table, "\t%s\t%s", amount(s.InstanceCost), amount(s.RequestCost))
	}
	_, _ = fmt.Fprintln(table)
}

// hours returns hours with so many decimals that a short time is not zero.
func hours(h float64) string {
	if h < 1 {
		return strconv.FormatFloat(h, 'f', 4, 64)
	}
	return strconv.FormatFloat(h, 'f', 2, 64)
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

// agentLog is a [slog.Handler] of plain lines for people: the time, the pool and what happened.
type agentLog struct {
	out     io.Writer
	changes func(pool, why string) // gets changes of the number of instances; nil to leave them out
	attrs   []slog.Attr
}

// inOne puts errors of several parts on one line.
var inOne = strings.NewReplacer("\n", "; ")

// Enabled implements [slog.Handler].
func (*agentLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements [slog.Handler].
func (h *agentLog) Handle(_ context.Context, r slog.Record) error {
	pool, message, decision := "", r.Message, false
	var details, stack strings.Builder
	add := func(a slog.Attr) bool {
		value := a.Value.Resolve().String()
		if a.Key == "error" {
			value = inOne.Replace(value)
		}
		switch {
		case a.Key == "pool":
			pool = value
		case a.Key == "from" && r.Level == slog.LevelInfo:
			decision = true
		case a.Key == "times" && value == "1" || value == "": // says nothing
		case strings.Contains(value, "\n"):
			fmt.Fprintf(&stack, "\n  %s:\n    %s", a.Key, strings.ReplaceAll(strings.TrimSpace(value), "\n", "\n    "))
		case a.Key == "how", a.Key == "consequence":
			fmt.Fprintf(&details, ", %s", value)
		default:
			fmt.Fprintf(&details, ", %s %s", strings.ReplaceAll(a.Key, "_", " "), value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if decision {
		if h.changes != nil {
			h.changes(pool, strings.TrimPrefix(message, "instances: "))
		}
		return nil
	}
	message = inOne.Replace(message)
	if pool != "" {
		message = pool + ": " + strings.TrimPrefix(message, "pool "+pool+": ")
	}
	if details.Len() > 0 {
		message += " (" + details.String()[len(", "):] + ")"
	}
	_, err := fmt.Fprintf(h.out, "%s %s\n", instant(time.Now()), escapeControls(redact(message+stack.String())))
	return err
}

// WithAttrs implements [slog.Handler].
func (h *agentLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &agentLog{out: h.out, changes: h.changes, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements [slog.Handler]. Groups are not shown.
func (h *agentLog) WithGroup(string) slog.Handler { return h }

// quietInterval is how often a pool in which nothing changes has a line all the same.
const quietInterval = 10 * time.Minute

// decisionPrinter prints decisions as they are made, for several pools at once.
type decisionPrinter struct {
	out    io.Writer
	asJSON bool
	stop   context.CancelCauseFunc // ends the agent if the output fails

	mu   sync.Mutex
	last map[string]time.Time // when a pool had a line; guarded by mu
}

// changed prints the reason of a change, before it is made.
func (p *decisionPrinter) changed(pool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(pool, why)
}

// decided prints a decision that changes nothing if it is the first of its pool, or if the last line is old. As JSON all
// decisions are printed.
func (p *decisionPrinter) decided(d agent.Decided) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, seen := p.last[d.Pool]
	switch {
	case p.asJSON:
		if err := printJSON(p.out, d); err != nil {
			p.stop(err)
		}
	case !d.Changes() && (!seen || time.Since(last) >= quietInterval):
		p.print(d.Pool, d.Decision.Why)
	}
}

// print prints a line with the time, so that lines are in its order. The lock is held.
func (p *decisionPrinter) print(pool, why string) {
	now := time.Now()
	p.last[pool] = now
	if _, err := fmt.Fprintf(p.out, "%s %s: %s\n", instant(now), pool, escapeControls(why)); err != nil {
		p.stop(err)
	}
}

// instant returns a time for a line of a log.
func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }
