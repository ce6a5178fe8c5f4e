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

// A batch is one call for several jobs, here as many as there are. Each job has a result of its
// own: one of them is poison, the others are deleted.
func ExampleBatch() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	p := producer.New(q, &producer.Options[Order]{Create: true})
	for _, id := range []string{"7", "", "9"} {
		if _, err := p.Send(ctx, Order{ID: id}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	insert := func(_ context.Context, ms []*listener.Message[Order]) []error {
		defer stop()
		fmt.Println("inserting", len(ms), "orders")
		results := make([]error, len(ms))
		for i, m := range ms {
			if m.Body.ID == "" {
				results[i] = listener.Poison(errors.New("an order without an id"))
			}
		}
		return results
	}
	l := listener.New(q, listener.Batch(insert, 3, time.Second), nil)
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("succeeded:", l.State().Outcomes[listener.Deleted], "poison:", l.State().Outcomes[listener.Poisoned])
	// Output:
	// inserting 3 orders
	// succeeded: 2 poison: 1
}
