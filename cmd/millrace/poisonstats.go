package main

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

func poisonStatsCommand() *command {
	var (
		p      poisonFlags
		beyond bool
	)
	f := newFlags("poison stats")
	p.add(f)
	f.BoolVar(&beyond, "beyond", false, beyondUsage)
	return &command{name: "poison stats", args: "QUEUE", does: "count messages by reason and error", flags: f, minArgs: 1, maxArgs: 1,
		more: "Errors that differ only in numbers and ids are one kind, shown by its fingerprint. The most frequent\nkind comes first.\n",
		run: func(ctx context.Context, c *console, args []string) error {
			return c.onPoison(ctx, &p, args[0], func(ctx context.Context, t *task, q queue.Manager) error {
				o := &poison.ListOptions{Filter: p.filter, Beyond: beyond}
				s, err := t.readPoisonStats(ctx, q, o)
				switch {
				case err != nil:
					return err
				case p.asJSON:
					return printJSON(c.out, s)
				}
				if err := s.print(c.out, time.Now()); err != nil {
					return err
				}
				return t.sayMore(ctx, q, s.Read, *o)
			})
		}}
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

func (t *task) readPoisonStats(ctx context.Context, q queue.Manager, o *poison.ListOptions) (*poisonStats, error) {
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
	for e, err := range poison.List(ctx, t.untilHalted(q), o) {
		if err != nil {
			return nil, err
		}
		s.Read++
		r := &e.Record
		at := key{r.Reason, r.Fingerprint, r.Queue}
		k := kinds[at]
		if k == nil {
			k = &poisonKind{Reason: r.Reason, Fingerprint: r.Fingerprint, From: r.Queue, Oldest: e.Since(), Newest: e.Since(), Example: e.ID, label: reasonOf(&e)}
			kinds[at] = k
		}
		k.Messages++
		if e.Since().Before(k.Oldest) {
			k.Oldest = e.Since()
		}
		if e.Since().After(k.Newest) {
			k.Newest = e.Since()
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
