package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

const statMore = `It prints the number of messages, how many of them are visible, the age of the oldest visible
one, the number of messages in the poison queue, since when the queue is paused, and the metadata.
Without a name it prints all queues, as millrace queues does.
`

func statCommand() *command {
	var (
		account accountFlag
		asJSON  bool
	)
	f := newFlags("stat")
	account.add(f)
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return &command{name: "stat", args: "[QUEUE]", does: "show the depth and the metadata of a queue, or the depths of all", flags: f, maxArgs: 1, more: statMore,
		run: func(ctx context.Context, c *console, args []string) error {
			if len(args) == 0 {
				return c.onAccount(ctx, &account, func(ctx context.Context, t *task) error { return t.overview(ctx, "", asJSON) })
			}
			return c.onQueue(ctx, &account, args[0], func(ctx context.Context, t *task, q queue.Manager) error {
				s, err := readStat(ctx, q)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.out, s)
				}
				return s.print(c.out, time.Now())
			})
		}}
}

// stat is the output of stat in JSON.
type stat struct {
	Account string `json:"account"`
	Queue   string `json:"queue"`
	Depth   int64  `json:"depth"` // approximate, including hidden messages

	// Visible is the number of visible messages, as far as a peek shows them.
	Visible     int  `json:"visible"`
	VisibleMore bool `json:"visibleMore"` // there may be more

	// OldestInserted is when the oldest visible message was put; nil if there is none.
	OldestInserted *time.Time `json:"oldestInserted"`

	// PoisonDepth is the depth of the poison queue; nil if there is none.
	PoisonDepth *int64 `json:"poisonDepth"`

	pauseFields

	Metadata map[string]string `json:"metadata"`
}

// readStat reads the statistics of a queue with three requests.
func readStat(ctx context.Context, q queue.Queue) (*stat, error) {
	found, err := q.Properties(ctx)
	if err != nil {
		return nil, err
	}
	visible, err := q.Peek(ctx, queue.MaxBatch)
	if err != nil {
		return nil, err
	}
	s := &stat{Account: q.Name().Account, Queue: q.Name().Queue, Depth: found.Depth, Metadata: nonNil(found.Metadata), pauseFields: pauseFieldsOf(found.Metadata),
		Visible: len(visible), VisibleMore: len(visible) == queue.MaxBatch}
	for _, m := range visible {
		if s.OldestInserted == nil || m.Inserted.Before(*s.OldestInserted) {
			s.OldestInserted = &m.Inserted
		}
	}
	s.PoisonDepth, err = poisonDepth(ctx, q)
	return s, err
}

// poisonDepth returns the depth of the poison queue, or nil if it does not exist, cannot exist,
// or may not be read.
func poisonDepth(ctx context.Context, q queue.Queue) (*int64, error) {
	if strings.HasSuffix(q.Name().Queue, poison.Suffix) {
		return nil, nil
	}
	found, err := q.Sibling(poison.Suffix).Properties(ctx)
	switch {
	case errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrUnauthorized):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &found.Depth, nil
}

func (s *stat) print(out io.Writer, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, escapeControls(fmt.Sprintf(format, args...))) // Flush reports the error
	}
	row("queue", "%s", queue.Name{Account: s.Account, Queue: s.Queue})
	row("messages", "%d, including hidden ones", s.Depth)
	visible := fmt.Sprint(s.Visible)
	if s.VisibleMore {
		visible += " or more"
	}
	row("visible now", "%s", visible)
	if s.OldestInserted != nil {
		row("oldest of them", "put %s ago", age(now.Sub(*s.OldestInserted)))
	}
	if s.PoisonDepth != nil {
		row("poison", "%d in %s", *s.PoisonDepth, s.Queue+poison.Suffix)
	}
	if p, paused := queuemetadata.Paused(s.Metadata); paused {
		row("paused", "%s", describePause(p, now))
	}
	for i, name := range slices.Sorted(maps.Keys(s.Metadata)) {
		label := ""
		if i == 0 {
			label = "metadata"
		}
		row(label, "%s=%s", name, s.Metadata[name])
	}
	return w.Flush()
}
