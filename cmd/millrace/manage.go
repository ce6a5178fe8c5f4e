package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

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
