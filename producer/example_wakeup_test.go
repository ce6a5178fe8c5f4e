package producer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup"
)

// A bus tells subscribers in the same process of each job. Workers are such subscribers: give
// listener.Options the same bus.
func ExampleOptions_wakeups() {
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
	bus := new(wakeup.Bus)
	subscription, err := bus.Subscribe(q.Name(), func(q queue.Name, _ int64, _ time.Time) {
		fmt.Println("work has come to", q)
	}, func(bool) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscription.Close()

	type Order struct{ ID string }
	orders := producer.New(q, &producer.Options[Order]{
		Wakeups:       bus,
		OnWakeupError: func(err error) { fmt.Println(err) }, // the job is on the queue all the same
	})
	if _, err := orders.Send(ctx, Order{"7"}, nil); err != nil {
		fmt.Println(err)
	}
	// Output: work has come to acme/orders
}
