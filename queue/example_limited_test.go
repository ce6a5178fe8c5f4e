package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
)

// A process keeps the queues of an account below 20,000 requests a second, and one of them below 2,000
// messages. A listener takes the wrapped queue like any other.
func Example_limitedAccount() {
	account, err := limits.NewProcess(&limits.ProcessOptions{Requests: 20_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	one, err := limits.NewProcess(&limits.ProcessOptions{Messages: 2000})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := account.Wrap(one.Wrap(engine.Queue(queue.Name{Account: "shop", Queue: "orders"})))
	fmt.Println(orders.Name())
	// Output: shop/orders
}

// Whoever calls Dequeue is told when to come again.
func Example_limitedDequeue() {
	ctx := context.Background()
	limit, err := limits.NewProcess(&limits.ProcessOptions{Requests: 1.0 / 3600})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := limit.Wrap(engine.Queue(queue.Name{Account: "shop", Queue: "orders"}))
	_ = orders.Create(ctx, nil) // this is the request of this hour

	_, err = orders.Dequeue(ctx, 1, time.Minute)
	if limited := (*queue.Error)(nil); errors.Is(err, queue.ErrLimited) && errors.As(err, &limited) {
		fmt.Println("come again in", limited.RetryAfter.Round(time.Minute))
	}
	// Output: come again in 1h0m0s
}
