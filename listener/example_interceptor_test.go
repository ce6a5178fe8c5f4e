package listener_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// An interceptor stands around the handlers of all listeners, whatever their jobs are. ResultOf
// tells it what a handler's error asks for; code below the handler finds the delivery in the
// context.
func ExampleInterceptor() {
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
	audit := func(ctx context.Context, d listener.Delivery, next func(context.Context) error) error {
		err := next(ctx)
		fmt.Printf("%s: attempt %d of %d: %v\n", d.Queue.Queue, d.Attempt, d.MaxAttempts, listener.ResultOf(err).Outcome)
		return err
	}
	charge := func(ctx context.Context) { // knows neither message nor listener
		d, ok := listener.DeliveryFrom(ctx)
		fmt.Println("charging, once for each job id:", ok && d.Job != "")
	}
	ship := func(ctx context.Context, m *listener.Message[Order]) error {
		if m.DequeueCount == 1 {
			return listener.Snooze(0)
		}
		charge(ctx)
		stop()
		return nil
	}
	l := listener.New(q, ship, &listener.Options[Order]{Interceptors: []listener.Interceptor{audit}})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// orders: attempt 1 of 5: snoozed
	// charging, once for each job id: true
	// orders: attempt 1 of 5: deleted
}
