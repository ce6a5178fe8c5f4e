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

// A handler that ignores the end of its context is reported, so that somebody can mend it. Its
// lease ends, and another worker gets the job.
func ExampleStuckError() {
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
	reported := make(chan struct{})
	ship := func(context.Context, *listener.Message[Order]) error {
		<-reported // such as a call without a context
		stop()
		return nil
	}
	l := listener.New(q, ship, &listener.Options[Order]{
		Timeout: time.Millisecond,
		Lease:   listener.LeaseOptions{StuckAfter: time.Millisecond},
		OnError: func(err error) {
			if stuck, ok := errors.AsType[*listener.StuckError](err); ok {
				fmt.Println("stuck on", stuck.Queue.Queue)
				close(reported)
			}
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: stuck on orders
}
