package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// sweepFlags are the flags of redrive and purge.
type sweepFlags struct {
	poisonFlags
	dryRun, yes     bool
	rate            float64
	parallel, limit int
	lease           time.Duration
	to              string
	ttl             time.Duration
	forever         bool
}

func (s *sweepFlags) add(f *flag.FlagSet) {
	s.poisonFlags.add(f)
	f.BoolVar(&s.dryRun, "dry-run", false, "change nothing, and say what would be done; costs one request per message")
	f.BoolVar(&s.yes, "yes", false, "do not ask for confirmation")
	f.Float64Var(&s.rate, "rate", 0, "do at most this `number` of messages per second (default as fast as it goes)")
	f.IntVar(&s.parallel, "parallel", 1, "work on this `number` of messages at a time")
	f.IntVar(&s.limit, "n", 0, "do at most this `number` of messages, such as 1 to try (default all)")
	f.Var(duration{&s.lease}, "lease", "hide messages for this `duration` while they are worked on, at least 2s (default 30s)")
}

func (s *sweepFlags) check() error {
	switch {
	case s.rate < 0:
		return usageError{fmt.Errorf("-rate %v is negative: specify messages per second", s.rate)}
	case s.parallel < 1:
		return usageError{fmt.Errorf("-parallel %d is out of range: it must be at least 1", s.parallel)}
	case s.limit < 0:
		return usageError{fmt.Errorf("-n %d is negative", s.limit)}
	case s.lease != 0 && (s.lease < browse.MinLease || s.lease > queue.MaxVisibility):
		return usageError{fmt.Errorf("-lease %v is out of range: it must be at least %v and at most %v", s.lease, browse.MinLease, queue.MaxVisibility)}
	case s.ttl != 0 && s.ttl < driver.MinTTL:
		return usageError{fmt.Errorf("-ttl %v is too short: a message lives for at least a second", s.ttl)}
	case s.ttl != 0 && s.forever:
		return usageError{errors.New("-ttl and -forever exclude each other")}
	}
	return nil
}

// verb returns a verb with these flags.
func (s *sweepFlags) verb(name, does, more string, do func(ctx context.Context, t *task, q queue.Manager) error) *command {
	f := newFlags("poison " + name)
	s.add(f)
	return &command{name: "poison " + name, args: "QUEUE", does: does, flags: f, minArgs: 1, maxArgs: 1, more: more,
		run: func(ctx context.Context, c *console, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return c.onPoison(ctx, &s.poisonFlags, args[0], do)
		}}
}

func poisonRedriveCommand() *command {
	s := new(sweepFlags)
	v := s.verb("redrive", "send messages back to their queues", redriveMore, func(ctx context.Context, t *task, q queue.Manager) error {
		return t.redrive(ctx, q, s)
	})
	v.flags.StringVar(&s.to, "to", "", "send all to this `queue`, also messages without a record (default: each back to its own)")
	v.flags.Var(duration{&s.ttl}, "ttl", "let the messages live for this `duration` (default: what remained of their life)")
	v.flags.BoolVar(&s.forever, "forever", false, "let the messages live for ever")
	return v
}

const redriveMore = `Each job starts anew, with no failed attempts. It is sent first and then deleted, so that nothing is
lost if this is interrupted or killed; a kill may leave -parallel messages twice. Those in hand at a
kill are visible again after -lease. Messages whose life has ended stay, unless -ttl or -forever is
given. Messages that come while it runs stay too. On a terminal it asks for the name to be typed.

It takes messages, 32 at a time, and gives back those that the flags do not choose: one request each,
which changes their order. A redriven message costs two requests.
`

func poisonPurgeCommand() *command {
	s := new(sweepFlags)
	return s.verb("purge", "delete messages for good", purgeMore, func(ctx context.Context, t *task, q queue.Manager) error {
		return t.purge(ctx, q, s)
	})
}

const purgeMore = `It asks for the queue's name to be typed, unless -yes or -dry-run is given. Messages that come while
it runs stay. It takes messages, 32 at a time, and gives back those that the flags do not choose: one
request each, which changes their order. A purged message costs one request. A body that is stored
elsewhere stays: see millrace help bodies purge.
`

// redrive sends messages back.
func (t *task) redrive(ctx context.Context, q queue.Manager, s *sweepFlags) error {
	if !s.yes && !s.dryRun && t.console.interactive {
		if err := t.ask(ctx, q, "This sends messages of %v (it has about %d) back to their queues: "+s.choice()+".", "nothing was redriven"); err != nil {
			return err
		}
	}
	bar := t.newProgressBar(s.limit, "redriven")
	o := &poison.Options{
		From: t.untilHalted(q), Account: haltedAccount{t.account, t}, TTL: s.ttl, Filter: s.filter, DryRun: s.dryRun,
		Rate: s.rate, Parallel: s.parallel, Max: s.limit, Lease: s.lease, Progress: bar.show,
	}
	if s.forever {
		o.TTL = queue.Forever
	}
	if s.to != "" {
		if err := checkName(s.to); err != nil {
			return err
		}
		to, err := t.account.Open(s.to)
		if err != nil {
			return locationError(t.source, err)
		}
		if s.to == q.Name().Queue {
			return usageError{fmt.Errorf("-to %s is the queue that the messages are in", s.to)}
		}
		o.To = t.untilHalted(to)
	}
	report, err := poison.Redrive(ctx, t.sourceOf(q), o)
	bar.clear()
	return t.reportSweep(ctx, q, s, "redriven", report, err)
}

func (t *task) purge(ctx context.Context, q queue.Manager, s *sweepFlags) error {
	if !s.dryRun {
		if err := t.confirm(ctx, q, "purge", s.yes, "This deletes messages of the queue %v, of about %d in it, for good: "+s.choice()+"."); err != nil {
			return err
		}
	}
	bar := t.newProgressBar(s.limit, "purged")
	report, err := poison.Purge(ctx, t.sourceOf(q), &poison.Options{
		From: t.untilHalted(q), Filter: s.filter, DryRun: s.dryRun, Rate: s.rate, Parallel: s.parallel, Max: s.limit, Lease: s.lease, Progress: bar.show,
	})
	bar.clear()
	return t.reportSweep(ctx, q, s, "purged", report, err)
}

// sourceOf returns the queue that the messages of a poison queue came from, or the poison queue
// itself if that is not known.
func (t *task) sourceOf(q queue.Manager) queue.Queue {
	if p, is := q.(poisonQueue); is {
		q = p.source
	}
	return t.untilHalted(q)
}

// choice says which messages were asked for. It stands in a format.
func (s *sweepFlags) choice() string {
	what := "all of them"
	if s.filter != (poison.Filter{}) {
		what = "those that the flags choose"
	}
	if s.limit > 0 {
		what += fmt.Sprintf(", %d at most", s.limit)
	}
	return what
}

// sweepReport is the output of redrive and purge in JSON.
type sweepReport struct {
	Account string `json:"account"`
	Queue   string `json:"queue"`
	DryRun  bool   `json:"dryRun"`
	sweepCounts
	Depth    int64                         `json:"depth"` // at the start; -1 if it may not be read
	Seen     int                           `json:"seen"`
	ByReason map[poison.Reason]sweepCounts `json:"byReason"`
	Problems []sweepProblem                `json:"problems"`
	Error    string                        `json:"error,omitempty"` // why it ended early
}

// sweepCounts are poison.Counts of a redrive or a purge.
type sweepCounts struct {
	Chosen   int `json:"chosen"`
	Redriven int `json:"redriven"`
	Purged   int `json:"purged"`
	Expired  int `json:"expired"`
	Skipped  int `json:"skipped"`
	Failed   int `json:"failed"`
	Doubled  int `json:"doubled"`
}

func newSweepCounts(c poison.Counts, done string) sweepCounts {
	counts := sweepCounts{Chosen: chosen(c), Expired: c.Expired, Skipped: c.Skipped, Failed: c.Failed, Doubled: c.Doubled}
	if done == "purged" {
		counts.Purged = c.Done
	} else {
		counts.Redriven = c.Done
	}
	return counts
}

// sweepProblem is why messages stayed where they are or may be there twice.
type sweepProblem struct {
	Text     string `json:"text"`
	Messages int    `json:"messages"`
}

// sweepProblems lists the problems of a report, the most frequent first.
func sweepProblems(report *poison.Summary) []sweepProblem {
	problems := make([]sweepProblem, 0, len(report.Problems))
	for text, messages := range report.Problems {
		problems = append(problems, sweepProblem{text, messages})
	}
	slices.SortFunc(problems, func(a, b sweepProblem) int {
		return cmp.Or(b.Messages-a.Messages, cmp.Compare(a.Text, b.Text))
	})
	return problems
}

// reportSweep prints the result, even of a sweep that ended early.
func (t *task) reportSweep(ctx context.Context, q queue.Queue, s *sweepFlags, done string, report poison.Summary, err error) error {
	interrupted := err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !interrupted && report.Seen == 0 {
		return err
	}
	printed := t.printSweep(q.Name(), s, done, report, err)
	so := fmt.Sprintf("%s %s of %v", plural(report.Done, "message"), done, q.Name())
	switch {
	case interrupted && t.finish.Err() != nil:
		return interruption{fmt.Errorf("interrupted twice; %s, and perhaps one more per -parallel; nothing is lost", so)}
	case interrupted:
		return interruption{fmt.Errorf("interrupted; %s; nothing is lost, run it again for the rest", so)}
	case err != nil:
		return &explainedError{fmt.Sprintf("%v; %s before that", t.explain(err), so), err}
	case printed != nil:
		return printed
	case report.Failed > 0:
		return fmt.Errorf("%s could not be %s", plural(report.Failed, "message"), done)
	}
	return nil
}

func (t *task) printSweep(name queue.Name, s *sweepFlags, done string, report poison.Summary, err error) error {
	if s.asJSON {
		r := sweepReport{
			Account: name.Account, Queue: name.Queue, DryRun: s.dryRun, sweepCounts: newSweepCounts(report.Counts, done),
			Depth: report.Depth, Seen: report.Seen, ByReason: map[poison.Reason]sweepCounts{}, Problems: sweepProblems(&report),
		}
		for reason, counts := range report.ByReason {
			r.ByReason[reason] = newSweepCounts(counts, done)
		}
		if err != nil {
			r.Error = redact(err.Error())
		}
		return printJSON(t.console.out, r)
	}
	return printSweepText(t.console.out, name, s.dryRun, done, report)
}

func printSweepText(out io.Writer, name queue.Name, dryRun bool, done string, report poison.Summary) error {
	var b strings.Builder
	would := "was"
	if dryRun {
		would = "would be"
	}
	fmt.Fprintf(&b, "%s of %v %s.\n", plural(report.Done, "message"), name, verbFor(report.Done, would, done))
	for _, reason := range slices.Sorted(maps.Keys(report.ByReason)) {
		label := string(reason)
		if reason == "" {
			label = "(no record)"
		}
		fmt.Fprintf(&b, "  %s: %s\n", oneLine(label, maxErrorShown), countsText(report.ByReason[reason], done))
	}
	if len(report.Problems) > 0 {
		b.WriteString("Not as it should be:\n")
	}
	for _, p := range sweepProblems(&report) {
		fmt.Fprintf(&b, "  %s: %s\n", plural(p.Messages, "message"), oneLine(p.Text, queue.MaxText))
	}
	if hidden := report.Depth - int64(report.Seen); hidden > 0 && report.Depth >= 0 {
		fmt.Fprintf(&b, "%s looked at, of about %d; the others are hidden, or were not needed.\n", plural(report.Seen, "message"), report.Depth)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// verbFor returns the verb for a number of messages.
func verbFor(n int, would, done string) string {
	if would == "was" && n != 1 {
		would = "were"
	}
	return would + " " + done
}

// countsText lists the numbers that are not 0.
func countsText(c poison.Counts, done string) string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(c.Done, done)
	add(c.Expired, "left, their life has ended")
	add(c.Skipped, "left")
	add(c.Failed, "failed")
	add(c.Doubled, "perhaps sent twice")
	return strings.Join(parts, ", ")
}
