// Firstjob is the worker of the README's first job. It ships orders. A file named carrier-down, in
// the directory where it runs, makes every order fail.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// Order is a job. It is sent as JSON.
type Order struct{ ID string }

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
	// This machine's server tells the worker when orders arrive. Azure does not, so the worker polls.
	wakeups, err := serverwakeup.Open(account, nil)
	if err != nil {
		return err
	}
	defer func() { _ = wakeups.Close() }() // its error is always nil
	return millrace.Run(ctx, listener.New(orders, ship, &listener.Options[Order]{
		Create:  true, // creates the queue if it does not exist
		Wakeups: wakeups,
		// Give up quickly, for the demonstration. The defaults are five attempts, with 1 s, 16 s,
		// 81 s, and 4 min between them.
		Poison:     listener.PoisonPolicy{MaxAttempts: 2},
		RetryDelay: func(int, error) time.Duration { return time.Second },
	}))
}

// ship handles one order. If it returns nil, the message is deleted. If it returns an error, the
// message is retried.
func ship(_ context.Context, m *listener.Message[Order]) error {
	if _, err := os.Stat("carrier-down"); err == nil {
		return errors.New("the carrier is down")
	}
	slog.Info("shipped", "order", m.Body.ID, "attempt", m.Attempt)
	return nil
}
