package listener_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type Order struct{ ID string }

// A listener passes every job to its handler and deletes the message when the handler returns
// nil. Here the only job also ends the run.
func ExampleListener() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
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
	if _, err := producer.New[Order](q, nil).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Println("shipping", m.Body.ID, "in attempt", m.Attempt)
		stop()
		return nil
	}
	l := listener.New(q, ship, nil)
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("succeeded:", l.State().Outcomes[listener.Deleted])
	// Output:
	// shipping 7 in attempt 1
	// succeeded: 1
}
