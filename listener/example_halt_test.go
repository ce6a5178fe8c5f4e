package listener_test

import (
	"context"
	"fmt"
	"log"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Halt does not wait for handlers: their contexts end, and their messages are given back for
// another worker.
func ExampleListener_Halt() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if _, err := producer.New(q, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		log.Fatal(err)
	}
	started := make(chan struct{})
	l := listener.New(q, func(ctx context.Context, _ *listener.Message[Order]) error {
		close(started)
		<-ctx.Done() // a handler that takes long
		return context.Cause(ctx)
	}, nil)
	go func() {
		<-started
		l.Halt()
	}()
	fmt.Println(l.Run(ctx))
	left, err := q.Peek(ctx, 32)
	fmt.Println("given back:", len(left), err)
	// Output:
	// <nil>
	// given back: 1 <nil>
}
