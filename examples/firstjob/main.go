// Firstjob is the worker of "Your first job" in the README. It ships orders; an order without a
// city fails until it is poison.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// Order is a job, as JSON on the queue.
type Order struct{ ID, City string }

func main() {
	// The default is the server that "millrace serve" starts on this machine.
	account := cmp.Or(os.Getenv("AZURE_STORAGE"), "UseDevelopmentStorage=true")
	if err := run(context.Background(), account); err != nil {
		fmt.Fprintln(os.Stderr, "firstjob:", err)
		os.Exit(1)
	}
}

// run handles orders until Ctrl-C.
func run(ctx context.Context, account string) error {
	orders, err := azurequeue.Open(account, "orders", nil)
	if err != nil {
		return err
	}
	// The server of this machine says when orders come. Azure does not, and the worker polls.
	wakeups, err := serverwakeup.New(account, nil)
	if err != nil {
		return err
	}
	defer func() { _ = wakeups.Close() }() // its error is always nil
	return millrace.Run(ctx, listener.New(orders, ship, &listener.Options[Order]{
		Create:  true, // creates the queue if it does not exist
		Wakeups: wakeups,
		// To see a poison message quickly. The defaults are five attempts, with 1 s, 16 s, 81 s
		// and 4 min between them.
		Poison:     listener.PoisonPolicy{MaxAttempts: 2},
		RetryDelay: func(int, error) time.Duration { return time.Second },
	}))
}

// ship handles one order. Its result decides the outcome: nil deletes the message, an error
// retries it.
func ship(_ context.Context, m *listener.Message[Order]) error {
	slog.Info("shipping", "order", m.Body.ID, "city", m.Body.City, "attempt", m.Attempt)
	if m.Body.City == "" {
		return fmt.Errorf("order %s has no city", m.Body.ID)
	}
	return nil
}
