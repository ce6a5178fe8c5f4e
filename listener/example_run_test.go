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

// When the context ends, nothing more is dequeued, and the handler that runs finishes. Run then
// returns nil.
func ExampleListener_Run() {
	ctx, stop := context.WithCancel(context.Background())
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if _, err := producer.New(q, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		log.Fatal(err)
	}
	l := listener.New(q, func(handling context.Context, m *listener.Message[Order]) error {
		stop()
		fmt.Println("shipping", m.Body.ID, "while the worker stops:", handling.Err())
		return nil
	}, nil)
	fmt.Println(l.Run(ctx))
	fmt.Println("succeeded:", l.State().Outcomes[listener.Deleted])
	// Output:
	// shipping 7 while the worker stops: <nil>
	// <nil>
	// succeeded: 1
}
