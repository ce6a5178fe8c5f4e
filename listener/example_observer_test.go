package listener_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// An observer is called at each step of a delivery, for metrics and traces. Functions that are
// not set are not called.
func ExampleObserver() {
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
	ship := func(context.Context, *listener.Message[Order]) error { return nil }
	l := listener.New(q, ship, &listener.Options[Order]{
		Observer: listener.Observer{
			Started: func(d listener.Delivery) { fmt.Println("started, attempt", d.Attempt) },
			Finished: func(_ listener.Delivery, took time.Duration, err error) {
				fmt.Println("finished:", took > 0, err)
			},
			Settled: func(_ listener.Delivery, o listener.Outcome, _ time.Duration) {
				fmt.Println("settled:", o)
				stop()
			},
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// started, attempt 1
	// finished: true <nil>
	// settled: deleted
}
