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

// A job that nobody needs any more is deleted without having been handled, and counted as such.
func ExampleDiscard() {
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
		return listener.Discard(errors.New("the order was cancelled"))
	}
	l := listener.New(q, ship, nil)
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	left, err := q.Properties(context.Background())
	fmt.Println("discarded:", l.State().Outcomes[listener.Discarded], "left:", left.Depth, err)
	// Output: discarded: 1 left: 0 <nil>
}
