package wakeup_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// A Bus carries events within a process. Every subscriber hears all of them.
func ExampleBus() {
	var bus wakeup.Bus
	orders := queue.Name{Account: "shop", Queue: "orders"}
	s, err := bus.Subscribe(orders, wakeup.Subscriber{
		Listening: func(on bool) { fmt.Println("listening:", on) },
		Event:     func(e wakeup.Event) { fmt.Println("work in", e.Queue) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if err := bus.Publish(context.Background(), wakeup.Event{Queue: orders}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// listening: true
	// work in shop/orders
}
