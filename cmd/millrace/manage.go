package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

func createCommand() *command {
	return queueCommand("create", "create a queue", "An existing queue is left unchanged, which is not an error.\n",
		func(_ context.Context, t *task, q queue.Manager) error {
			// The port does not say whether it created a queue, but the status of the response does.
			var response *http.Response
			err := q.Create(policy.WithCaptureResponse(t.finish, &response), nil)
			found := err == nil && response != nil && response.StatusCode == http.StatusNoContent
			if found || errors.Is(err, queue.ErrQueueExists) { // with other metadata, which it keeps
				return t.report(nil, "Queue %v already exists.\n", q.Name())
			}
			return t.report(err, "Created queue %v.\n", q.Name())
		})
}

func dropCommand() *command {
	const warning = "This permanently deletes the queue %v and its messages, about %d."
	return confirmedCommand("drop", "delete a queue with all its messages", "", warning,
		func(_ context.Context, t *task, q queue.Manager) error {
			return t.report(dropError(q.Drop(t.finish)), "Queue %v is deleted.\n", q.Name())
		})
}

func clearCommand() *command {
	const warning = "This permanently deletes all messages of the queue %v, about %d, also those that workers have leased."
	return confirmedCommand("clear", "delete all messages of a queue", " Messages that a worker has leased are deleted too.", warning,
		func(ctx context.Context, t *task, q queue.Manager) error {
			return t.report(t.clear(ctx, q), "Queue %v has no messages.\n", q.Name())
		})
}

// confirmedCommand returns a command that asks before a queue loses its messages. The warning has
// verbs for the queue and its depth.
func confirmedCommand(name, does, more, warning string, do func(context.Context, *task, queue.Manager) error) *command {
	var yes bool
	c := queueCommand(name, does, "You must type the queue's name to confirm."+more+"\n",
		func(ctx context.Context, t *task, q queue.Manager) error {
			if err := t.confirm(ctx, q, name, yes, warning); err != nil {
				return err
			}
			return do(ctx, t, q)
		})
	c.flags.BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}

// maxUnanswered is how many clears in a row may have no response.
const maxUnanswered = 3

// clear deletes all messages. On a long queue the service deletes what it can within one request,
// and the request must be repeated. A clear without a response is repeated too, with a longer
// time-out.
func (t *task) clear(ctx context.Context, q queue.Manager) error {
	for sent, unanswered := 0, 0; ; {
		err := q.Clear(retry.Repeated(t.finish, sent))
		sent++
		unanswered++
		known := (*queue.Error)(nil)
		switch {
		case !errors.Is(err, queue.ErrOutcomeUnknown) || t.finish.Err() != nil:
			return err
		case errors.As(err, &known) && known.Code == "OperationTimedOut":
			unanswered = 0
		case unanswered >= maxUnanswered:
			return err
		}
		if ctx.Err() != nil {
			return interruption{errors.New("interrupted; some messages are deleted")}
		}
	}
}

// dropError returns the error of a drop without the hint to create the queue.
func dropError(err error) error {
	if known := (*queue.Error)(nil); errors.Is(err, queue.ErrQueueMissing) && errors.As(err, &known) {
		return &explainedError{fmt.Sprintf("queue %v does not exist", known.Queue), err}
	}
	return err
}

// report prints that something was done, unless err is set.
func (t *task) report(err error, format string, args ...any) error {
	if err == nil {
		_, err = fmt.Fprintf(t.console.out, format, args...)
	}
	return err
}

// confirm asks before a queue loses its messages. Without a terminal -yes is required.
func (t *task) confirm(ctx context.Context, q queue.Manager, op string, yes bool, warning string) error {
	if yes {
		return nil
	}
	if !t.console.interactive {
		return usageError{fmt.Errorf("cannot ask for confirmation, because the standard input is not a terminal: use -yes to %s %v", op, q.Name())}
	}
	return t.ask(ctx, q, warning, "nothing was deleted")
}

// ask asks for the name of a queue to be typed. An error ends with undone.
func (t *task) ask(ctx context.Context, q queue.Manager, warning, undone string) error {
	p, err := q.Properties(ctx)
	if err != nil {
		return dropError(err)
	}
	names := []string{q.Name().Queue}
	if p, ok := q.(poisonQueue); ok { // either name chose it
		names = append(names, p.source.Name().Queue)
	}
	printf(t.console.err, warning+"\n", q.Name(), p.Depth)
	return t.askToType(ctx, undone, names...)
}

func (t *task) askToType(ctx context.Context, undone string, names ...string) error {
	c := t.console
	either := strings.Join(names, " or ")
	printf(c.err, "Type %s to continue: ", either)
	for line, err := range lines(ctx, c.in) {
		switch {
		case ctx.Err() != nil:
			printf(c.err, "\n")
			return interruption{errors.New("interrupted; " + undone)}
		case err != nil:
			return fmt.Errorf("the name could not be read: %w; %s", err, undone)
		case slices.Contains(names, line):
			return nil
		}
		return fmt.Errorf("that is not %s; %s", either, undone)
	}
	printf(c.err, "\n")
	return errors.New("no name was typed; " + undone)
}

const pauseMore = `It sets «paused» in the metadata of the queue, to the time. Workers of Millrace read that while they
are busy, and stop taking messages within about a minute. They finish the messages that they have. A
worker that is idle, or that starts, may take one batch first. Producers go on sending. A worker that
may not read the metadata goes on too, and says so in its log.

Metadata can only be replaced as a whole. What another program changes in them in the same moment may
be lost; if the pause is lost, it is set again.
`

const resumeMore = `It removes «paused» from the metadata of the queue. Workers take messages again within about a
minute.
`

func pauseCommand() *command {
	return queuesChange("pause", "stop the workers of queues", pauseMore, "paused",
		func(ctx context.Context, q queue.Manager) (string, error) {
			var since queuemetadata.Pause
			now := time.Now()
			_, err := queuemetadata.Change(ctx, q, changeKey(), func(metadata map[string]string) bool {
				changed := queuemetadata.SetPaused(metadata, now)
				since, _ = queuemetadata.Paused(metadata)
				return changed
			})
			return fmt.Sprintf("Queue %v is paused: %s.", q.Name(), onOneLine(describePause(since, now))), err
		})
}

func resumeCommand() *command {
	return queuesChange("resume", "let the workers of paused queues continue", resumeMore, "resumed",
		func(ctx context.Context, q queue.Manager) (string, error) {
			_, err := queuemetadata.Change(ctx, q, changeKey(), queuemetadata.RemovePaused)
			return fmt.Sprintf("Queue %v is not paused.", q.Name()), err
		})
}

// queuesChange returns a command that changes several queues. The change returns a line that says so.
func queuesChange(name, does, more, done string, change func(context.Context, queue.Manager) (string, error)) *command {
	var (
		account accountFlag
		prefix  string
	)
	f := newFlags(name)
	account.add(f)
	f.Func("prefix", "also all queues with this `prefix` in their names, including poison queues", func(given string) error {
		if given == "" {
			return errors.New("must not be empty: it would choose all queues")
		}
		prefix = given
		return checkPrefix(given)
	})
	return &command{name: name, args: "QUEUE…", does: does, flags: f, maxArgs: -1, more: more + severalMore,
		run: func(ctx context.Context, c *console, names []string) error {
			if len(names) == 0 && prefix == "" {
				return usageError{fmt.Errorf("missing argument: write millrace %s QUEUE…, or -prefix with the beginning of their names", name)}
			}
			for _, one := range names {
				if err := checkName(one); err != nil {
					return err
				}
			}
			return c.onAccount(ctx, &account, func(ctx context.Context, t *task) error {
				all, err := t.withPrefix(ctx, names, prefix)
				if err != nil {
					return err
				}
				return t.changeAll(ctx, all, done, change)
			})
		}}
}

const severalMore = `
If one of several queues fails, the others are still changed.
`

// withPrefix returns the names and all names of queues with the prefix, each once.
func (t *task) withPrefix(ctx context.Context, names []string, prefix string) ([]string, error) {
	var all []string
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, name := range names {
		add(name)
	}
	if prefix == "" {
		return all, nil
	}
	for q, err := range queue.ListAll(ctx, t.account, prefix) {
		if err != nil {
			return nil, err
		}
		add(q.Name)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no queue of account %s has a name that begins with %q: millrace queues lists them", t.account.Name(), prefix)
	}
	return all, nil
}

// changeAll changes queues, a few at a time, and prints a line for each.
func (t *task) changeAll(ctx context.Context, names []string, done string, change func(context.Context, queue.Manager) (string, error)) error {
	type outcome struct {
		line string
		err  error
	}
	changed := 0
	for name, one := range inOrder(names, func(name string) outcome {
		if ctx.Err() != nil {
			return outcome{err: context.Cause(ctx)}
		}
		q, err := t.account.Open(name)
		if err != nil {
			return outcome{err: locationError(t.source, err)}
		}
		line, err := change(t.finish, q)
		return outcome{line, err}
	}) {
		switch {
		case one.err == nil:
			changed++
			if err := t.report(nil, "%s\n", one.line); err != nil {
				return err
			}
		case len(names) == 1:
			return one.err
		case ctx.Err() == nil:
			printf(t.console.err, "%s: %s\n", name, redact(onOneLine(t.explain(one.err).Error())))
		}
	}
	switch {
	case changed == len(names):
		return nil
	case ctx.Err() != nil:
		return interruption{fmt.Errorf("interrupted; %d of %s %s", changed, plural(len(names), "queue"), done)}
	}
	return fmt.Errorf("%d of %s could not be %s, see above", len(names)-changed, plural(len(names), "queue"), done)
}

// changeKey spreads the waits of this process.
func changeKey() string { return strconv.FormatUint(rand.Uint64(), 16) }

// describePause says for people since when a queue is paused. If the value that pauses it is not a
// time, it returns that value.
func describePause(p queuemetadata.Pause, now time.Time) string {
	if p.Since.IsZero() {
		return p.Value
	}
	return "since " + p.Value + ", " + age(now.Sub(p.Since)) + " ago"
}

// pauseFields are the fields of queues and stat about a pause, in JSON.
type pauseFields struct {
	Paused      bool       `json:"paused"`
	PausedSince *time.Time `json:"pausedSince"` // nil if it is not paused, or by a value that is not a time
}

func pauseFieldsOf(metadata map[string]string) pauseFields {
	p, paused := queuemetadata.Paused(metadata)
	if p.Since.IsZero() {
		return pauseFields{paused, nil}
	}
	return pauseFields{paused, &p.Since}
}
