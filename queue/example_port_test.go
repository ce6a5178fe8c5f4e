package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// The life of a message by the port's own verbs, which listener and producer use for you. A
// lease is a fencing token: what was given back cannot be deleted with the old one.
func ExampleQueue() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var q queue.Queue = engine.Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := q.Enqueue(ctx, "order 7", nil); err != nil {
		fmt.Println(err)
		return
	}
	batch, err := q.Dequeue(ctx, queue.MaxBatch, 30*time.Second)
	if err != nil || len(batch) != 1 {
		fmt.Println(batch, err)
		return
	}
	m := batch[0]
	lease, err := q.Update(ctx, m.Lease, m.Text, time.Minute) // ours for another minute
	fmt.Println(m.Text, "delivery", m.DequeueCount, err)
	err = q.Delete(ctx, m.Lease)
	fmt.Println("the old lease:", errors.Is(err, queue.ErrReceiptMismatch), errors.Is(err, queue.ErrLeaseLost))
	fmt.Println("the new one:", q.Delete(ctx, lease))
	// Output:
	// order 7 delivery 1 <nil>
	// the old lease: true true
	// the new one: <nil>
}

// All queues of an account whose names begin alike.
func ExampleListAll() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	account := engine.Account("acme")
	for _, name := range []string{"orders", "orders-poison", "emails"} {
		q, err := account.Open(name)
		if err == nil {
			err = q.Create(ctx, nil)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for listed, err := range queue.ListAll(ctx, account, "orders") {
		fmt.Println(listed.Name, err)
	}
	// Output:
	// orders <nil>
	// orders-poison <nil>
}

// An error says what was attempted on which queue, and matches the same sentinels with every backend.
func ExampleError() {
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "acme", Queue: "orders"})
	_, err = q.Enqueue(context.Background(), "order 7", nil)
	failed := (*queue.Error)(nil)
	fmt.Println(errors.Is(err, queue.ErrQueueMissing), errors.As(err, &failed) && failed.Op == "enqueue")
	// Output: true true
}
