package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Half of all responses to an enqueue are lost. The producer sends again until the
// outcome is known, so that some messages are enqueued twice.
func Example_faultqueueLostResponses() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := engine.Queue(queue.Name{Account: "local", Queue: "orders"})
	if err := orders.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	q, err := faultqueue.New(orders, &faultqueue.Options{
		Seed:    1,
		Faults:  map[faultqueue.Op]faultqueue.Rates{faultqueue.Enqueue: {LostResponse: 0.5}},
		Latency: faultqueue.Range{Min: time.Microsecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 10 {
		for {
			_, err := q.Enqueue(ctx, fmt.Sprint("order ", i), nil)
			if err == nil {
				break
			}
			if !errors.Is(err, queue.ErrOutcomeUnknown) {
				fmt.Println(err)
				return
			}
		}
	}
	p, err := q.Properties(ctx)
	fmt.Println(p.Depth, "messages of 10 orders", err)
	// Output: 18 messages of 10 orders <nil>
}
