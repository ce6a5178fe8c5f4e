package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Several jobs are sent at a time. One that cannot be sent stops no other, and the
// results say which it was.
func ExampleProducer_SendAllSeq() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	type Order struct{ ID, Note string }
	orders := []Order{{ID: "7"}, {ID: "8", Note: strings.Repeat("long ", 20_000)}, {ID: "9"}}

	results, err := producer.New[Order](q, nil).SendAll(ctx, orders, &producer.SendAllOptions[Order]{
		// An id of one's own: what is sent again after a crash is recognisable.
		Options: func(_ int, one Order) producer.SendOptions { return producer.SendOptions{JobID: "order-" + one.ID} },
	})
	fmt.Println("all accepted:", err == nil)
	for _, r := range results {
		switch {
		case r.Err == nil:
			fmt.Println(orders[r.Index].ID, "accepted as", r.Sent.JobID)
		case errors.Is(r.Err, queue.ErrTooLarge):
			fmt.Println(orders[r.Index].ID, "is too large")
		}
	}
	// Output:
	// all accepted: false
	// 7 accepted as order-7
	// 8 is too large
	// 9 accepted as order-9
}
