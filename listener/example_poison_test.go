package listener_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A job that no attempt can help goes to the poison queue at once, with the reason.
func ExamplePoison() {
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
	ship := func(context.Context, *listener.Message[Order]) error {
		stop()
		return listener.Poison(errors.New("no such address"))
	}
	if err := listener.New(q, ship, nil).Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	copies, err := q.Sibling(poison.Suffix).Peek(context.Background(), 1)
	if err != nil || len(copies) != 1 {
		fmt.Println(copies, err)
		return
	}
	record, err := poison.ParseRecord(copies[0].Text)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s: %s\n", record.Queue, record.Reason, record.Error)
	// Output: orders: rejected: no such address
}
