package dedupe_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A job that is in the queue twice is handled once by this process.
func Example() {
	type invoice struct{ Number int }
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	invoices := engine.Queue(queue.Name{Account: "example", Queue: "invoices"})

	p := producer.New(invoices, &producer.Options[invoice]{Create: true})
	for range 2 { // the user has clicked twice
		if _, err := p.Send(ctx, invoice{7}, &producer.SendOptions{DedupeKey: "invoice 7"}); err != nil {
			fmt.Println(err)
			return
		}
	}

	guard, err := dedupe.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	printInvoice := func(_ context.Context, m *listener.Message[invoice]) error {
		fmt.Println("printing", m.Body.Number)
		return nil
	}
	o := &listener.Options[invoice]{Duplicates: guard, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)}
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		if outcome == listener.Duplicate {
			stop()
		}
	}
	l := listener.New(invoices, printInvoice, o)
	err = l.Run(ctx)
	fmt.Println("duplicates:", l.State().Outcomes[listener.Duplicate], err)
	// Output:
	// printing 7
	// duplicates: 1 <nil>
}

// Two processes share a store, which would be that of package azureblob. A duplicate that comes to the
// second one is deleted.
func ExampleNewShared() {
	type invoice struct{ Number int }
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	invoices := engine.Queue(queue.Name{Account: "example", Queue: "invoices"})
	store := blob.Memory()

	process := func(name string) {
		ctx, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		guard, err := dedupe.NewShared(store, "handled-jobs", &dedupe.Options{Retention: 7 * 24 * time.Hour})
		if err != nil {
			fmt.Println(err)
			return
		}
		printInvoice := func(_ context.Context, m *listener.Message[invoice]) error {
			fmt.Println(name, "prints", m.Body.Number)
			return nil
		}
		o := &listener.Options[invoice]{Duplicates: guard, Logger: slog.New(slog.DiscardHandler)}
		o.Observer.Settled = func(listener.Delivery, listener.Outcome, time.Duration) { stop() }
		l := listener.New(invoices, printInvoice, o)
		err = l.Run(ctx)
		fmt.Println(name, "had", l.State().Outcomes[listener.Duplicate], "duplicates", err)
	}
	p := producer.New(invoices, &producer.Options[invoice]{Create: true})
	for _, name := range []string{"the first", "the second"} {
		if _, err := p.Send(ctx, invoice{7}, &producer.SendOptions{JobID: "invoice 7"}); err != nil {
			fmt.Println(err)
			return
		}
		process(name)
	}
	// Output:
	// the first prints 7
	// the first had 0 duplicates <nil>
	// the second had 1 duplicates <nil>
}

// A program that keeps the store clean, once a day.
func ExampleGuard_Sweep() {
	guard, err := dedupe.NewShared(blob.Memory(), "handled-jobs", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	removed, err := guard.Sweep(context.Background())
	fmt.Println(removed, "keys", err)
	// Output: 0 keys <nil>
}
