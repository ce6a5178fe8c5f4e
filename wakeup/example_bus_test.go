package wakeup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// Every subscriber of a bus hears every event, and filters for itself.
func ExampleBus() {
	var bus wakeup.Bus
	orders := queue.Name{Account: "acme", Queue: "orders"}
	subscription, err := bus.Subscribe(orders, func(q queue.Name, bytes int64, _ time.Time) {
		if q == orders {
			fmt.Printf("%d bytes have come to %v\n", bytes, q)
		}
	}, func(listening bool) { fmt.Println("listening:", listening) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscription.Close()
	for _, q := range []string{"letters", "orders"} {
		if err := bus.Publish(context.Background(), queue.Name{Account: "acme", Queue: q}, 120, time.Time{}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// listening: true
	// 120 bytes have come to acme/orders
}
