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

// A hook that panics is reported, and the job is handled nevertheless.
func ExampleHookError() {
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
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Println("shipping", m.Body.ID)
		stop()
		return nil
	}
	var seen map[queue.ID]bool // somebody forgot to make it
	l := listener.New(q, ship, &listener.Options[Order]{
		Observer: listener.Observer{Started: func(d listener.Delivery) { seen[d.ID] = true }},
		OnError: func(err error) {
			if broken, ok := errors.AsType[*listener.HookError](err); ok {
				fmt.Printf("%s: %v\n", broken.Hook, broken.Value)
			}
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Observer.Started: assignment to entry in nil map
	// shipping 7
}
