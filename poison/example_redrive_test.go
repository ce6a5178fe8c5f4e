package poison_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Orders failed because there was no stock, and one because it was nonsense. There is stock again:
// the former go back to their queue, where they start anew, and the latter is deleted.
func ExampleRedrive() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	orders := engine.Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	fail(ctx, orders, "no stock for order 0", "no stock for order 1", "order 2 is nonsense")

	report, err := poison.Redrive(ctx, orders, &poison.Options{
		Filter: poison.Filter{Fingerprint: "no stock for order 1"}, // numbers do not matter
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("redriven:", report.Done, "of", report.Seen)
	for record, err := range poison.List(ctx, orders, nil) {
		fmt.Println("left:", record.Error, err)
	}
	purged, err := poison.Purge(ctx, orders, &poison.Options{Filter: poison.Filter{Match: "nonsense"}})
	fmt.Println("purged:", purged.Done, err)
	back, err := orders.Peek(ctx, queue.MaxBatch)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range back {
		fmt.Printf("%q\n", m.Text)
	}
	// Output:
	// redriven: 2 of 3
	// left: order 2 is nonsense <nil>
	// purged: 1 <nil>
	// "millrace/1?id=order-0\n{}"
	// "millrace/1?id=order-1\n{}"
}

// fail runs jobs that fail with these errors, once.
func fail(ctx context.Context, orders queue.Queue, causes ...string) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for n := range causes {
		if _, err := orders.Enqueue(ctx, fmt.Sprintf("millrace/1?id=order-%d\n{}", n), nil); err != nil {
			fmt.Println(err)
		}
	}
	failed := 0
	handle := func(context.Context, *listener.Message[struct{}]) error {
		cause := errors.New(causes[failed])
		if failed++; failed == len(causes) {
			stop()
		}
		return listener.Poison(cause)
	}
	o := &listener.Options[struct{}]{Concurrency: 1, Logger: slog.New(slog.DiscardHandler)}
	if err := listener.New(orders, handle, o).Run(ctx); err != nil {
		fmt.Println(err)
	}
}
