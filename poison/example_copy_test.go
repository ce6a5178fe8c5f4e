package poison_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A program without a listener moves a message in the same order: the copy first, and only when
// it is durable the original.
func ExamplePolicy_Copy() {
	ctx := context.Background()
	q := localqueue.New(nil).Queue(queue.Name{Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := q.Enqueue(ctx, "order 7", nil); err != nil {
		log.Fatal(err)
	}
	batch, err := q.Dequeue(ctx, 1, time.Minute)
	if err != nil || len(batch) != 1 {
		log.Fatal(batch, err)
	}
	m := batch[0]
	policy, err := poison.Policy{}.WithDefaults(q)
	if err != nil {
		log.Fatal(err)
	}
	if err := policy.Copy(ctx, poison.NewRecord(q.Name(), m, 1, poison.ReasonRejected, errors.New("no such address"))); err != nil {
		log.Fatal(err)
	}
	fmt.Println("moved to", policy.Queue.Name().Queue, q.Delete(ctx, m.Lease))
	// Output: moved to orders-poison <nil>
}
