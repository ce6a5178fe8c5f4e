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

// The threshold is a property of the queue: whoever runs it sets it once, for all workers, also
// while they run.
func ExampleMetadata() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if err := q.Create(ctx, map[string]string{"poisonthreshold": "2", "defaulttimeout": "120"}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := producer.New[Order](q, nil).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}

	ship := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Printf("attempt %d of %d\n", m.Attempt, m.MaxAttempts)
		return listener.Retry(0, errors.New("no such address"))
	}
	l := listener.New(q, ship, &listener.Options[Order]{
		Metadata: listener.ReadMetadata,
		Observer: listener.Observer{Poisoned: func(_ listener.Delivery, reason listener.PoisonReason, _ error) {
			fmt.Println("moved to the poison queue:", reason)
			stop()
		}},
	})
	fmt.Println(l.Run(ctx))
	fmt.Println("messages are hidden for", l.State().Visibility)
	// Output:
	// attempt 1 of 2
	// attempt 2 of 2
	// moved to the poison queue: attempts
	// <nil>
	// messages are hidden for 2m0s
}
