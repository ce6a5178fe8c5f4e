package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A worker dies with a message in its hands: whatever it still tries does not reach the queue,
// and the trace has what it did.
func Example_faultqueueKill() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	orders := engine.Queue(queue.Name{Account: "local", Queue: "orders"})
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Enqueue(ctx, "order 7", nil); err != nil {
		log.Fatal(err)
	}
	worker, err := faultqueue.New(orders, &faultqueue.Options{Record: true})
	if err != nil {
		log.Fatal(err)
	}
	batch, err := worker.Dequeue(ctx, 1, time.Minute)
	if err != nil || len(batch) != 1 {
		log.Fatal(batch, err)
	}
	worker.Kill()
	err = worker.Delete(ctx, batch[0].Lease)
	fmt.Println("dead:", errors.Is(err, faultqueue.ErrDead))
	left, err := orders.Properties(ctx)
	fmt.Println("left:", left.Depth, err)
	for _, call := range worker.Trace() {
		fmt.Printf("%s %q\n", call.Op, call.Fault)
	}
	// Output:
	// dead: true
	// left: 1 <nil>
	// dequeue ""
	// delete "death"
}
