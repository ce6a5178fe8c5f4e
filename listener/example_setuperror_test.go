package listener_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Options that cannot do what they say together are reported when it shows: here batches of ten
// never fill, because two handlers run at once.
func ExampleSetupError() {
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
	insert := func(context.Context, []*listener.Message[Order]) []error {
		stop()
		return nil
	}
	l := listener.New(q, listener.Batch(insert, 10, time.Millisecond), &listener.Options[Order]{
		Concurrency: 2,
		OnError: func(err error) {
			if wrong, ok := errors.AsType[*listener.SetupError](err); ok {
				fmt.Println(wrong)
			}
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: worker of orders: batches of 10 never fill with a Concurrency of 2, and wait 1ms each: raise Concurrency to a multiple of 10, or lower the size
}
