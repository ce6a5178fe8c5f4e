package localqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A queue in memory behaves like one in Azure: a dequeued message is hidden until it is
// deleted, and only the newest receipt deletes it.
func ExampleEngine() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	orders := engine.Queue(queue.Name{Account: "local", Queue: "orders"})
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Enqueue(ctx, "ship 42", nil); err != nil {
		log.Fatal(err)
	}
	batch, err := orders.Dequeue(ctx, 32, 30*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	m := batch[0]
	fmt.Println(m.Text, "delivery", m.DequeueCount)

	renewed, err := orders.Update(ctx, m.Lease, m.Text, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	err = orders.Delete(ctx, m.Lease)
	fmt.Println("lease lost:", errors.Is(err, queue.ErrLeaseLost))
	fmt.Println("deleted:", orders.Delete(ctx, renewed) == nil)
	// Output:
	// ship 42 delivery 1
	// lease lost: true
	// deleted: true
}

// A list comes in pages; each has the marker of the next one. [queue.ListAll] walks them.
func ExampleEngine_Account() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"orders", "orders-poison", "mail"} {
		if err := engine.Queue(queue.Name{Account: "local", Queue: name}).Create(ctx, nil); err != nil {
			log.Fatal(err)
		}
	}
	account := engine.Account("local")
	for marker := ""; ; {
		page, next, err := account.List(ctx, "orders", marker, 1)
		if err != nil {
			log.Fatal(err)
		}
		for _, q := range page {
			fmt.Println(q.Name)
		}
		if marker = next; marker == "" {
			break
		}
	}
	// Output:
	// orders
	// orders-poison
}
