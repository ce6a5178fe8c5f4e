package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/driver"
)

// accountVariable is the environment variable with the account's location.
const accountVariable = "AZURE_STORAGE"

const accountUsage = `where the queues are, a ` + "`location`" + `: a connection string,
https://ACCOUNT.queue.core.windows.net with or without a shared access signature,
UseDevelopmentStorage=true for the server on this machine, or @FILE for a file
with one of them (default: the environment variable ` + accountVariable + `,
or else the server on this machine)`

type accountFlag struct {
	given   string
	verbose bool
}

func (a *accountFlag) add(f *flag.FlagSet) {
	a.addAlone(f)
	f.BoolVar(&a.verbose, "v", false, verboseUsage)
}

// addAlone adds -account without -v.
func (a *accountFlag) addAlone(f *flag.FlagSet) {
	textVar(f, &a.given, "account", ": omit the flag for the server on this machine", accountUsage)
}

// location returns the account's location and which setting it comes from.
func (a *accountFlag) location(c *console) (location, source string, err error) {
	switch {
	case strings.HasPrefix(a.given, fromFile):
		location, err = azurestorage.ReadSecret(strings.TrimPrefix(a.given, fromFile))
		return location, "-account", err
	case a.given != "":
		return a.given, "-account", nil
	case strings.TrimSpace(c.getenv(accountVariable)) != "":
		return c.getenv(accountVariable), accountVariable, nil
	}
	return shortForm, "", nil
}

// open opens the account. It sends no request.
func (a *accountFlag) open(c *console) (*azurequeue.Account, error) {
	location, source, err := a.location(c)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", source, err)}
	}
	// Getting a token may involve several programs and services.
	account, err := azurequeue.OpenAccount(location, &azurequeue.Options{TryTimeout: 30 * time.Second})
	return account, locationError(source, err)
}

// locationError returns the error for an invalid location, or one of another queue, as a usage
// error.
func locationError(source string, err error) error {
	if known := (*queue.Error)(nil); errors.Is(err, queue.ErrInvalid) && errors.As(err, &known) {
		return usageError{fmt.Errorf("%s: %s; %s", source, known.Detail, known.Hint)}
	}
	return err
}

// task is a command that works on an account until it is done or interrupted.
type task struct {
	console *console
	account queue.Account
	source  string // setting that names the account; "" for the default
	verbose bool   // with -v

	// finish is the context of requests that change something: the first signal lets them finish,
	// so that their outcome is known. A second signal ends it.
	finish context.Context
}

// onAccount runs do on the account and handles signals.
func (c *console) onAccount(ctx context.Context, a *accountFlag, do func(ctx context.Context, t *task) error) error {
	account, err := a.open(c)
	if err != nil {
		return err
	}
	defer func() { _ = account.Close() }() // never fails
	_, source, _ := a.location(c)
	return c.work(ctx, &task{source: source, verbose: a.verbose}, func(ctx context.Context, t *task) error {
		t.account = retriedAccount{account, ctx}
		return do(ctx, t)
	})
}

// work runs the task and handles signals.
func (c *console) work(ctx context.Context, t *task, do func(ctx context.Context, t *task) error) error {
	finish, halt := context.WithCancel(ctx)
	defer halt()
	t.console, t.finish = c, finish
	return millrace.Run(ctx, &runner{task: t, halt: halt, do: do})
}

// onQueue is onAccount for one queue, whose name it validates first.
func (c *console) onQueue(ctx context.Context, a *accountFlag, name string, do func(ctx context.Context, t *task, q queue.Manager) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	return c.onAccount(ctx, a, func(ctx context.Context, t *task) error {
		q, err := t.account.Open(name)
		if err != nil {
			return locationError(t.source, err)
		}
		return do(ctx, t, q)
	})
}

// queueCommand returns a command about one queue, with the flags that name its account.
func queueCommand(name, does, more string, do func(ctx context.Context, t *task, q queue.Manager) error) *command {
	var account accountFlag
	f := newFlags(name)
	account.add(f)
	return &command{name: name, args: "QUEUE", does: does, flags: f, minArgs: 1, maxArgs: 1, more: more,
		run: func(ctx context.Context, c *console, args []string) error {
			return c.onQueue(ctx, &account, args[0], do)
		}}
}

// checkName refuses an invalid queue name, without repeating what looks like a location.
func checkName(name string) error {
	if isLocation(name) {
		return usageError{fmt.Errorf("%s is not a queue name", quote(name))}
	}
	if known := (*queue.Error)(nil); errors.As(driver.CheckName(name), &known) {
		return usageError{errors.New(known.Detail)}
	}
	return nil
}

// runner makes a task a millrace.Runner.
type runner struct {
	task *task
	halt context.CancelFunc
	do   func(ctx context.Context, t *task) error
}

// Run runs the task. An error after a signal is reported as an interruption.
func (r *runner) Run(ctx context.Context) error {
	err := r.do(ctx, r.task)
	switch {
	case err == nil || errors.As(err, new(interruption)):
		return err
	case r.task.finish.Err() != nil:
		return interruption{errors.New("interrupted; the request in progress may or may not have taken effect")}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return interruption{errors.New("interrupted")}
	}
	return r.task.explain(err)
}

// Halt ends the request in progress.
func (r *runner) Halt() { r.halt() }

// explainedError is an error in the terms of this command.
type explainedError struct {
	text string
	err  error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.err }

const verboseUsage = "if no login to Azure works, show the answer of each kind of login"

// explainLogin says that no token could be obtained. The causes, one for each kind of login, fill
// half a page: they are printed before the error, if they are asked for.
func (t *task) explainLogin(err error, denied *azurestorage.CredentialError) error {
	advice := azurestorage.LoginHint
	if denied.Transient() {
		advice = "the service that logs in did not answer: try again"
	}
	if !t.verbose {
		return &explainedError{"not logged in to Azure: " + advice + "; -v shows why each kind of login failed", err}
	}
	for line := range strings.Lines(denied.Error()) {
		if line = onOneLine(redact(line)); strings.Trim(line, "-") != "" {
			printf(t.console.err, "  %s\n", line)
		}
	}
	return &explainedError{"not logged in to Azure, see above: " + advice, err}
}

// explain returns an error that says what to do with this command.
func (t *task) explain(err error) error {
	if denied := (*azurestorage.CredentialError)(nil); errors.As(err, &denied) && !errors.As(err, new(*explainedError)) {
		return t.explainLogin(err, denied)
	}
	known := (*queue.Error)(nil)
	if errors.As(err, new(*explainedError)) || !errors.As(err, &known) {
		return err
	}
	switch {
	case errors.Is(known.Kind, queue.ErrQueueMissing) && strings.HasSuffix(known.Queue.Queue, poison.Suffix):
		return &explainedError{fmt.Sprintf("queue %v does not exist; a worker creates it for its first poison message", known.Queue), err}
	case errors.Is(known.Kind, queue.ErrQueueMissing):
		return &explainedError{fmt.Sprintf("queue %v does not exist; create it with millrace create %s, or list the queues with millrace queues", known.Queue, known.Queue.Queue), err}
	case errors.Is(known.Kind, queue.ErrQueueBeingDeleted):
		return &explainedError{fmt.Sprintf("queue %v is being deleted; its name is free again after half a minute or more", known.Queue), err}
	case errors.Is(known.Kind, queue.ErrUnavailable) && known.Status == 0 && t.source == "":
		again := *known
		again.Hint = "start the server on this machine with millrace serve, or give the location of the queues in -account or " + accountVariable + ""
		return &explainedError{withoutOp(&again), err}
	}
	return &explainedError{withoutOp(known), err}
}

// withoutOp returns the text of an error without the operation, which is usually the command's
// name.
func withoutOp(e *queue.Error) string { return strings.TrimPrefix(e.Error(), e.Op+" on ") }

// patience is how long a request is repeated. A person or a script is waiting.
const patience = 30 * time.Second

// retried repeats a request that may be repeated without harm, until it succeeds, or fails for a
// reason that waiting does not mend. An unreachable server is such a reason: somebody has to start
// it. After stop, the context of the first signal, no request is repeated.
func retried[T any](stop, ctx context.Context, key string, send func(context.Context) (T, error)) (result T, err error) {
	begin := time.Now()
	err = retry.Do(stop, key, func(err error) bool {
		return queue.Transient(err) && !unreachable(err) && time.Since(begin) < patience
	}, func(try context.Context) (err error) {
		result, err = send(retry.Repeated(ctx, retry.Repeats(try)))
		return err
	})
	if stop.Err() != nil && queue.Transient(err) && !errors.Is(err, queue.ErrOutcomeUnknown) {
		err = context.Cause(stop) // nothing has happened
	}
	return result, err
}

// unreachable reports whether the request did not reach a server.
func unreachable(err error) bool {
	known := (*queue.Error)(nil)
	return errors.Is(err, queue.ErrUnavailable) && errors.As(err, &known) && known.Status == 0
}

// retriedAccount repeats requests that may be repeated, for its queues too.
type retriedAccount struct {
	queue.Account
	stop context.Context
}

// List implements [queue.Account].
func (a retriedAccount) List(ctx context.Context, prefix, marker string, limit int) (page []queue.Listed, next string, err error) {
	page, err = retried(a.stop, ctx, a.Name(), func(ctx context.Context) (some []queue.Listed, err error) {
		some, next, err = a.Account.List(ctx, prefix, marker, limit)
		return some, err
	})
	return page, next, err
}

// Open implements [queue.Account].
func (a retriedAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	if err != nil {
		return nil, err
	}
	return retriedQueue{q, a.stop}, nil
}

// retriedQueue repeats requests that may be repeated. It leaves requests that take, settle, or put
// messages to the packages that send them, and so it does with SetMetadata: queuemetadata.Change reads
// the metadata again before it repeats a write.
type retriedQueue struct {
	queue.Manager
	stop context.Context
}

func (q retriedQueue) retried(ctx context.Context, send func(context.Context) error) error {
	_, err := retried(q.stop, ctx, q.Name().String(), func(ctx context.Context) (struct{}, error) { return struct{}{}, send(ctx) })
	return err
}

// Properties implements [queue.Queue].
func (q retriedQueue) Properties(ctx context.Context) (queue.Properties, error) {
	return retried(q.stop, ctx, q.Name().String(), q.Manager.Properties)
}

// Peek implements [queue.Queue].
func (q retriedQueue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	return retried(q.stop, ctx, q.Name().String(), func(ctx context.Context) ([]queue.Message, error) { return q.Manager.Peek(ctx, n) })
}

// Create implements [queue.Queue].
func (q retriedQueue) Create(ctx context.Context, metadata map[string]string) error {
	return q.retried(ctx, func(ctx context.Context) error { return q.Manager.Create(ctx, metadata) })
}

// Drop implements [queue.Manager]. If a response was lost, a later one may say that the queue is
// gone.
func (q retriedQueue) Drop(ctx context.Context) error {
	lost := false
	return q.retried(ctx, func(ctx context.Context) error {
		err := q.Manager.Drop(ctx)
		if lost && (errors.Is(err, queue.ErrQueueMissing) || errors.Is(err, queue.ErrQueueBeingDeleted)) {
			return nil
		}
		lost = lost || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
}

// Clear implements [queue.Manager]. It repeats only requests that the service refused: see
// [task.clear] about the others.
func (q retriedQueue) Clear(ctx context.Context) error {
	var unknown error
	err := q.retried(ctx, func(context.Context) error { // ctx knows how often it was sent
		err := q.Manager.Clear(ctx)
		if errors.Is(err, queue.ErrOutcomeUnknown) {
			unknown, err = err, nil
		}
		return err
	})
	if unknown != nil {
		return unknown
	}
	return err
}

// Sibling implements [queue.Queue].
func (q retriedQueue) Sibling(suffix string) queue.Queue {
	return retriedQueue{q.Manager.Sibling(suffix).(queue.Manager), q.stop} // as the siblings of every Manager are
}

// haltedQueue ends requests at the second signal that go on after the first, because they hold
// messages.
type haltedQueue struct {
	queue.Manager
	finish context.Context
}

func (t *task) untilHalted(q queue.Manager) queue.Manager { return &haltedQueue{q, t.finish} }

// halted sends a request whose context also ends at the second signal.
func halted[T any](ctx, finish context.Context, send func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(finish, cancel)()
	return send(ctx)
}

// Properties implements [queue.Queue].
func (q *haltedQueue) Properties(ctx context.Context) (queue.Properties, error) {
	return halted(ctx, q.finish, q.Manager.Properties)
}

// Enqueue implements [queue.Queue].
func (q *haltedQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	return halted(ctx, q.finish, func(ctx context.Context) (queue.Message, error) { return q.Manager.Enqueue(ctx, text, o) })
}

// Dequeue implements [queue.Queue].
func (q *haltedQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	return halted(ctx, q.finish, func(ctx context.Context) ([]queue.Message, error) { return q.Manager.Dequeue(ctx, n, visibility) })
}

// Update implements [queue.Queue].
func (q *haltedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	return halted(ctx, q.finish, func(ctx context.Context) (queue.Lease, error) { return q.Manager.Update(ctx, l, text, visibility) })
}

// Delete implements [queue.Queue].
func (q *haltedQueue) Delete(ctx context.Context, l queue.Lease) error {
	_, err := halted(ctx, q.finish, func(ctx context.Context) (struct{}, error) { return struct{}{}, q.Manager.Delete(ctx, l) })
	return err
}

// haltedAccount opens queues whose requests end at the second signal.
type haltedAccount struct {
	queue.Account
	task *task
}

// Open implements [queue.Account].
func (a haltedAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	if err != nil {
		return nil, err
	}
	return a.task.untilHalted(q), nil
}

// atATime is how many requests a command about several queues has in progress.
const atATime = 8

// inOrder calls do for each item, a few at a time, and yields the results in the order of the items,
// as early as that order allows. It returns when no call is in progress.
func inOrder[T, R any](items []T, do func(T) R) iter.Seq2[T, R] {
	return func(yield func(T, R) bool) {
		var calls sync.WaitGroup
		defer calls.Wait()
		results := make(chan chan R, atATime)
		start := func(item T) {
			result := make(chan R, 1)
			results <- result
			calls.Go(func() { result <- do(item) })
		}
		for _, item := range items[:min(len(items), atATime)] {
			start(item)
		}
		for i, item := range items {
			if !yield(item, <-<-results) {
				return
			}
			if next := i + atATime; next < len(items) {
				start(items[next])
			}
		}
	}
}
