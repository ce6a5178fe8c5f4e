// Firstjob is the worker of "Your first job" in the README: it ships orders, and one that
// has no city fails until it is poison.
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
)

// Order is a job, as JSON on the queue.
type Order struct{ ID, City string }

func main() {
	// The server that "millrace serve" starts on this machine, unless it is said otherwise.
	account := cmp.Or(os.Getenv("AZURE_STORAGE"), "UseDevelopmentStorage=true")
	if err := run(context.Background(), account); err != nil {
		fmt.Fprintln(os.Stderr, "firstjob:", err)
		os.Exit(1)
	}
}

// run takes orders until Ctrl-C.
func run(ctx context.Context, account string) error {
	orders, err := azurequeue.Open(account, "orders", nil)
	if err != nil {
		return err
	}
	return millrace.Run(ctx, listener.New(orders, ship, &listener.Options[Order]{
		Create: true, // the queue, if it is not there
		// For trying things out. The defaults are five attempts, and 1 s, 16 s, 81 s and 4 min
		// between them.
		Poison:     listener.PoisonPolicy{MaxAttempts: 2},
		RetryDelay: func(int, error) time.Duration { return time.Second },
	}))
}

// ship handles one order. What it returns decides what becomes of the message.
func ship(_ context.Context, m *listener.Message[Order]) error {
	slog.Info("shipping", "order", m.Body.ID, "city", m.Body.City, "attempt", m.Attempt)
	if m.Body.City == "" {
		return fmt.Errorf("order %s has no city", m.Body.ID)
	}
	return nil
}
