package poison_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Orders failed because there was no stock, and one because it was nonsense. There is stock again:
// the former go back to their queue, where they start anew, and the latter is deleted.
func ExampleRedrive() {
	ctx := context.Background()
	account := localqueue.New(nil).Account("acme")
	orders, err1 := account.Open("orders")
	dead, err2 := account.Open("orders-poison")
	if err := errors.Join(err1, err2, orders.Create(ctx, nil), dead.Create(ctx, nil)); err != nil {
		log.Fatal(err)
	}
	for n, cause := range []string{"no stock for order 0", "no stock for order 1", "order 2 is nonsense"} {
		m := queue.Message{Text: fmt.Sprintf("millrace/1?id=order-%d&n=5\n{}", n), DequeueCount: 5}
		r := poison.NewRecord(orders.Name(), m, 5, poison.ReasonAttempts, errors.New(cause))
		if err := (poison.Policy{Queue: dead}).Copy(ctx, r); err != nil {
			log.Fatal(err)
		}
	}
	report, err := poison.Redrive(ctx, dead, &poison.RedriveOptions{
		Account: account,
		Filter:  poison.Filter{Fingerprint: "no stock for order 1"}, // numbers do not matter
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("redriven:", report.Redriven, "of", report.Seen)
	for e, err := range poison.List(ctx, dead, nil) {
		fmt.Println("left:", e.Record.Error, err)
	}
	purged, err := poison.Purge(ctx, dead, &poison.PurgeOptions{Filter: poison.Filter{Match: "nonsense"}})
	fmt.Println("purged:", purged.Purged, err)
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
