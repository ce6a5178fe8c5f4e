package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
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
func (a *accountFlag) addAlone(f *flag.FlagSet) { f.Func("account", accountUsage, a.set) }

// set does not validate the location, because the flag package quotes an invalid value in its
// error.
func (a *accountFlag) set(given string) error {
	if strings.TrimSpace(given) == "" {
		return errors.New("must not be empty: omit the flag for the server on this machine")
	}
	a.given = given
	return nil
}

// location returns the account's location and which setting it comes from.
func (a *accountFlag) location(c *console) (location, source string, err error) {
	switch {
	case strings.HasPrefix(a.given, fromFile):
		location, err = readSecret(strings.TrimPrefix(a.given, fromFile))
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
	finish, halt := context.WithCancel(ctx)
	defer halt()
	_, source, _ := a.location(c)
	t := &task{console: c, source: source, verbose: a.verbose, finish: finish}
	return millrace.Run(ctx, &runner{task: t, halt: halt, do: func(ctx context.Context, t *task) error {
		t.account = retriedAccount{account, ctx}
		return do(ctx, t)
	}})
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
	if known := (*queue.Error)(nil); errors.As(queue.CheckName(name), &known) {
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
