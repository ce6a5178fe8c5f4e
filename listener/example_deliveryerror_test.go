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

// OnError gets every error with a type that says what it is of. A panic is an error like another,
// and has its stack. This is the only attempt that the policy allows.
func ExampleDeliveryError() {
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
	ship := func(context.Context, *listener.Message[Order]) error { panic("no van") }
	l := listener.New(q, ship, &listener.Options[Order]{
		Poison: listener.PoisonPolicy{MaxAttempts: 1},
		OnError: func(err error) {
			if failed, ok := errors.AsType[*listener.DeliveryError](err); ok {
				fmt.Println(failed.Queue.Queue, failed.Outcome, failed.Reason)
			}
			if panicked, ok := errors.AsType[*listener.PanicError](err); ok {
				fmt.Println("panic:", panicked.Value, len(panicked.Stack) > 0)
			}
			stop()
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// orders poisoned attempts
	// panic: no van true
}
