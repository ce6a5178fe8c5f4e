package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

func poisonListCommand() *command {
	var (
		p      poisonFlags
		limit  int
		beyond bool
	)
	f := newFlags("poison list")
	p.add(f)
	f.IntVar(&limit, "n", 0, "list at most this `number` of messages")
	f.BoolVar(&beyond, "beyond", false, beyondUsage)
	return &command{name: "poison list", args: "QUEUE", does: "list messages, one per line", flags: f, minArgs: 1, maxArgs: 1,
		more: "It lists messages with how long they have been there, their reason and their error. It changes\nnothing, unless -beyond is given.\n",
		run: func(ctx context.Context, c *console, args []string) error {
			if limit < 0 {
				return usageError{fmt.Errorf("-n %d is negative", limit)}
			}
			return c.onPoison(ctx, &p, args[0], func(ctx context.Context, t *task, q queue.Manager) error {
				return t.listPoison(ctx, q, &p, poison.ListOptions{Filter: p.filter, Beyond: beyond, Max: limit})
			})
		}}
}

// listPoison prints one line per message.
func (t *task) listPoison(ctx context.Context, q queue.Manager, p *poisonFlags, o poison.ListOptions) error {
	l := newListing(t.console.out, p.asJSON, "id", "age", "reason", "error")
	for e, err := range poison.List(ctx, t.untilHalted(q), &o) {
		if err == nil {
			err = l.row(decode(e.Message), string(e.ID), age(time.Since(e.Since())), reasonOf(&e), oneLine(e.Record.Error, maxErrorShown))
		}
		if err != nil {
			return errors.Join(err, l.flush())
		}
	}
	if err := l.flush(); err != nil || p.asJSON {
		return err
	}
	return t.sayMore(ctx, q, l.rows, o)
}

// sayMore says how many more messages there may be than were listed.
func (t *task) sayMore(ctx context.Context, q queue.Queue, listed int, o poison.ListOptions) error {
	properties, err := q.Properties(ctx)
	if err != nil {
		return err
	}
	if listed == 0 && properties.Depth == 0 {
		return t.report(nil, "No poison messages.\n")
	}
	chosen := ""
	if o.Filter != (poison.Filter{}) {
		chosen = " that match"
	}
	printf(t.console.err, "%s%s, of about %d in %v, including hidden ones", plural(listed, "message"), chosen, properties.Depth, q.Name())
	if !o.Beyond && properties.Depth > queue.MaxBatch {
		printf(t.console.err, "; only %d can be seen without -beyond", queue.MaxBatch)
	}
	printf(t.console.err, ".\n")
	return nil
}

// maxErrorShown is how many characters of an error a line has.
const maxErrorShown = 80

// oneLine returns the text on one line of at most so many characters.
func oneLine(text string, most int) string {
	line := []rune(onOneLine(text))
	if len(line) > most {
		return string(line[:most-1]) + "…"
	}
	return string(line)
}

// reasonOf returns the reason of a message for people.
func reasonOf(e *poison.Entry) string {
	if e.Foreign() {
		return "(no record)"
	}
	return oneLine(string(e.Record.Reason), maxErrorShown)
}

func poisonShowCommand() *command {
	var (
		p      poisonFlags
		beyond bool
	)
	f := newFlags("poison show")
	p.add(f)
	f.BoolVar(&beyond, "beyond", false, beyondUsage)
	return &command{name: "poison show", args: "QUEUE [ID]", does: "show all about a message", flags: f, minArgs: 1, maxArgs: 2,
		more: "ID is that of the message, of the message that it was before, or of its job. Without one the first\nmessage that the flags choose is shown.\n",
		run: func(ctx context.Context, c *console, args []string) error {
			return c.onPoison(ctx, &p, args[0], func(ctx context.Context, t *task, q queue.Manager) error {
				entries := poison.List(ctx, t.untilHalted(q), &poison.ListOptions{Filter: p.filter, Beyond: beyond})
				return t.showPoison(ctx, q, entries, strings.Join(args[1:], ""), p.asJSON)
			})
		}}
}

// showPoison prints the first of the entries that the id means.
func (t *task) showPoison(ctx context.Context, q queue.Queue, entries iter.Seq2[poison.Entry, error], id string, asJSON bool) error {
	for e, err := range entries {
		switch {
		case err != nil:
			return err
		case id != "" && id != string(e.ID) && id != e.Job() && (e.Foreign() || id != string(e.Record.ID)):
			continue
		case asJSON:
			return printJSON(t.console.out, decode(e.Message))
		}
		_, err = t.console.out.Write([]byte(describePoison(q.Name(), &e, time.Now())))
		return err
	}
	if id == "" {
		if found, err := q.Properties(ctx); err != nil || found.Depth == 0 && !asJSON {
			return t.report(err, "No poison messages.\n")
		}
		return fmt.Errorf("no message that was asked for is visible in %v now", q.Name())
	}
	return fmt.Errorf("message %s is not visible in %v now; it may be hidden, or beyond the %d that the service shows (-beyond)", quote(id), q.Name(), queue.MaxBatch)
}

// describePoison describes a message of a poison queue for people.
func describePoison(in queue.Name, e *poison.Entry, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, oneLine(fmt.Sprintf(format, args...), queue.MaxText)) // a strings.Builder never fails
	}
	ago := func(at time.Time) string {
		return fmt.Sprintf("%s ago, %s", age(now.Sub(at)), at.UTC().Format(time.DateTime+" MST"))
	}
	r := &e.Record
	row("message", "%s in %v", e.ID, in)
	if e.Foreign() {
		row("reason", "not known: it has no record, so another program put it here, or a policy without records")
		row("here for", "%s", age(now.Sub(e.Since())))
	} else {
		row("reason", "%s: %s", r.Reason, explainReason(r.Reason))
		if r.Error != "" {
			row("error", "%s", r.Error)
		}
		row("came from", "%v, as message %s", queue.Name{Account: r.Account, Queue: r.Queue}, r.ID)
		row("given up", "%s, on %s", ago(r.Poisoned), cmp.Or(r.Host, "a machine that is not known"))
		row("last tried", "%s", ago(r.LastSeen))
		row("first seen", "%s", ago(r.FirstSeen))
		row("tried", "%s recorded, delivered %s, %d of them lost", plural(r.Attempts, "failed attempt"), plural(int(r.DequeueCount), "time"), r.Lost)
		if r.Expires != nil {
			row("lives until", "%s", r.Expires.UTC().Format(time.DateTime+" MST"))
		}
	}
	if job := e.Job(); job != "" {
		row("job", "%s", job)
	}
	if kind := e.Kind(); kind != "" {
		row("kind", "%s", kind)
	}
	if e.DequeueCount > 0 {
		row("looked at", "%s since it came here", plural(int(e.DequeueCount), "time"))
	}
	_ = w.Flush()
	if r.Stack != "" {
		b.WriteString("\nstack\n" + indent(r.Stack))
	}
	b.WriteString("\nbody\n" + indent(bodyForPeople(e)))
	if !e.Foreign() {
		fmt.Fprintf(&b, "\nTo try it again: millrace poison redrive %s -id %s\n", in.Queue, e.ID)
	}
	return b.String()
}

func explainReason(r poison.Reason) string {
	switch r {
	case poison.ReasonAttempts:
		return "its handler failed too often"
	case poison.ReasonLost:
		return "handlers started and nothing came of it: workers died, or lost its lease"
	case poison.ReasonOutlived:
		return "its handlers outlived the visibility: the job may be sound"
	case poison.ReasonUndecodable:
		return "its text cannot be decoded"
	case poison.ReasonRejected:
		return "its handler rejected it"
	case poison.ReasonExpiring:
		return "its life ended before another attempt"
	case poison.ReasonBlobGone:
		return "its body is not in the store where it should be"
	}
	return "a reason of a newer release"
}

func bodyForPeople(e *poison.Entry) string {
	s := decode(e.Message)
	if s.Body == nil {
		if s.Error != "" {
			return "(" + s.Error + ")\n" + s.body()
		}
		return s.body()
	}
	pretty, err := json.MarshalIndent(s.Body, "", "  ")
	if err != nil {
		return s.body()
	}
	return string(pretty)
}

// indent indents each line of an untrusted text.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(escapeControls(text), "\n"), "\n", "\n  ") + "\n"
}
