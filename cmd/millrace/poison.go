package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

func poisonCommand() *command {
	return &command{name: "poison", args: "VERB QUEUE", does: "show messages that failed, and put them right", flags: newFlags("poison"), more: poisonMore,
		verbs: []*command{poisonListCommand(), poisonShowCommand(), poisonStatsCommand(), poisonRedriveCommand(), poisonPurgeCommand()}}
}

const poisonMore = `QUEUE is a poison queue, or the queue that it belongs to: orders means orders-poison. See
millrace help poison VERB for the flags of each.
`

const beyondUsage = `read further than the 32 messages that the service shows, by taking
messages and giving them back: one request per message, their order
changes, and messages without an envelope get one more delivery`

type poisonFlags struct {
	account accountFlag
	exact   bool
	asJSON  bool
	beyond  bool
	reason  string
	id      string
	filter  poison.Filter
}

func (p *poisonFlags) add(f *flag.FlagSet) {
	p.account.add(f)
	f.BoolVar(&p.exact, "exact", false, "QUEUE is the name of the poison queue itself, which need not end in "+poison.Suffix)
	f.BoolVar(&p.asJSON, "json", false, "print JSON")
	f.StringVar(&p.reason, "reason", "", "only messages with this `reason`: "+reasons())
	f.StringVar(&p.filter.Fingerprint, "fingerprint", "", "only messages with this `error`; numbers and ids in it do not matter")
	f.StringVar(&p.filter.Match, "match", "", "only messages with this `text` in the error, the stack or the body")
	f.StringVar(&p.filter.Job, "job", "", "only messages of the job with this `id`")
	f.StringVar(&p.filter.Kind, "kind", "", "only messages of jobs of this `kind`")
	f.StringVar(&p.id, "id", "", "only the message with this `id`, here or in the queue that it came from")
	f.Var(duration{&p.filter.Older}, "older", "only messages that have been here for at least this `duration`, such as 1h")
	f.Var(duration{&p.filter.Newer}, "newer", "only messages that have been here for at most this `duration`, such as 20m")
}

// allReasons are the reasons in the order of the help.
var allReasons = []poison.Reason{
	poison.ReasonAttempts, poison.ReasonLost, poison.ReasonOutlived, poison.ReasonUndecodable,
	poison.ReasonRejected, poison.ReasonExpiring, poison.ReasonBlobGone,
}

func reasons() string {
	var all []string
	for _, r := range allReasons {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

// check refuses a filter that contradicts itself or has an unknown reason.
func (p *poisonFlags) check() error {
	p.filter.Reason, p.filter.ID = poison.Reason(p.reason), queue.ID(p.id)
	for name, d := range map[string]time.Duration{"-older": p.filter.Older, "-newer": p.filter.Newer} {
		if d < 0 {
			return usageError{fmt.Errorf("%s %v is negative: specify an age, such as 1h", name, d)}
		}
	}
	if p.filter.Newer > 0 && p.filter.Older > p.filter.Newer {
		return usageError{fmt.Errorf("no message is older than -older %v and newer than -newer %v", p.filter.Older, p.filter.Newer)}
	}
	if p.reason == "" || slices.Contains(allReasons, p.filter.Reason) {
		return nil
	}
	return usageError{fmt.Errorf("-reason %s is not known: the reasons are %s", quote(p.reason), reasons())}
}

func (c *console) onPoison(ctx context.Context, p *poisonFlags, name string, do func(ctx context.Context, t *task, q queue.Manager) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	source, whole := strings.CutSuffix(name, poison.Suffix)
	if !whole && !p.exact {
		name += poison.Suffix
	}
	return c.onQueue(ctx, &p.account, name, func(ctx context.Context, t *task, q queue.Manager) error {
		if of, err := t.account.Open(source); err == nil && (whole || !p.exact) {
			q = poisonQueue{q, of, !whole}
		}
		return do(ctx, t, q)
	})
}

// list lists the queue itself, whatever its name.
func (p *poisonFlags) list(limit int) *poisonrecord.ListOptions {
	return &poisonrecord.ListOptions{Filter: poisonrecord.Filter(p.filter), Beyond: p.beyond, Max: limit}
}

// poisonQueue is the poison queue of a queue. Until a worker creates it, it counts as empty.
type poisonQueue struct {
	queue.Manager
	source queue.Manager
	named  bool // the user named the source
}

// unlessMissing returns nil instead of the error that the poison queue is missing, if its source
// exists.
func (q poisonQueue) unlessMissing(ctx context.Context, err error) error {
	if !errors.Is(err, queue.ErrQueueMissing) {
		return err
	}
	_, found := q.source.Properties(ctx)
	switch {
	case found == nil:
		return nil
	case q.named && errors.Is(found, queue.ErrQueueMissing):
		return found
	}
	return err
}

// Properties implements [queue.Queue].
func (q poisonQueue) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := q.Manager.Properties(ctx)
	return p, q.unlessMissing(ctx, err)
}

// Peek implements [queue.Queue].
func (q poisonQueue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	messages, err := q.Manager.Peek(ctx, n)
	return messages, q.unlessMissing(ctx, err)
}

// Dequeue implements [queue.Queue].
func (q poisonQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	messages, err := q.Manager.Dequeue(ctx, n, visibility)
	return messages, q.unlessMissing(ctx, err)
}

// look returns a verb that reads a poison queue.
func (p *poisonFlags) look(verb, args, does, more string, maxArgs int, do func(ctx context.Context, t *task, q queue.Manager, args []string) error) *command {
	f := newFlags("poison " + verb)
	p.add(f)
	f.BoolVar(&p.beyond, "beyond", false, beyondUsage)
	return &command{name: "poison " + verb, args: args, does: does, more: more, flags: f, minArgs: 1, maxArgs: maxArgs,
		run: func(ctx context.Context, c *console, args []string) error {
			return c.onPoison(ctx, p, args[0], func(ctx context.Context, t *task, q queue.Manager) error { return do(ctx, t, q, args[1:]) })
		}}
}

func poisonListCommand() *command {
	var p poisonFlags
	limit := 0
	v := p.look("list", "QUEUE", "list messages, one per line",
		"It lists messages with how long they have been there, their reason and their error. It changes\nnothing, unless -beyond is given.\n", 1,
		func(ctx context.Context, t *task, q queue.Manager, _ []string) error {
			if limit < 0 {
				return usageError{fmt.Errorf("-n %d is negative", limit)}
			}
			return t.listPoison(ctx, q, &p, limit)
		})
	v.flags.IntVar(&limit, "n", 0, "list at most this `number` of messages")
	return v
}

// listPoison prints one line per message.
func (t *task) listPoison(ctx context.Context, q queue.Manager, p *poisonFlags, limit int) error {
	l := newListing(t.console.out, p.asJSON, "id", "age", "reason", "error")
	for e, err := range poisonrecord.List(ctx, t.untilHalted(q), p.list(limit)) {
		if err == nil {
			err = l.row(decode(e.Message), string(e.ID), age(time.Since(e.Inserted)), reasonOf(&e), oneLine(e.Record.Error, maxErrorShown))
		}
		if err != nil {
			return errors.Join(err, l.flush())
		}
	}
	if err := l.flush(); err != nil || p.asJSON {
		return err
	}
	return t.sayMore(ctx, q, l.rows, p)
}

// sayMore says how many more messages there may be than were listed.
func (t *task) sayMore(ctx context.Context, q queue.Queue, listed int, p *poisonFlags) error {
	properties, err := q.Properties(ctx)
	if err != nil {
		return err
	}
	if listed == 0 && properties.Depth == 0 {
		return t.report(nil, "No poison messages.\n")
	}
	chosen := ""
	if p.filter != (poison.Filter{}) {
		chosen = " that match"
	}
	printf(t.console.err, "%s%s, of about %d in %v, including hidden ones", plural(listed, "message"), chosen, properties.Depth, q.Name())
	if !p.beyond && properties.Depth > queue.MaxBatch {
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
func reasonOf(e *poisonrecord.Entry) string {
	switch {
	case e.Newer != nil:
		return "(a newer record)"
	case e.Foreign:
		return "(no record)"
	}
	return oneLine(string(e.Record.Reason), maxErrorShown)
}

func poisonShowCommand() *command {
	var p poisonFlags
	return p.look("show", "QUEUE [ID]", "show all about a message",
		"ID is that of the message, of the message that it was before, or of its job. Without one the first\nmessage that the flags choose is shown.\n", 2,
		func(ctx context.Context, t *task, q queue.Manager, args []string) error {
			entries := poisonrecord.List(ctx, t.untilHalted(q), p.list(0))
			return t.showPoison(ctx, q, entries, strings.Join(args, ""), p.asJSON)
		})
}

// showPoison prints the first of the entries that the id means.
func (t *task) showPoison(ctx context.Context, q queue.Queue, entries iter.Seq2[poisonrecord.Entry, error], id string, asJSON bool) error {
	for e, err := range entries {
		switch {
		case err != nil:
			return err
		case id != "" && id != string(e.ID) && id != e.Record.Job && id != string(e.Record.ID):
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
func describePoison(in queue.Name, e *poisonrecord.Entry, now time.Time) string {
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
	switch {
	case e.Newer != nil:
		row("reason", "not known: %v", e.Newer)
		row("here for", "%s", age(now.Sub(e.Inserted)))
	case e.Foreign:
		row("reason", "not known: it has no record, so another program put it here, or a policy without records")
		row("here for", "%s", age(now.Sub(e.Inserted)))
	default:
		row("reason", "%s: %s", r.Reason, explainReason(r.Reason))
		if r.Error != "" {
			row("error", "%s", r.Error)
		}
		if r.ID != e.ID {
			row("came from", "%v, as message %s", queue.Name{Account: r.Account, Queue: r.Queue}, r.ID)
		} else { // it had no room for a whole record
			row("came from", "%s", r.Queue)
		}
		row("given up", "%s, on %s", ago(r.Poisoned), cmp.Or(r.Host, "a machine that is not known"))
		row("last tried", "%s", ago(r.LastSeen))
		row("first seen", "%s", ago(r.FirstSeen))
		row("tried", "%s recorded, delivered %s, %d of them lost", plural(r.Attempts, "failed attempt"), plural(int(r.DequeueCount), "time"), r.Lost)
		if r.Expires != nil {
			row("lives until", "%s", r.Expires.UTC().Format(time.DateTime+" MST"))
		}
	}
	if job := r.Job; job != "" {
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
	if !e.Foreign {
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

func bodyForPeople(e *poisonrecord.Entry) string {
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

func poisonStatsCommand() *command {
	var p poisonFlags
	return p.look("stats", "QUEUE", "count messages by reason and error",
		"Errors that differ only in numbers and ids are one kind, shown by its fingerprint. The most frequent\nkind comes first.\n", 1,
		func(ctx context.Context, t *task, q queue.Manager, _ []string) error {
			s, err := t.readPoisonStats(ctx, q, p.list(0))
			switch {
			case err != nil:
				return err
			case p.asJSON:
				return printJSON(t.console.out, s)
			}
			if err := s.print(t.console.out, time.Now()); err != nil {
				return err
			}
			return t.sayMore(ctx, q, s.Read, &p)
		})
}

// poisonStats is the output of poison stats in JSON.
type poisonStats struct {
	Account string       `json:"account"`
	Queue   string       `json:"queue"`
	Depth   int64        `json:"depth"` // approximate, hidden messages included
	Read    int          `json:"read"`  // how many are counted below
	Kinds   []poisonKind `json:"kinds"`
}

// poisonKind is a number of messages with the same reason and the same kind of error.
type poisonKind struct {
	Reason      poison.Reason `json:"reason"` // "" without a record
	Fingerprint string        `json:"fingerprint"`
	From        string        `json:"from"` // the queue that they came from
	Messages    int           `json:"messages"`
	Oldest      time.Time     `json:"oldest"` // when the first of them came
	Newest      time.Time     `json:"newest"`
	Example     queue.ID      `json:"example"`

	label string
}

func (t *task) readPoisonStats(ctx context.Context, q queue.Manager, o *poisonrecord.ListOptions) (*poisonStats, error) {
	properties, err := q.Properties(ctx)
	if err != nil {
		return nil, err
	}
	s := &poisonStats{Account: q.Name().Account, Queue: q.Name().Queue, Depth: properties.Depth, Kinds: []poisonKind{}}
	type key struct {
		reason            poison.Reason
		fingerprint, from string
	}
	kinds := make(map[key]*poisonKind)
	for e, err := range poisonrecord.List(ctx, t.untilHalted(q), o) {
		if err != nil {
			return nil, err
		}
		s.Read++
		r := &e.Record
		at := key{r.Reason, r.Fingerprint, r.Queue}
		k := kinds[at]
		if k == nil {
			k = &poisonKind{Reason: r.Reason, Fingerprint: r.Fingerprint, From: r.Queue, Oldest: e.Inserted, Newest: e.Inserted, Example: e.ID, label: reasonOf(&e)}
			kinds[at] = k
		}
		k.Messages++
		if e.Inserted.Before(k.Oldest) {
			k.Oldest = e.Inserted
		}
		if e.Inserted.After(k.Newest) {
			k.Newest = e.Inserted
		}
	}
	for k := range maps.Values(kinds) {
		s.Kinds = append(s.Kinds, *k)
	}
	slices.SortFunc(s.Kinds, func(a, b poisonKind) int {
		return cmp.Or(b.Messages-a.Messages, cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Fingerprint, b.Fingerprint), cmp.Compare(a.From, b.From))
	})
	return s, nil
}

func (s *poisonStats) print(out io.Writer, now time.Time) error {
	l := newListing(out, false, "messages", "reason", "oldest", "newest", "error")
	for _, k := range s.Kinds {
		if err := l.row(k, strconv.Itoa(k.Messages), k.label, age(now.Sub(k.Oldest)), age(now.Sub(k.Newest)), oneLine(k.Fingerprint, maxErrorShown)); err != nil {
			return err
		}
	}
	return l.flush()
}
