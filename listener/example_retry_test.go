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

// The carrier says when to come back, which overrides the curve of Options.RetryDelay.
func ExampleRetry() {
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
		return listener.Retry(30*time.Second, errors.New("the carrier is busy"))
	}
	l := listener.New(q, ship, &listener.Options[Order]{
		OnError: func(err error) {
			if failed, ok := errors.AsType[*listener.DeliveryError](err); ok {
				fmt.Println(failed.Outcome, "in", failed.Delay, "because", failed.Err)
			}
			stop()
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: retried in 30s because the carrier is busy
}
