package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

const queuesMore = `It prints a row for each queue with this prefix in its name: the number of messages, including hidden
ones, the number in its poison queue, and when it was paused. That takes a request per queue. With
-names it prints only the names, which takes a request per 5,000 queues.
`

func queuesCommand() *command {
	var (
		account       accountFlag
		asJSON, names bool
	)
	f := newFlags("queues")
	account.add(f)
	f.BoolVar(&names, "names", false, "list only names, or with -json also the metadata")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per queue, each on its own line, with the metadata")
	return &command{name: "queues", args: "[PREFIX]", does: "list the queues of an account, with their depths", flags: f, maxArgs: 1, more: queuesMore,
		run: func(ctx context.Context, c *console, args []string) error {
			prefix := strings.Join(args, "")
			if err := checkPrefix(prefix); err != nil {
				return err
			}
			return c.onAccount(ctx, &account, func(ctx context.Context, t *task) error {
				if names {
					return t.listNames(ctx, prefix, asJSON)
				}
				return t.overview(ctx, prefix, asJSON)
			})
		}}
}

// checkPrefix refuses a prefix of no queue name.
func checkPrefix(prefix string) error {
	if strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return usageError{fmt.Errorf("no queue name begins with %s: names have lower-case letters, digits and hyphens", quote(prefix))}
	}
	return nil
}

// listedQueue is a queue, as queues -names prints it in JSON.
type listedQueue struct {
	Name string `json:"name"`
	pauseFields
	Metadata map[string]string `json:"metadata"`
}

func newListedQueue(q queue.Listed) listedQueue {
	return listedQueue{q.Name, pauseFieldsOf(q.Metadata), nonNil(q.Metadata)}
}

// overviewRow is a queue, as queues prints it in JSON.
type overviewRow struct {
	listedQueue
	Depth       *int64 `json:"depth"`       // approximate, including hidden messages; nil if it could not be read
	PoisonDepth *int64 `json:"poisonDepth"` // nil without a poison queue, or if it could not be read

	err error
}

// listNames prints the names of queues, page by page.
func (t *task) listNames(ctx context.Context, prefix string, asJSON bool) error {
	l := newListing(t.console.out, asJSON)
	for q, err := range queue.ListAll(ctx, t.account, prefix) {
		if err == nil {
			err = l.row(newListedQueue(q), q.Name)
		}
		if err != nil {
			_ = l.flush() // the first error counts
			return err
		}
	}
	t.sayNoQueues(l, prefix)
	return l.flush()
}

func (t *task) sayNoQueues(l *listing, prefix string) {
	if l.rows > 0 || l.asJSON {
		return
	}
	kind := "no queues"
	if prefix != "" {
		kind = fmt.Sprintf("no queues whose names begin with %q", prefix)
	}
	printf(t.console.err, "There are %s in account %s; create one with millrace create QUEUE.\n", kind, t.account.Name())
}

// overview prints queues with their depths, each row as soon as it is known.
func (t *task) overview(ctx context.Context, prefix string, asJSON bool) error {
	l := newListing(t.console.out, asJSON, "queue", "messages", "poison", "paused")
	l.widths = []int{len("queue"), len("messages"), len("poison"), 0}
	var all []queue.Listed
	read := make(map[string]func() (queue.Properties, error))
	for q, err := range queue.ListAll(ctx, t.account, prefix) {
		if err != nil {
			return err
		}
		all = append(all, q)
		l.widths[0] = max(l.widths[0], len(q.Name))
		// Once, although the row of a queue has the depth of its poison queue too.
		read[q.Name] = sync.OnceValues(func() (queue.Properties, error) {
			if ctx.Err() != nil {
				return queue.Properties{}, context.Cause(ctx)
			}
			opened, err := t.account.Open(q.Name)
			if err != nil {
				return queue.Properties{}, err
			}
			return opened.Properties(ctx)
		})
	}
	now := time.Now()
	failed, first := 0, error(nil)
	for q, row := range inOrder(all, func(q queue.Listed) overviewRow { return readRow(q, read) }) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(row.err, queue.ErrQueueMissing) || errors.Is(row.err, queue.ErrQueueBeingDeleted) {
			continue // since it was listed
		}
		if row.err != nil {
			failed++
			first = cmp.Or(first, row.err)
		}
		paused := ""
		if p, is := queuemetadata.Paused(row.Metadata); is {
			paused = describePause(p, now)
		}
		if err := l.row(row, q.Name, number(row.Depth, "?"), number(row.PoisonDepth, ""), paused); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &explainedError{fmt.Sprintf("%d of %s could not be read: %v", failed, plural(len(all), "queue"), t.explain(first)), first}
	}
	t.sayNoQueues(l, prefix)
	return l.flush()
}

// readRow returns the row of a queue. read has the queue, and its poison queue if there is one.
func readRow(q queue.Listed, read map[string]func() (queue.Properties, error)) overviewRow {
	row := overviewRow{}
	found, err := read[q.Name]()
	if err == nil {
		row.Depth, q.Metadata = &found.Depth, found.Metadata
	}
	row.listedQueue, row.err = newListedQueue(q), err
	if readPoison := read[q.Name+poison.Suffix]; readPoison != nil {
		if found, err := readPoison(); err == nil {
			row.PoisonDepth = &found.Depth
		}
	}
	return row
}

func number(n *int64, unknown string) string {
	if n == nil {
		return unknown
	}
	return strconv.FormatInt(*n, 10)
}

// nonNil returns metadata that is {} in JSON, not null.
func nonNil(metadata map[string]string) map[string]string {
	if metadata == nil {
		return map[string]string{}
	}
	return metadata
}
