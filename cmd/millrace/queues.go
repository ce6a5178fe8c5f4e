package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
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

const instancesMore = `It looks at a control queue, in which workers with a beacon report, and prints what each says of itself: which
queue it works on, how many of its handlers run, how many messages a second it takes and works off, how
long a handler takes, how much of its processors and memory it uses, and how old that is. That is two requests for up to 25 workers. It deletes reports of workers that were
killed if they crowd the queue, and changes nothing else.
`

func instancesCommand() *command {
	var asJSON bool
	c := queueCommand("instances", "list the workers that report in a control queue", instancesMore,
		func(ctx context.Context, t *task, q queue.Manager) error {
			viewer, err := beacon.NewViewer(q)
			if err != nil {
				return err
			}
			v, err := viewer.View(ctx)
			if err != nil {
				return err
			}
			l := newListing(t.console.out, asJSON, "instance", "queue", "phase", "handlers", "in", "out", "handling", "cpu", "memory", "reported")
			for _, r := range v.Reports {
				phase := r.Phase
				if r.Paused {
					phase += ", paused"
				}
				if err := l.row(r, r.Instance, r.Queue.String(), phase, fmt.Sprintf("%d of %d", r.Load.Running, r.Load.Slots), perSecond(r.Load.Intake),
					perSecond(r.Load.Service), handlingTime(r.Load.Handling), cpuShare(r.CPU), memoryOf(&r), age(max(v.At.Sub(r.At), 0))+" ago"); err != nil {
					return err
				}
			}
			if err := l.flush(); err != nil || asJSON {
				return err
			}
			explainInstances(t.console.err, &v, q.Name())
			return nil
		})
	c.flags.BoolVar(&asJSON, "json", false, "print one JSON object per worker, each on its own line")
	return c
}

// explainInstances adds to the table how much of the queue it covers.
func explainInstances(to io.Writer, v *beacon.View, control queue.Name) {
	if len(v.Reports) == 0 {
		printf(to, "No worker reports in %v; those with a beacon do.\n", control)
	}
	if v.Full {
		printf(to, "A look shows %d messages at most: there may be more workers.\n", queue.MaxBatch)
	}
	if v.Stale > 0 {
		printf(to, "%s left out, because no newer one has followed: the worker was killed, or cannot report.\n", plural(v.Stale, "report"))
	}
	if v.Ignored > 0 {
		printf(to, "%s left out that no worker of this version has written.\n", plural(v.Ignored, "message"))
	}
}

func perSecond(o scaling.Optional[float64]) string {
	v, known := o.Get()
	switch {
	case !known:
		return "?"
	case v >= 9.95:
		return rounded(v) + "/s"
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) + "/s"
}

func cpuShare(o scaling.Optional[float64]) string {
	share, known := o.Get()
	if !known {
		return "?"
	}
	return rounded(share*100) + "%"
}

// memoryOf returns how much memory an instance uses, and what part of its limit that is.
func memoryOf(r *beacon.Report) string {
	used, known := r.Memory.Get()
	if !known {
		return "?"
	}
	text := rounded(float64(used)/(1<<20)) + " MiB"
	if limit, known := r.MemoryLimit.Get(); known {
		text += ", " + rounded(float64(used)/float64(limit)*100) + "%"
	}
	return text
}

func handlingTime(o scaling.Optional[time.Duration]) string {
	d, known := o.Get()
	switch {
	case !known:
		return "?"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return span(d.Round(time.Second))
}
