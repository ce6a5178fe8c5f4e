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

// Jobs are packed into messages, which saves requests. Each job has its own result.
func ExampleProducer_SendAll_packed() {
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
	orders := make([]Order, 1000)
	for i := range orders {
		orders[i].ID = fmt.Sprint(i)
	}
	orders[7].Note = strings.Repeat("long ", 20_000)

	results, err := producer.New[Order](q, nil).SendAll(ctx, orders, &producer.SendAllOptions[Order]{PerMessage: 250})
	fmt.Println("all accepted:", err == nil)
	messages := map[string]int{} // jobs by the id of their message
	for _, r := range results {
		switch {
		case r.Err == nil:
			messages[string(r.Sent.ID)]++
		case errors.Is(r.Err, queue.ErrTooLarge):
			fmt.Println("order", orders[r.Index].ID, "is too large")
		}
	}
	fmt.Println(len(messages), "messages")
	last := results[999]
	fmt.Printf("order 999 is item %d of %d\n", last.Item, last.Items)
	// Output:
	// all accepted: false
	// order 7 is too large
	// 5 messages
	// order 999 is item 241 of 242
}
