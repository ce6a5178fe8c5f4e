package wakeup_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// Every subscriber of a bus hears every event, and filters for itself.
func ExampleBus() {
	var bus wakeup.Bus
	orders := queue.Name{Account: "acme", Queue: "orders"}
	subscription, err := bus.Subscribe(orders, wakeup.Subscriber{
		Event: func(e wakeup.Event) {
			if e.Queue == orders {
				fmt.Printf("%d bytes have come to %v\n", e.Bytes, e.Queue)
			}
		},
		Listening: func(listening bool) { fmt.Println("listening:", listening) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscription.Close()
	for _, q := range []string{"letters", "orders"} {
		if err := bus.Publish(context.Background(), wakeup.Event{Queue: queue.Name{Account: "acme", Queue: q}, Bytes: 120}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// listening: true
	// 120 bytes have come to acme/orders
}
