package listener_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// All runs several handlers for each job. When one fails, all of them run again, so each must be
// idempotent: the invoice of an order is written once.
func ExampleAll() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if _, err := producer.New(q, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	invoices := make(map[string]bool)
	invoice := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Println("invoice", m.Body.ID, "is there:", invoices[m.Body.ID])
		invoices[m.Body.ID] = true
		return nil
	}
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		if m.Attempt == 1 {
			return listener.Retry(0, errors.New("no van"))
		}
		fmt.Println("shipping", m.Body.ID)
		stop()
		return nil
	}
	if err := listener.New(q, listener.All(invoice, ship), nil).Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// invoice 7 is there: false
	// invoice 7 is there: true
	// shipping 7
}
