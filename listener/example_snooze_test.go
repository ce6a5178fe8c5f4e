package listener_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A job that comes too early is snoozed. No attempt is recorded, so it may be snoozed as often as
// it takes.
func ExampleSnooze() {
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
	paid := func(m *listener.Message[Order]) bool { return m.DequeueCount == 10 }
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		if !paid(m) {
			return listener.Snooze(0) // more often a minute
		}
		fmt.Println("shipping", m.Body.ID, "in attempt", m.Attempt)
		stop()
		return nil
	}
	l := listener.New(q, ship, nil)
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("snoozed:", l.State().Outcomes[listener.Snoozed])
	// Output:
	// shipping 7 in attempt 1
	// snoozed: 9
}
